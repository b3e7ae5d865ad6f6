"""Batches of commands that `submit --batch` hands to a real Slurm: the end of the time, the requeue, and the rest."""

from collections import Counter
from pathlib import Path

from tests.helpers import wait_until
from tests.slurm.cluster import Cluster

LONG = "if [ -e again ]; then hostname >> long; else touch begun; sleep 1000; fi #batch name=long\n"


def test_a_batch_goes_on_in_the_next_life_of_its_job(slurm: Cluster) -> None:
    folder = slurm.directory()
    quick = "".join(f"sleep 0.2; echo {number} $(hostname) >> done\n" for number in range(8))
    (folder / "jobs.txt").write_text(quick + LONG + "echo end >> end #batch after=long\n")
    words = ["submit", "--batch", "jobs.txt", "-N", "2", "--cpus-per-node=2", "--time=5", "--requeue"]
    job = slurm.run("mpi-runtime", *words, cwd=folder).stdout.strip()
    assert slurm.facts(job)["JobName"] == "batch-jobs"
    slurm.wait_until_running(job)
    wait_until(lambda: (folder / "begun").exists() and len(lines(folder, "done")) == 8, 60, "the first commands")
    seen = slurm.run("mpi-runtime", "batch", "status", "jobs", cwd=folder).stdout
    assert "jobs: run by n" in seen, "from the login host, on which it does not run"
    assert "8 of 10 done, 1 running, 1 waiting" in seen
    assert not (folder / "again").exists()
    (folder / "again").touch()
    slurm.run("scancel", "--batch", "--signal=URG", job)
    ended = slurm.wait_for_requeued(job).expect()
    assert "SIGTERM or the end of the job's time: ending what runs" in ended.stdout
    assert "8 commands were done by earlier runs" in ended.stdout
    assert "10 of 10 done, 8 of them before" in ended.stdout
    done = Counter(line.split()[0] for line in lines(folder, "done"))
    assert done == {str(number): 1 for number in range(8)}
    assert len({line.split()[1] for line in lines(folder, "done")}) == 2, "on both nodes"
    assert len(lines(folder, "long")) == len(lines(folder, "end")) == 1


def test_a_job_in_which_nothing_more_can_end_is_queued_again_at_once(slurm: Cluster) -> None:
    """What is left may take 65 seconds. Commands end within 95 of 120, and after the first fewer are left of these."""
    folder = slurm.directory()
    lines_of = ["sleep 30; echo >> first #batch name=first", "echo >> long #batch after=first time_limit=60s name=long"]
    (folder / "jobs.txt").write_text("\n".join(lines_of) + "\n")
    words = ["submit", "--batch", "jobs.txt", "-N", "1", "--cpus-per-node=1", "--time=2", "--requeue"]
    job = slurm.run("mpi-runtime", *words, cwd=folder).stdout.strip()
    ended = slurm.wait_for_requeued(job).expect()
    assert "nothing that is left can end before the job does" in ended.stdout
    assert "told to end" not in ended.stdout, "it did not wait for the end of its time"
    assert "2 of 2 done, 1 of them before" in ended.stdout
    assert len(lines(folder, "first")) == len(lines(folder, "long")) == 1


def test_a_job_is_not_queued_again_for_what_no_such_job_can_do(slurm: Cluster) -> None:
    folder = slurm.directory()
    (folder / "jobs.txt").write_text("true\ntrue #batch time_limit=1h\n")
    words = ["submit", "-N", "1", "--cpus-per-node=1", "--time=2", "--requeue"]
    words += ["-m", "mpi_runtime.cli.batch", "jobs.txt", "--requeue"]  # `--batch` would refuse it
    job = slurm.run("mpi-runtime", *words, cwd=folder).stdout.strip()
    ended = slurm.wait(job)
    assert "have a longer job, or shorter limits" in ended.stdout, ended.stdout
    assert "1 of 2 done, 1 skipped" in ended.stdout
    assert slurm.facts(job)["Restarts"] == "0"


def test_short_commands_are_not_done_again_when_the_time_ends(slurm: Cluster) -> None:
    """At the drain those that run may end, and none begins."""
    folder = slurm.directory()
    line = "echo {n} >> began; sleep 0.7; echo {n} >> done\n"
    (folder / "jobs.txt").write_text("".join(line.replace("{n}", str(number)) for number in range(70)))
    words = ["submit", "--batch", "jobs.txt", "-N", "1", "--cpus-per-node=1", "--time=1", "--requeue"]
    job = slurm.run("mpi-runtime", *words, cwd=folder).stdout.strip()
    ended = slurm.wait_for_requeued(job)
    assert "70 of 70 done" in ended.stdout, ended.stdout
    assert "SIGTERM or the end of the job's time" in ended.stdout
    repeated = len(lines(folder, "began")) - 70
    print(f"{repeated} commands were begun again")
    assert repeated <= 1
    assert Counter(lines(folder, "done")) == {str(number): 1 for number in range(70)}


def test_what_is_wrong_is_said_before_anything_waits_in_a_queue(slurm: Cluster) -> None:
    folder = slurm.directory()
    (folder / "jobs.txt").write_text("true\ntrue #batch after=nobody\n")
    refused = slurm.run("mpi-runtime", "submit", "--batch", "jobs.txt", cwd=folder, code=2).stderr
    assert "jobs.txt:2:13: there is no command or array 'nobody'" in refused
    (folder / "jobs.txt").write_text("true\n")
    words = ["mpi-runtime", "submit", "--batch", "jobs.txt"]
    assert "must be 1 or more" in slurm.run(*words, "--max-jobs", "0", cwd=folder, code=2).stderr
    assert "exclude each other" in slurm.run(*words, "--array", "0-3", cwd=folder, code=2).stderr
    (folder / "large.txt").write_text("true #batch num_cpus=64\n")
    words[3] = "large.txt"
    assert "no node has more than CPU 8" in slurm.run(*words, cwd=folder, code=2).stderr
    words[3] = "jobs.txt"
    script = slurm.run(*words, "--dry-run", "--", "--retry-failed", cwd=folder).stdout
    assert "-m mpi_runtime.cli.batch jobs.txt --retry-failed" in script
    assert "#SBATCH --job-name=batch-jobs" in script


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []
