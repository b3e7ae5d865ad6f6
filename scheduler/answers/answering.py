"""Which function answers which question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mpi_runtime.scheduler.actors import checkpoints
from mpi_runtime.scheduler.answers import cluster, ended_calls, inspection, listing, store_summary, summary, why_waiting
from mpi_runtime.scheduler.log import errors, history
from mpi_runtime.scheduler.protocol import questions as q
from mpi_runtime.scheduler.protocol import window_questions as w
from mpi_runtime.scheduler.protocol.effects import Answer
from mpi_runtime.scheduler.protocol.events import Query
from mpi_runtime.scheduler.records.state import State

ANSWERS: dict[type[q.Question[object]], Callable[[State, Any, int], Any]] = {
    # Of clients
    q.Statistics: lambda state, _, now: cluster.statistics(state),
    q.ClusterResources: lambda state, _, now: cluster.cluster_resources(state),
    q.AvailableResources: lambda state, _, now: cluster.available_resources(state),
    q.Nodes: lambda state, asked, now: cluster.nodes(state, asked.id),
    q.NodeOfRank: lambda state, asked, now: cluster.node_of_rank(state, asked.rank),
    q.Tasks: lambda state, asked, now: listing.tasks(state, asked.id) + ended_calls.ended(state, asked),
    q.Actors: lambda state, asked, now: listing.actors(state, asked.id, asked.ended),
    q.Drivers: lambda state, _, now: q.AllDrivers(state.totals.drivers, listing.drivers(state)),
    q.Objects: lambda state, asked, now: listing.objects(state, asked.id),
    q.Workers: lambda state, asked, now: listing.workers(state, asked.id, asked.ended),
    q.Environments: lambda state, _, now: listing.environments(state),
    q.Groups: lambda state, asked, now: cluster.groups(state, asked.id, asked.removed),
    q.Store: lambda state, _, now: store_summary.store(state),
    q.NamedActor: lambda state, asked, now: cluster.named_actor(state, asked.namespace, asked.name),
    q.NamedActors: lambda state, _, now: cluster.named_actors(state),
    q.Group: lambda state, asked, now: cluster.group(state, asked.id),
    q.NamedGroup: lambda state, asked, now: cluster.group(state, state.group_names.get((asked.namespace, asked.name))),
    q.Progress: lambda state, _, now: q.Saved(checkpoints.unsaved(state), state.totals.recorded),
    q.RunningCalls: lambda state, _, now: listing.running(state, now),
    q.Late: lambda state, _, now: listing.late(state),
    q.Explain: lambda state, asked, now: why_waiting.explain(state, asked.id, now),
    q.Report: lambda state, _, now: history.report(state),
    q.History: lambda state, _, now: history.history(state),
    # Of the window
    w.Glance: lambda state, _, now: summary.glance(state, now),
    w.RunsSince: lambda state, asked, now: inspection.runs(state, asked.ran),
    w.Errors: lambda state, asked, now: inspection.traced(errors.errors(state, asked.function)),
    w.Oldest: lambda state, asked, now: inspection.oldest(state, asked.function, now),
    w.FirstTasks: lambda state, _, now: inspection.first_tasks(state),
    w.FirstActors: lambda state, _, now: inspection.first(state, state.actors, listing.actors),
    w.FirstObjects: lambda state, _, now: inspection.first(state, state.objects, listing.objects),
    w.FirstNodes: lambda state, _, now: inspection.first_nodes(state),
    w.FirstGroups: lambda state, _, now: inspection.first(state, state.groups, cluster.groups),
    w.FirstDrivers: lambda state, _, now: inspection.first_drivers(state),
    w.WholeStore: lambda state, _, now: inspection.store(state),
    w.RunsFrom: lambda state, asked, now: inspection.runs_from(state, asked.first),
    w.MovesFrom: lambda state, asked, now: inspection.moves_from(state, asked.first),
}


def answer(state: State, question: q.Question[q.A], now: int) -> q.A:
    """The answer to a question.

    Raises:
        LookupError: there is nothing of this name.
        RefusedError: the question breaks the protocol.
    """
    found: q.A = ANSWERS[type(question)](state, question, now)
    return found


def answer_query(state: State, query: Query, now: int) -> Answer:
    """The answer to a client."""
    return Answer(query.request, msgspec.msgpack.encode(answer(state, query.question, now)))
