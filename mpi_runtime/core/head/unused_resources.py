"""Reports, once at the start, resources of the batch job that its calls cannot use."""

from __future__ import annotations

import os
from collections.abc import Collection

from mpi_runtime import config as configuration
from mpi_runtime.config import Config
from mpi_runtime.scheduler.protocol.rank_events import RankJoined


def unused(launcher: str, size: int, joined: Collection[RankJoined], config: Config) -> str:
    """Return a message about resources that are not used, with a cure; empty if all are used.

    `launcher`: its kind; `size`: the number of ranks; `joined`: their reports.
    """
    env = configuration.environment()
    if not configuration.is_batch_job() or env.get(configuration.LAUNCHER):
        return ""
    from mpi_runtime.slurm import diagnosis  # not at the top: most jobs are not in a batch job
    from mpi_runtime.slurm.allocation import from_environment

    looked_for_gpus = config.num_gpus is None and configuration.find_gpus() != "never"
    hosts = {}
    for host in sorted({one.host for one in joined}):
        ranks = [one for one in joined if one.host == host]
        looked = looked_for_gpus and not any(one.gpu_error for one in ranks)
        hosts[ranks[0].hostname] = diagnosis.Usable(
            None if config.num_cpus is not None else len({cpu for one in ranks for cpu in one.cpus}),
            len({device.uuid for one in ranks for device in one.devices}) if looked else None,
        )
    return diagnosis.unused(launcher, size, from_environment(env), env, hosts, os.cpu_count() or 1)
