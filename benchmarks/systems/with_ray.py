"""Ray, on this machine, with its own defaults but for the dashboard."""

from benchmarks.launching import emit
from benchmarks.systems import work

try:
    import ray

    from benchmarks.systems import ray_api
except ImportError as error:
    work.missing(error)


def first() -> None:
    """Start, and have one result."""
    ray.init(num_cpus=work.WORKERS, include_dashboard=False, logging_level="error", object_store_memory=2_000_000_000)
    ray.get(ray.remote(work.empty).remote())


if __name__ == "__main__":
    emit(versions=work.found("ray"))
    emit(work="start", count=1, seconds=work.timed(first))
    work.run(ray_api.works(ray))
    ray.shutdown()
