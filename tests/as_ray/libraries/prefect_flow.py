"""prefect-ray: a flow with `RayTaskRunner`, `map` and `remote_options`."""

import os

os.environ["PREFECT_LOGGING_LEVEL"] = "ERROR"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] = "true"
os.environ["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] = "120"  # not 20: its server starts slowly under load
os.environ["PREFECT_HOME"] = os.path.join(os.getcwd(), "prefect")
from prefect import flow, task
from prefect_ray.context import remote_options
from prefect_ray.task_runners import RayTaskRunner


@task
def square(x):
    return x * x


@task
def total(values):
    return sum(values)


@flow(task_runner=RayTaskRunner(init_kwargs={"num_cpus": 2}))
def work():
    with remote_options(num_cpus=1):
        squares = square.map(range(4))
    return total.submit(squares).result()


print(work())
