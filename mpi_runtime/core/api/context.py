"""Facts about this process and what it runs: `get_runtime_context`, `get_gpu_ids`, `get_gpus`."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from mpi_runtime.core import published
from mpi_runtime.core.calls.actor_class import handle_of
from mpi_runtime.core.calls.actor_handle import ActorHandle
from mpi_runtime.core.client import current
from mpi_runtime.core.client.typed_ids import ActorID, JobID, NodeID, PlacementGroupID, TaskID, job_id
from mpi_runtime.core.driver import running
from mpi_runtime.core.executor.scratch import described_environment
from mpi_runtime.gpu.device import Device
from mpi_runtime.scheduler.protocol.questions import A, Actors, Nodes, Question, Workers
from mpi_runtime.show.tables import html_table


@published()
class RuntimeContext:
    """The place of the running code: the driver, a task or an actor, with its ids, names and resources."""

    def get_job_id(self) -> str:
        """The id of the job: the number of its driver in a session, otherwise a constant."""
        return self.job_id.hex()

    def get_node_id(self) -> str:
        """The id of this node, as in `nodes()`. Nodes are numbered in the order of their lowest ranks."""
        return running.client().questions.node_id()

    def get_task_id(self) -> str | None:
        """The id of the running call; None in the driver."""
        call = running.client().scopes.current().call
        return call.id.hex() if call is not None else None

    def get_task_name(self) -> str | None:
        """The name of the running function or method; None in the driver."""
        return running.client().scopes.current().name or None

    def get_actor_id(self) -> str | None:
        """The id of the actor whose method runs; None outside of actors."""
        executor = running.client().executor
        return executor.actor_id.hex() if executor is not None and executor.actor_id else None

    def get_task_function_name(self) -> str | None:
        """The qualified name of the running function or method, without the option `name`; None in the driver."""
        executor = running.client().executor
        return executor.function_name() if executor is not None else None

    def is_canceled(self) -> bool:
        """Whether the running call was cancelled. Code that continues after a cancel can ask.

        Raises:
            RuntimeError: no call runs here.
        """
        client = running.client()
        call = client.scopes.current().call
        if client.executor is None or call is None:
            raise RuntimeError("is_canceled() needs a running call; this is the driver.")
        return client.executor.is_cancelled(call)

    @property
    def job_id(self) -> JobID:
        """The id of the job."""
        return job_id(running.client().driver)

    @property
    def node_id(self) -> NodeID:
        """The id of this node."""
        return NodeID.from_hex(self.get_node_id())

    @property
    def task_id(self) -> TaskID | None:
        """The id of the running call; None in the driver."""
        id = self.get_task_id()
        return TaskID.from_hex(id) if id is not None else None

    @property
    def actor_id(self) -> ActorID | None:
        """The id of the actor whose method runs; None outside of actors."""
        id = self.get_actor_id()
        return ActorID.from_hex(id) if id is not None else None

    def get(self) -> dict[str, Any]:
        """The ids of job, node, call and actor, and the namespace, by name. Ids that do not exist are left out."""
        found = {"job_id": self.job_id, "node_id": self.node_id, "namespace": self.namespace}
        inside = {"task_id": self.task_id, "actor_id": self.actor_id}
        return {**found, **{name: id for name, id in inside.items() if id is not None}}

    def get_actor_name(self) -> str | None:
        """The name of the actor whose method runs; "" if it has no name; None outside of actors."""
        id = self.get_actor_id()
        found = _one(Actors(bytes.fromhex(id))) if id is not None else None
        return found.name if found is not None else None

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether this is an actor that was restarted after its process died."""
        executor = running.client().executor
        return executor is not None and executor.actor_attempt > 0

    @property
    def current_actor(self) -> ActorHandle:
        """A handle to the actor whose method runs. It does not keep the actor alive.

        Raises:
            RuntimeError: the caller is not an actor.
        """
        client = running.client()
        if client.executor is None or not client.executor.actor_id:
            raise RuntimeError("current_actor exists inside actors only; this is a task or the driver.")
        return handle_of(client.executor.actor_id, type(client.executor.actor))

    def get_assigned_resources(self) -> dict[str, float]:
        """The resources that the running task or actor holds: amounts by name; empty in the driver."""
        found = _one(Workers(bytes.fromhex(self.get_worker_id())))
        return found.assigned_resources if found is not None else {}

    def get_placement_group_id(self) -> str | None:
        """The id of the placement group in which this code runs; None outside of one."""
        executor = running.client().executor
        where = executor.where if executor is not None else None
        return where.group.hex() if where is not None and where.group else None

    @property
    def current_placement_group_id(self) -> PlacementGroupID | None:
        """The id of the placement group in which this code runs; None outside of one."""
        id = self.get_placement_group_id()
        return PlacementGroupID.from_hex(id) if id is not None else None

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether calls made here run in the same placement group, unless they have a strategy."""
        return running.client().inherited.where is not None

    @property
    def runtime_env(self) -> dict[str, Any]:
        """The `runtime_env` of this code: "env_vars", "working_dir", "py_modules". Packed files appear as hashes."""
        return described_environment(running.client().inherited.environment)

    def get_runtime_env_string(self) -> str:
        """The `runtime_env` of this code, as JSON."""
        import json  # not at the top: few programs need it

        return json.dumps(self.runtime_env)

    def get_node_labels(self) -> dict[str, str]:
        """The labels of this node, by name."""
        found = _one(Nodes(bytes.fromhex(self.get_node_id())))
        return found.labels if found is not None else {}

    def get_worker_id(self) -> str:
        """The number of this process in the job, as 32 hexadecimal digits; 0 is the driver."""
        client = running.client()
        return f"{client.executor.number if client.executor is not None else client.number:032x}"

    def get_rank(self) -> int:
        """The MPI rank to which this process belongs."""
        executor = running.client().executor
        return executor.rank if executor is not None else 0

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """The ids of the devices that this code may use, as strings, by kind: `{"GPU": ["0"]}`."""
        return {"GPU": [str(device) for device in get_gpu_ids()]}

    @property
    def namespace(self) -> str:
        """The namespace in which names of actors are looked up by default."""
        return running.client().inherited.namespace

    @property
    def pid(self) -> int:
        """The process id of this process."""
        return os.getpid()

    @property
    def worker(self) -> SimpleNamespace:
        """An object with the attribute `mode`, which libraries read: 0 in the driver, 1 in an executor."""
        return SimpleNamespace(mode=0 if running.client().executor is None else 1)

    def __repr__(self) -> str:
        facts = f"rank={self.get_rank()}, task={self.get_task_id()}, actor={self.get_actor_id()}"
        return f"<RuntimeContext of this process: {facts}; get_task_name(), get_node_id() and others have more>"

    def _repr_html_(self) -> str:
        names = ("node_id", "worker_id", "rank", "task_name", "task_id", "actor_id", "placement_group_id")
        return html_table(("of this process", ""), [(name, getattr(self, f"get_{name}")()) for name in names])


def _one(question: Question[list[A]]) -> A | None:
    """The entry that a question with an id finds, or None."""
    found = running.client().questions.ask(question)
    return found[0] if found else None


@published()
def get_runtime_context() -> RuntimeContext:
    """The context of the running code, in the driver, in tasks and in actors. Starts a job if no job runs."""
    running.client()
    return RuntimeContext()


@published()
def get_gpu_ids() -> list[int]:
    """The ids of the GPUs that the running task or actor holds, as integers; empty in the driver.

    The same GPUs are in the variable of their vendor (docs/gpus.md).
    """
    client = current.client_or_none()
    return list(client.executor.gpu_ids) if client is not None and client.executor is not None else []


@published()
def get_gpus() -> list[Device]:
    """The devices of `get_gpu_ids()`, in the same order: name, UUID, memory, types.

    CUDA numbers them in this order from 0. Empty for GPUs that `init(num_gpus=...)` states and no driver reports.
    """
    client = current.client_or_none()
    return list(client.executor.devices) if client is not None and client.executor is not None else []
