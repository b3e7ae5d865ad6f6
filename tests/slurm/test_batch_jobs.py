"""Batches of commands that `submit --batch` hands to a real Slurm: the end of the time, the requeue, and the rest."""

from collections import Counter
from pathlib import Path

import pytest

from tests.helpers import wait_until
from tests.slurm.cluster import Cluster

LONG = "if [ -e again ]; then hostname >> long; else touch begun; sleep 1000; fi #batch name=long\n"
HANDLES = """
import signal, time
import mpi_runtime as ray

ray.init()
for number in (signal.SIGHUP, signal.SIGUSR2):
    signal.signal(number, lambda number, frame: print(signal.Signals(number).name, flush=True))
print("working", flush=True)
try:
    while True:
        time.sleep(0.1)
except KeyboardInterrupt:
    print(ray.get(ray.remote(lambda: "tasks continue").remote()), flush=True)
    raise
"""


@pytest.mark.timeout(240)
def test_batches_go_on_in_the_next_lives_of_their_jobs(slurm: Cluster) -> None:
    """In one test, side by side: each waits for the end of its time, and for Slurm to start it again."""
    told, done, cut = (slurm.directory() for _ in range(3))
    quick = "".join(f"sleep 0.2; echo {number} $(hostname) >> done\n" for number in range(8))
    of_told = submit(slurm, told, quick + LONG + "echo end >> end #batch after=long\n", "-N2", "--time=5")
    first = "sleep 25; echo >> first #batch name=first\n"
    rest = "echo >> long #batch after=first time_limit=70s name=long\n"
    of_done = submit(slurm, done, first + rest, "-N1", "--time=2", cpus=1)
    short = "".join(f"echo {number} >> began; sleep 0.7; echo {number} >> done\n" for number in range(50))
    of_cut = submit(slurm, cut, short, "-N1", "--time=1", cpus=1)
    wait = slurm.start("mpi-runtime", "batch", "wait", "jobs", cwd=told)
    it_is_told_to_end(slurm, told, of_told)
    assert "10 of 10 done" in wait.finish().expect(0).stderr, "it has waited for the second life, too"
    it_is_queued_again_at_once(done, slurm.wait_for_requeued(of_done).expect().stdout)
    short_commands_are_not_done_again(cut, slurm.wait_for_requeued(of_cut).stdout)


def submit(slurm: Cluster, folder: Path, commands: str, *options: str, cpus: int = 2) -> str:
    (folder / "jobs.txt").write_text(commands)
    words = ["submit", "--batch", "jobs.txt", f"--cpus-per-node={cpus}", "--requeue", *options]
    return slurm.run("mpi-runtime", *words, cwd=folder).stdout.strip()


def it_is_told_to_end(slurm: Cluster, folder: Path, job: str) -> None:
    assert slurm.facts(job)["JobName"] == "batch-jobs"
    slurm.wait_until_running(job)
    wait_until(lambda: (folder / "begun").exists() and len(lines(folder, "done")) == 8, 60, "the first commands")

    def seen() -> str:
        return slurm.run("mpi-runtime", "batch", "status", "jobs", cwd=folder).stdout

    assert "jobs: run by n" in seen(), "from the login host, on which it does not run"
    wait_until(lambda: "8 of 10 done, 1 running, 1 waiting" in seen(), 60, "the ends in the journal")
    assert not (folder / "again").exists()
    (folder / "again").touch()
    slurm.run("scancel", "--batch", "--signal=URG", job)
    ended = slurm.wait_for_requeued(job).expect()
    assert "SIGTERM or the end of the job's time: ending what runs" in ended.stdout
    assert "8 commands were done by earlier runs" in ended.stdout
    assert "10 of 10 done, 8 of them before" in ended.stdout
    assert "interrupted" not in ended.stdout, "only by the requeue, which is no Ctrl-C"
    done = Counter(line.split()[0] for line in lines(folder, "done"))
    assert done == {str(number): 1 for number in range(8)}
    assert len({line.split()[1] for line in lines(folder, "done")}) == 2, "on both nodes"
    assert len(lines(folder, "long")) == len(lines(folder, "end")) == 1


def it_is_queued_again_at_once(folder: Path, said: str) -> None:
    """What is left may take 75 seconds. Commands end within 95 of 120, and after the first fewer are left of these."""
    assert "nothing that is left can end before the job does" in said
    assert "told to end" not in said, "it did not wait for the end of its time"
    assert "2 of 2 done, 1 of them before" in said
    assert len(lines(folder, "first")) == len(lines(folder, "long")) == 1


def short_commands_are_not_done_again(folder: Path, said: str) -> None:
    """At the drain those that run may end, and none begins."""
    assert "50 of 50 done" in said
    assert "SIGTERM or the end of the job's time" in said
    repeated = len(lines(folder, "began")) - 50
    print(f"{repeated} commands were begun again")
    assert repeated <= 1
    assert Counter(lines(folder, "done")) == {str(number): 1 for number in range(50)}


@pytest.mark.timeout(240)
def test_a_requeued_batch_keeps_what_has_failed_and_a_late_job_has_nothing_to_do(slurm: Cluster) -> None:
    """Also with --fresh, which Slurm repeats. When the batch is finished its job does not begin it again."""
    folder = slurm.directory()
    text = "echo a >> log; exit 1 #batch name=a on_failure=continue\necho b >> log #batch name=b after=a\n"
    text += f"echo c >> log; {LONG.replace('name=long', 'name=c after=b')}echo d >> log #batch name=d after=c\n"
    job = submit(slurm, folder, text, "-N1", "--time=5", "--", "--fresh")
    wait_until((folder / "begun").exists, 60, "the long command")
    (folder / "again").touch()
    slurm.run("scancel", "--batch", "--signal=URG", job)
    said = slurm.wait_for_requeued(job).expect("FAILED", "1:0").stdout
    assert "1 command failed in earlier runs" in said
    assert "3 of 4 done, 1 of them before, 1 failed" in said
    assert lines(folder, "log") == ["a", "b", "c", "c", "d"]
    slurm.run("scontrol", "requeue", job)
    slurm.wait_for_output(job, "so the job has nothing to do")
    slurm.wait(job).expect("FAILED", "1:0")
    assert lines(folder, "log") == ["a", "b", "c", "c", "d"]
    slurm.run("mpi-runtime", "batch", "jobs.txt", cwd=folder, code=1)
    assert lines(folder, "log")[5:] == ["a", "b", "c", "d"], "the same line begins it again"


def test_signals_of_users_reach_the_program_and_do_not_end_its_script(slurm: Cluster) -> None:
    """By `scancel --batch --signal`: an interrupt is Ctrl-C to a batch; others are for the program's own handlers."""
    folder, other = slurm.directory(), slurm.directory()
    (folder / "jobs.txt").write_text("touch begun; sleep 1000 #batch grace=1s\n")
    words = ["mpi-runtime", "submit", "-N", "2", "--cpus-per-node=1", "--time=5"]
    batch = slurm.run(*words, "--requeue", "--batch", "jobs.txt", cwd=folder).stdout.strip()
    (other / "app.py").write_text(HANDLES)
    app = slurm.run(*words, "app.py", cwd=other).stdout.strip()
    wait_until((folder / "begun").exists, 60, "the long command")
    slurm.run("scancel", "--batch", "--signal=INT", batch)
    slurm.wait_for_output(app, "working")
    for signal in ("HUP", "USR2"):
        slurm.run("scancel", "--batch", f"--signal={signal}", app)
        slurm.wait_for_output(app, f"SIG{signal}")
    slurm.run("scancel", "--batch", "--signal=INT", app)
    ended = slurm.wait(batch).expect("FAILED", "130:0")
    assert "interrupted: ending what runs" in ended.stdout
    assert "0 of 1 done, 1 not run" in ended.stdout
    assert ended.facts["Restarts"] == "0", "its user has ended it"
    assert "tasks continue" in slurm.wait(app).expect("FAILED", "130:0").stdout


def test_a_job_is_not_queued_again_for_what_no_such_job_can_do(slurm: Cluster) -> None:
    folder = slurm.directory()
    (folder / "jobs.txt").write_text("true\ntrue #batch time_limit=1h\n")
    words = ["submit", "-N", "1", "--cpus-per-node=1", "--time=2", "--requeue"]
    words += ["-m", "mpi_runtime.batch", "jobs.txt", "--requeue"]  # `--batch` would refuse it
    job = slurm.run("mpi-runtime", *words, cwd=folder).stdout.strip()
    ended = slurm.wait(job)
    assert "have a longer job, or shorter limits" in ended.stdout, ended.stdout
    assert "1 of 2 done, 1 not run" in ended.stdout
    assert slurm.facts(job)["Restarts"] == "0"


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
    assert "-m mpi_runtime.batch jobs.txt --retry-failed" in script
    assert "#SBATCH --job-name=batch-jobs" in script


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []
