"""Idioms of public programs for Ray: groups found by their ids, facts about the job and its actors."""

from tests.helpers import run_program

GROUPS = """
import ray
from ray._raylet import PlacementGroupID
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup

context = ray.init(num_cpus=2)
print(context["node_ip_address"] == ray.nodes()[0]["NodeManagerAddress"])
made = [placement_group([{"CPU": 1}], name=f"left{number}") for number in range(2)]
ray.get([group.ready() for group in made])
found = [PlacementGroup(PlacementGroupID.from_hex(id)) for id in placement_group_table()]
print(set(found) == set(made), {group.name for group in found} == {"left0", "left1"}, found[0].bundle_specs)
for group in found:
    remove_placement_group(group)
print(placement_group_table(), [placement_group_table(group)["state"] for group in made])
for id in (made[0].id, PlacementGroupID.nil(), "text"):
    try:
        PlacementGroup(id)
    except (TypeError, ValueError) as error:
        print(type(error).__name__, str(error)[:31])


@ray.remote(max_restarts=1)
class Actor:
    def end(self):
        import os
        os._exit(1)

    def count(self):
        return ray._private.state.actors(ray.get_runtime_context().get_actor_id())


actor = Actor.options(lifetime="detached").remote()
actor.end.remote()
ray.wait([actor.count.options(max_task_retries=-1).remote()])
facts = ray.get(actor.count.remote())
print([facts[name] for name in ("State", "NumRestarts", "IsDetached", "DeathCause")])
print(facts["JobID"] == ray.get_runtime_context().get_job_id())
"""


def test_groups_by_their_ids_and_facts_of_actors() -> None:
    completed = run_program(GROUPS, options=("-m", "mpi_runtime", "--as-ray")).expect(0)
    assert completed.stdout.splitlines() == [
        "True",
        "True True [{'CPU': 1.0}]",
        "{} ['REMOVED', 'REMOVED']",
        "ValueError There is no placement group wit",
        "ValueError There is no placement group wit",
        "TypeError PlacementGroup() needs a Placem",
        "['ALIVE', 1, True, None]",
        "True",
    ]
