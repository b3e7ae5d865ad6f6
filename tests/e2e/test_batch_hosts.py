"""A batch with resources on three hosts: what runs where, what `status` says of it, and that it goes on elsewhere."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpi_runtime.batch.past import History, read_history
from mpi_runtime.batch.results import CommandResult
from tests.helpers import Program, run_command, wait_until
from tests.hosts.lab import Lab, lab, missing

pytestmark = [pytest.mark.mpi, pytest.mark.hosts, pytest.mark.timeout(180)]
ON_RANKS = "import sys; from mpi_runtime.cli.main import main; sys.exit(main(['batch', *sys.argv[1:]]))"
THREE = {"host1": 1, "host2": 1, "host3": 1}
BATCH = """
    [defaults]
    time_limit = "2m"
    [[task]]
    name = "share"
    command = "while [ ! -e {gate} ]; do sleep 0.05; done; echo {host} {gpu} {i}"
    num_cpus = 0.5
    num_gpus = 0.5
    product = { gate = ["GATE"], i = { range = [0, 12] } }
    [[task]]
    name = "large"
    command = "echo {host} {cpus}"
    num_cpus = 3
    product = { i = { range = [0, 6] }, unused = [""] }
    after = ["share"]
    [[task]]
    name = "memory"
    command = "sleep 0.2; echo {host}"
    memory = "MEMORY"
    after = ["share"]
    [[task]]
    name = "memory-too"
    command = "sleep 0.2; echo {host}"
    memory = "MEMORY"
    after = ["share"]
    [[task]]
    name = "end"
    command = "cat {all}; [ -e {gate}.well ]"
    after = ["large", "memory", "memory-too"]
    product = { all = ["OUT/large.*.out"], gate = ["GATE"] }
"""


@pytest.fixture(scope="module")
def three_hosts() -> Iterator[Lab]:
    if reason := missing():
        pytest.skip(reason)
    with lab(3) as found:
        yield found
