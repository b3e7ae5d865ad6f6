"""Engines for language models on two hosts: what each prints by the calls of Ray that it makes, as on Ray 2.60."""

from __future__ import annotations

import pytest

from tests.helpers import ROOT
from tests.hosts.lab import Lab

pytestmark = [pytest.mark.mpi, pytest.mark.hosts]


@pytest.mark.timeout(240)
def test_engines_place_their_workers(two_hosts: Lab) -> None:
    """The programs are those of `tests/ray_docs`, with two GPUs on each host."""
    source = f"""
import os, sys
sys.path.insert(1, {str(ROOT)!r})
sys.argv[1:] = ["engines", "--hosts"]
from tests.ray_docs.__main__ import main
sys.exit(main())
"""
    with two_hosts.mpirun(source, ranks={"host1": 2, "host2": 2}) as program:
        assert "100.0 % as Ray" in program.finish(timeout=200).expect().stdout
