"""Executor of Snakemake: the jobs of a workflow run as commands of mpi_runtime, within one MPI or Slurm job.

Snakemake is the driver. It starts with the ranks that the launcher has started, connects to the session that a variable
names, or starts alone on this host. Each of its jobs is a command with the CPUs, GPUs and memory that its rule asks
for. Snakemake's own records say what is done.
"""

import re
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

if TYPE_CHECKING:  # each job starts a Snakemake that loads this module, and no job needs the runtime
    from mpi_runtime import ObjectRef
    from mpi_runtime.batch import CommandResult

LOOK_S = 0.1
"""Seconds between looks at jobs that run."""
DIRECTORY = ".snakemake/mpi_runtime"
"""Where the output of jobs is written."""
_PRIORITY_MAX = 1_000_000
_MINUTE_S = 60
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Options on Snakemake's command line, as `--mpi-runtime-gpus-per-node`."""

    cpus_per_node: Optional[int] = field(  # noqa: UP045  (Snakemake reads the annotations)
        default=None, metadata={"help": "CPUs of each node; those that jobs may use"}
    )
    gpus_per_node: Optional[int] = field(  # noqa: UP045
        default=None, metadata={"help": "GPUs of each node; those that are found"}
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_envvar_declarations_to_cmd=False,  # they would stand in a file that others may read
    auto_deploy_default_storage_provider=False,
)


class Executor(RemoteExecutor):
    """Submits jobs, looks for their ends, and cancels them."""

    def __post_init__(self) -> None:
        """Start the runtime, with all ranks of the launcher."""
        import mpi_runtime

        settings = self.workflow.executor_settings
        try:
            mpi_runtime.init(num_cpus=settings.cpus_per_node, num_gpus=settings.gpus_per_node)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise WorkflowError(f"mpi_runtime does not start: {error}") from error
        self._runtime = mpi_runtime

    @property
    def next_seconds_between_status_checks(self) -> float:
        """The time until the next look. Not set in `__post_init__`: the first look may come before that."""
        return LOOK_S

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit a job: a command that runs its script."""
        from mpi_runtime import batch

        script = self.get_jobscript(job)
        self.write_jobscript(job, script)
        name = f"{re.sub(r'[^A-Za-z0-9_.+-]', '_', job.name)}-{job.jobid}-{job.attempt}"
        info = SubmittedJobInfo(job, external_jobid=name)
        try:
            options = options_of(job.threads, job.resources, getattr(job, "priority", 0))
            env = {variable: _PLACEHOLDER.sub(r"{{\1}}", text) for variable, text in self.envvars().items()}
            ref = batch.command(
                "sh {script}", script=script, name=name, env=env, on_failure="continue", directory=DIRECTORY, **options
            )
        except ValueError as error:
            self.report_job_submission(info)
            self.report_job_error(info, msg=f"mpi_runtime does not take it: {error}. ")
            return
        info.aux = {"ref": ref, "future": ref.future()}
        self.report_job_submission(info)

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that have ended, and yield the others."""
        for info in active_jobs:
            future: Future[CommandResult] | None = (info.aux or {}).get("future")
            if future is None:  # it was refused
                continue
            if not future.done():
                yield info
            elif (error := future.exception()) is not None:
                self.report_job_error(info, msg=f"{error}\n")
            elif (result := future.result()).is_success:
                self.report_job_success(info)
            else:
                logs = [result.stdout] if result.stdout else []  # it has none if it could not be started
                where = f"on {result.host}" + (f"; its output is in {result.stdout}" if logs else "")
                self.report_job_error(info, msg=f"{result.ending()} {where}\n", aux_logs=logs)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """End these jobs, with all of their processes."""
        for info in active_jobs:
            ref: ObjectRef[Any] | None = (info.aux or {}).get("ref")
            if ref is not None:
                self._runtime.cancel(ref)

    def shutdown(self) -> None:
        """End the runtime."""
        super().shutdown()
        self._runtime.shutdown()


def options_of(threads: int, resources: Mapping[str, Any], priority: int) -> dict[str, Any]:
    """Return the options of a command for the threads and resources of a job, as Snakemake names them.

    `mem_mib`, else `mem_mb` (10^6 bytes), is the memory, `gpu` or `nvidia_gpu` the number of GPUs, and `runtime` the
    time limit in minutes. Snakemake itself heeds all others.

    Raises:
        ValueError: one of them is not a number.
    """
    found: dict[str, Any] = {"num_cpus": threads, "priority": min(priority, _PRIORITY_MAX)}
    if memory := _number(resources, "mem_mib"):
        found["memory"] = memory << 20
    elif memory := _number(resources, "mem_mb"):
        found["memory"] = memory * 1_000_000
    if gpus := _number(resources, "gpu") or _number(resources, "nvidia_gpu"):
        found["num_gpus"] = gpus
    if minutes := _number(resources, "runtime"):
        found["time_limit"] = minutes * _MINUTE_S
    return found


def _number(resources: Mapping[str, Any], name: str) -> int:
    value = resources.get(name) or 0
    if not isinstance(value, int):
        raise ValueError(f"the resource {name} must be a whole number, not {value!r}")
    return value
