"""Reports, once at the start, resources of the batch job that its calls cannot use."""

from __future__ import annotations

import os
from collections.abc import Collection

from mpi_runtime import config as configuration
from mpi_runtime.scheduler.protocol.rank_events import RankJoined


def unused(launcher: str, size: int, joined: Collection[RankJoined], states_cpus: bool, looked_for_gpus: bool) -> str:
    """Return a message about resources that are not used, with a cure; empty if all are used.

    Args:
        launcher: the kind of launcher.
        size: the number of ranks.
        joined: the events with which the ranks have joined.
        states_cpus: whether `init()` was given a number of CPUs.
        looked_for_gpus: whether the ranks looked for GPUs, because `init()` was not given their number.
    """
    env = configuration.environment()
    if not configuration.is_batch_job() or env.get(configuration.LAUNCHER):
        return ""
    from mpi_runtime.slurm import diagnosis  # not at the top: most jobs are not in a batch job
    from mpi_runtime.slurm.allocation import from_environment

    looked_for_gpus = looked_for_gpus and configuration.find_gpus() != "never"
    hosts = {}
    for host in sorted({one.host for one in joined}):
        ranks = [one for one in joined if one.host == host]
        looked = looked_for_gpus and not any(one.gpu_error for one in ranks)
        hosts[ranks[0].hostname] = diagnosis.Usable(
            None if states_cpus else len({cpu for one in ranks for cpu in one.cpus}),
            len({device.uuid for one in ranks for device in one.devices}) if looked else None,
        )
    return diagnosis.unused(launcher, size, from_environment(env), env, hosts, os.cpu_count() or 1)
