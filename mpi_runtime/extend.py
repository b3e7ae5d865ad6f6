"""The narrow waist: what libraries (`util`, `batch`, `tune` ...) use of the core, beside the public names.

A library imports nothing else of the core, so the core can change behind these names. By subject:

- the running job: `job`, `job_or_none`, `ask`, `this_call`, `spec_of`, `status_line`, `send_metrics`,
  `before_results`, `Client`, `job_id`
- results when they arrive: `when_done`, `Outcome`, `future_of`, `BlockingFuture`, `blocked`
- GPUs: `SHOWN_BY`, `kind_in_torch`
- amounts and labels that users state: `check_resources`, `size_in_bytes`, `check_selector`, `meets`
- amounts as the scheduler counts them: `Request`, `custom_of`, `Pool`, `pool_for`, `fits`
- values as bytes: `dumps`; `first_version.loads` for those on disk; `digest_of`, the same in the next run
- options of calls as the scheduler gets them, without a job: `task_spec`
- files of MPI libraries: `mpi_files`
- the address of this host: `address_towards`
- ranks: `detect`, `check_ranks`, `installed_launcher`, `launch_command`, `clear_sessions`, `environment_of_launcher`
- child processes: `children`, `descendants`, `kill_group`, `adopt_orphans`, `die_with_parent`, `Memory`, `scratch`,
  `claimed_processors`, `child_environment`, `settings_for_mpi`
- the gang of the running call, and MPI programs in its place: `member`, `abort_s`, `Status`, `AgentLostError`, and the
  names of protocols and variables
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from mpi_runtime import _face
from mpi_runtime.core.client import current
from mpi_runtime.core.driver import running
from mpi_runtime.errors import HeadDiedError
from mpi_runtime.scheduler.protocol.questions import A, Question

if TYPE_CHECKING:
    from mpi_runtime.core.client.client import Client
    from mpi_runtime.scheduler.protocol.events import Call, Spec
    from mpi_runtime.scheduler.protocol.series import Series

_HOMES = {
    ".core.calls.code_digest": "digest_of",
    ".core.calls.labels": "check_selector meets",
    ".core.calls.options": "check_resources size_in_bytes",
    ".core.calls.specs": "task_spec",
    ".core.client.blocking_future": "BlockingFuture blocked",
    ".core.client.client": "Client",
    ".core.client.futures": "Outcome",
    ".core.client.object_ref": "future_of when_done",
    ".core.client.typed_ids": "job_id",
    ".core.executor.scratch": "",
    ".core.gangs.environment": "EACH_TEXT OF_PLACES TEXTS_OF_WHEEL",
    ".core.gangs.greeting": "abort_s",
    ".core.gangs.library": "PMI1 PMIX",
    ".core.gangs.member": "",
    ".core.gangs.command_channel": "NAME VARIABLE AgentLostError Status",
    ".core.host.claimed_processors": "claimed_processors",
    ".core.host.launch": "detect",
    ".core.host.launchers": "child_environment environment_of_launcher settings_for_mpi",
    ".core.host.mpiexec": "check_ranks installed_launcher launch_command",
    ".core.host.open_mpi": "clear_sessions",
    ".core.host.machine": "address_towards",
    ".core.host.memory_usage": "Memory",
    ".core.host.mpi_files": "",
    ".core.host.process_tree": "adopt_orphans children descendants die_with_parent kill_group",
    ".core.objects.first_version": "",
    ".core.objects.serialize": "dumps",
    ".gpu.vendor": "SHOWN_BY kind_in_torch",
    ".scheduler.protocol.amounts": "Request custom_of",
    ".scheduler.protocol.resources": "Pool fits pool_for",
}
"""The names of each module of the core, which is loaded when one of them is used."""

__all__ = [
    "EACH_TEXT", "NAME", "OF_PLACES", "PMI1", "PMIX", "SHOWN_BY", "TEXTS_OF_WHEEL", "VARIABLE",
    "AgentLostError", "BlockingFuture", "Client", "Memory", "Outcome", "Pool", "Request", "Status", "abort_s",
    "address_towards", "adopt_orphans", "ask", "before_results", "blocked", "check_ranks", "check_resources",
    "check_selector", "child_environment", "children", "claimed_processors", "clear_sessions", "custom_of",
    "descendants", "detect", "die_with_parent", "digest_of", "dumps", "environment_of_launcher", "first_version",
    "fits", "future_of", "installed_launcher", "job", "job_id", "job_or_none", "kill_group", "kind_in_torch",
    "launch_command", "meets", "member", "mpi_files", "pool_for", "scratch", "send_metrics", "settings_for_mpi",
    "size_in_bytes", "spec_of", "status_line", "task_spec", "this_call", "when_done",
]  # fmt: skip


def job() -> Client:
    """The connection of this process to the running job. Starts a job with defaults if none runs.

    Raises:
        RuntimeNotInitializedError: this process was forked from one of a job, or runs calls with their own schedulers.
    """
    return running.client()


def job_or_none() -> Client | None:
    """The connection of this process to the running job; None: none runs here."""
    return current.client_or_none()


def ask(question: Question[A]) -> A:
    """Ask the scheduler a question of `scheduler/protocol/questions.py`, and wait for the answer."""
    return job().questions.ask(question)


def this_call() -> Call | None:
    """The call that runs here; None: this is the driver."""
    return job().scopes.current().call


def spec_of(call: Call) -> Spec | None:
    """The options of a call that runs here, as the scheduler has them."""
    return job().feed.specs.get(call.spec)


def status_line(owner: str, text: str, is_last: bool) -> bytes:
    """The line by which a process shows its status, such as a progress bar, on the terminal of the job."""
    from mpi_runtime.core.head import status  # not at the top: few processes show one

    return status.line(owner, text, is_last)


def send_metrics(client: Client, series: list[Series]) -> None:
    """Send values of metrics of this process to the head of a job."""
    from mpi_runtime.core.transport.messages import Recorded

    with contextlib.suppress(HeadDiedError):
        client.outbox.send_local(Recorded(series))


def before_results(act: Callable[[Client], None]) -> None:
    """Have this called before this process sends a result, and before it ends, with the connection that it uses."""
    current.report_values = act


if TYPE_CHECKING:
    from mpi_runtime.core.calls.code_digest import digest_of
    from mpi_runtime.core.calls.labels import check_selector, meets
    from mpi_runtime.core.calls.options import check_resources, size_in_bytes
    from mpi_runtime.core.calls.specs import task_spec
    from mpi_runtime.core.client.blocking_future import BlockingFuture, blocked
    from mpi_runtime.core.client.client import Client
    from mpi_runtime.core.client.futures import Outcome
    from mpi_runtime.core.client.object_ref import future_of, when_done
    from mpi_runtime.core.client.typed_ids import job_id
    from mpi_runtime.core.executor import scratch
    from mpi_runtime.core.gangs import member
    from mpi_runtime.core.gangs.command_channel import NAME, VARIABLE, AgentLostError, Status
    from mpi_runtime.core.gangs.environment import EACH_TEXT, OF_PLACES, TEXTS_OF_WHEEL
    from mpi_runtime.core.gangs.greeting import abort_s
    from mpi_runtime.core.gangs.library import PMI1, PMIX
    from mpi_runtime.core.host import mpi_files
    from mpi_runtime.core.host.claimed_processors import claimed_processors
    from mpi_runtime.core.host.launch import detect
    from mpi_runtime.core.host.launchers import child_environment, environment_of_launcher, settings_for_mpi
    from mpi_runtime.core.host.machine import address_towards
    from mpi_runtime.core.host.memory_usage import Memory
    from mpi_runtime.core.host.mpiexec import check_ranks, installed_launcher, launch_command
    from mpi_runtime.core.host.open_mpi import clear_sessions
    from mpi_runtime.core.host.process_tree import adopt_orphans, children, descendants, die_with_parent, kill_group
    from mpi_runtime.core.objects import first_version
    from mpi_runtime.core.objects.serialize import dumps
    from mpi_runtime.gpu.vendor import SHOWN_BY, kind_in_torch
    from mpi_runtime.scheduler.protocol.amounts import Request, custom_of
    from mpi_runtime.scheduler.protocol.resources import Pool, fits, pool_for
else:  # a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)
