"""Programs written for Ray, unchanged: their old options, their imports, their child processes."""

import pytest

from tests.helpers import run_program

AS_RAY = ("-m", "mpi_runtime", "--as-ray")


def said(program: str) -> list[str]:
    return run_program(program, options=AS_RAY).expect(0).stdout.splitlines()


def test_old_options_of_placement_groups_are_accepted() -> None:
    assert said("""
import ray
from ray.util import get_current_placement_group, placement_group

ray.init(num_cpus=3)
group = placement_group([{"CPU": 1}, {"CPU": 1}])
ray.get(group.ready())

@ray.remote
def here():
    return get_current_placement_group() == group

@ray.remote(placement_group=group, placement_group_bundle_index=1)
class Inside:
    def here(self):
        return get_current_placement_group() == group

@ray.remote(num_cpus=0)
def parent(**options):
    return ray.get(here.options(num_cpus=0, **options).remote())

print(ray.get([here.remote(), here.options(placement_group=group).remote(), Inside.remote().here.remote()]))
captured = parent.options(placement_group=group, placement_group_capture_child_tasks=True)
print(ray.get([captured.remote(), captured.remote(placement_group=None)]))
print(ray.get([captured.remote(placement_group_capture_child_tasks=False), parent.remote()]))
for options in (dict(placement_group_bundle_index=2), dict(scheduling_strategy="SPREAD")):
    try:
        here.options(placement_group=group, **options).remote()
    except ValueError as error:
        print(str(error)[:40])
""") == [
        "[False, True, True]",
        "[True, False]",
        "[False, False]",
        "placement group bundle index 2 is invali",
        "scheduling_strategy and the old option p",
    ]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_child_processes_of_multiprocessing_find_the_same_ray(method: str) -> None:
    program = f"""
import multiprocessing
import ray

def version(number):
    import ray.util
    return ray.__version__, ray.util.ActorPool.__module__, number

if __name__ == "__main__":
    with multiprocessing.get_context("{method}").Pool(1) as pool:
        print(*pool.map(version, [7])[0])
"""
    assert said(program) == ["2.60.0 mpi_runtime.util.actor_pool 7"]
