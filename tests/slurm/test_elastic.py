"""Several jobs of Slurm on one batch: they share it, one is cancelled, and nothing is done twice."""

from collections import Counter
from pathlib import Path

import pytest

from tests.helpers import wait_until
from tests.slurm.cluster import Cluster


@pytest.mark.timeout(240)
def test_jobs_share_a_batch_and_the_part_of_a_cancelled_one_is_done_by_others(slurm: Cluster) -> None:
    folder = slurm.directory()
    line = "echo {n} $(hostname) >> began; sleep 0.4; echo {n} >> done\n"
    (folder / "jobs.txt").write_text("".join(line.replace("{n}", str(number)) for number in range(300)))
    words = ["submit", "--batch", "jobs.txt", "--max-jobs", "3", "-N", "1", "--time=5"]
    jobs = slurm.run("mpi-runtime", *words, cwd=folder).stdout.split()
    assert len(jobs) == 3
    wait_until(lambda: len({one.split()[1] for one in lines(folder, "began")}) > 1, 90, "two jobs")
    wait_until(lambda: "run by 3 jobs" in slurm.run("mpi-runtime", "batch", "status", "jobs", cwd=folder).stdout, 60)
    slurm.run("scancel", "--full", "--signal=KILL", jobs[0])
    for job in jobs[1:]:
        slurm.wait(job).expect()
    # Of the killed job only its beat, which stands still, shows on the login host that it has ended.
    assert "300 of 300 done" in slurm.run("mpi-runtime", "batch", "wait", "jobs", cwd=folder).stderr
    said = "".join(slurm.output(job) for job in jobs[1:])
    assert "300 of 300 done" in said
    assert "cannot be cancelled" not in said, "a job that has ended is not to be cancelled"
    began, done = (Counter(one.split()[0] for one in lines(folder, name)) for name in ("began", "done"))
    assert sorted(done, key=int) == [str(number) for number in range(300)]
    assert sum(began.values()) <= 300 + 40, "only what the killed job had begun is begun again"


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []
