"""A part of the kill matrix: what is likely to break. `python -m tests.kill_matrix` has all of it."""

import pytest

from tests.kill_matrix import Case, run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]
CASES = [
    Case("plain", 1, "during", "driver", "KILL"),
    Case("openmpi", 3, "before", "driver", "TERM"),
    Case("openmpi", 2, "during", "driver", "KILL"),
    Case("openmpi", 3, "during", "head", "SEGV"),
    Case("openmpi", 3, "during", "launcher", "KILL"),
    Case("openmpi", 3, "after", "worker", "STOP"),
    Case("mpich", 3, "before", "worker", "KILL"),
    Case("mpich", 3, "during", "driver", "SEGV"),
    Case("mpich", 3, "during", "held", "KILL"),
    Case("mpich", 3, "during", "launcher", "TERM"),
    Case("mpich", 3, "after", "head", "INT"),
    Case("ulfm", 3, "before", "driver", "KILL"),
    Case("ulfm", 3, "before", "worker", "KILL"),
    Case("ulfm", 3, "before", "starter", "KILL"),
    Case("ulfm", 3, "during", "driver", "INT"),
    Case("ulfm", 3, "during", "driver", "SEGV"),
    Case("ulfm", 3, "during", "head", "KILL"),
    Case("ulfm", 3, "during", "held", "KILL"),
    Case("ulfm", 3, "during", "starter", "TERM"),
    Case("ulfm", 3, "after", "driver", "KILL"),
    Case("ulfm", 3, "after", "driver", "INT"),
    Case("ulfm", 2, "after", "head", "KILL"),
    Case("ulfm", 3, "after", "head", "KILL"),
    Case("ulfm", 6, "after", "head", "SEGV"),
    Case("ulfm", 3, "after", "worker", "TERM"),
    Case("ulfm", 3, "after", "worker", "STOP"),
    Case("ulfm", 3, "after", "forkserver", "KILL"),
    Case("ulfm", 3, "after", "executor", "SEGV"),
    Case("ulfm", 3, "after", "launcher", "KILL"),
    Case("ulfm", 3, "after", "starter", "KILL"),
    Case("ulfm", 3, "after", "starter", "INT"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.dies("driver", "executor", "forkserver", "head", "launcher", "rank", "rank at start", "rank with ulfm")
def test_a_job_ends_or_goes_on_and_nothing_is_left(case: Case) -> None:
    print(f"{case}: {run(case):.1f} s")
