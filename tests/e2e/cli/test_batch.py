"""`mpi-runtime batch`: files and streams of commands, on one machine and on ranks, from the check to the exit code."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest

from mpi_runtime.batch.history.batch_history import History, read_history
from mpi_runtime.core.host.mpiexec import find_launcher
from tests import helpers

ROOT = helpers.ROOT


def run_verb(*words: str, **options: object) -> helpers.Completed:
    program = helpers.start_command([sys.executable, "-m", "mpi_runtime", *words], **options)  # type: ignore[arg-type]
    with program:
        return program.finish()


def run_batch(*words: str, **options: object) -> helpers.Completed:
    return run_verb("batch", *words, **options)


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_file_of_lines(tmp_path: Path) -> None:
    file = written(
        tmp_path / "jobs.txt", "# comment\necho one #batch name=one\ncat out/one.out #batch after=one name=two\n"
    )
    done = run_batch(file, "--directory", str(tmp_path / "out"), "--stdin", "/dev/null").expect(1)
    assert "failed: two: exit code 1" in done.stderr
    done = run_batch(file, "--directory", str(tmp_path / "out"), "--cwd", str(tmp_path), "--num-cpus", "1").expect(0)
    assert (tmp_path / "out" / "two.out").read_text() == "one\n"
    assert "2 of 2 done; " in done.stderr
    assert done.stdout == ""


def test_a_file_that_several_commands_name_is_appended_to(tmp_path: Path) -> None:
    """So nothing is lost, within a run and after it; a file of one command begins anew each time."""
    text = """
        [[task]]
        name = "array"
        command = "echo {i}; echo own {i} >&2; test {i} != 3 || test -e mended"
        product = {i = [0, 1, 2, 3]}
        stdout = "all.log"
        [[task]]
        name = "last"
        command = "echo last"
        stderr = "all.log"
        stdout = "last.log"
        after = ["array"]
    """
    words = [written(tmp_path / "jobs.toml", text), "--directory", "out"]
    run_batch(*words, cwd=tmp_path).expect(1)
    expected = sorted([*"0123", *(f"own {i}" for i in range(4))])
    assert sorted((tmp_path / "all.log").read_text().splitlines()) == expected
    (tmp_path / "mended").touch()
    for times in (1, 2):
        run_batch(*words, *(["--only", "last"] if times > 1 else []), cwd=tmp_path).expect(0)
        assert sorted((tmp_path / "all.log").read_text().splitlines()) == sorted([*expected, "3", "own 3"])
        assert (tmp_path / "last.log").read_text() == "last\n"


def test_files_of_other_editors_and_commands_that_are_too_long(tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_text("echo one\r\necho two\r\n", encoding="utf-8-sig")
    run_batch("jobs.txt", cwd=tmp_path).expect(0)
    assert (tmp_path / "batch-jobs" / "line-1.out").read_text() == "one\n"
    long = "false " + "x" * 131_000
    written(tmp_path / "long.txt", f"true\n{long}\n{long}{long}\n")
    refused = run_batch("long.txt", cwd=tmp_path).expect(2).stderr
    assert "long.txt:3:1: command has 262012 bytes, and the kernel takes 131071 for a shell" in refused
    written(tmp_path / "long.txt", f"true\n{long}\n")
    said = run_batch("long.txt", cwd=tmp_path).expect(1).stderr
    assert "failed: line-2: exit code 1" in said
    assert "x ... (131006 letters)" in said
    assert len(said) < 5000


def test_the_report_has_what_failed_and_its_tail(tmp_path: Path) -> None:
    text = """
        [[task]]
        name = "array"
        command = "echo line {i}; exit {i}"
        product = {i = [0, 1]}
        [[task]]
        name = "never"
        command = "touch never"
        after = ["array"]
        [[task]]
        name = "goes-on"
        command = "echo last words; exit 7"
        on_failure = "continue"
        [[task]]
        name = "after-all"
        command = "true"
        after = ["goes-on"]
    """
    done = run_batch(written(tmp_path / "jobs.toml", text), "--directory", str(tmp_path / "out")).expect(1)
    assert "--- array.1: exit code 1\n    echo line 1; exit 1\n" in done.stderr
    assert "    | line 1\n" in done.stderr
    assert "    | last words\n" in done.stderr
    assert "2 of 5 done, 2 failed, 1 skipped; " in done.stderr
    assert not (tmp_path / "out" / "never.out").exists()
    assert (tmp_path / "out" / "after-all.out").exists()


def test_the_end_shows_failures_by_kind_and_the_lines_that_show_them_and_run_them_again(tmp_path: Path) -> None:
    lines = [
        *["echo no; exit 3"] * 5,
        *["nowhere-to-be-found"] * 2,
        "kill -9 $$",
        *["sleep 60 #batch time_limit=0.2s"] * 2,
    ]
    file = written(tmp_path / "jobs.txt", "\n".join(lines))
    done = run_batch(file, "--fresh", "--num-cpus", "0.1", cwd=tmp_path).expect(1)
    shown = [line for line in done.stderr.splitlines() if line.startswith("---")]
    kinds = {re.sub(r"line-\d+", "LINE", line) for line in shown[:-1]}
    assert kinds == {
        "--- LINE: exit code 3; 4 more: LINE, LINE, LINE and 1 more",
        "--- LINE: exit code 127 (a program was not found); 1 more: LINE",
        "--- LINE: ended by SIGKILL",
        "--- LINE: it ran longer than its time limit of 0.2 s; 1 more: LINE",
    }
    assert done.stderr.count("    | no\n") == 1, "one example of each"
    [log] = re.findall(r"--- each output: mpi-runtime (batch log batch-jobs line-\d+)\n", done.stderr)
    run_verb(*log.split(), cwd=tmp_path).expect(0)
    [again] = re.findall(r"    run them again: mpi-runtime batch (.*)\n", done.stderr)
    assert again.split() == [file, "--num-cpus", "0.1", "--retry-failed"]
    (tmp_path / "nowhere-to-be-found").symlink_to("/bin/true")
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert "2 of 10 done, 8 failed" in run_batch(*again.split(), cwd=tmp_path, env=path).expect(1).stderr


def test_stop_ends_what_runs(tmp_path: Path) -> None:
    text = f"""
        [[task]]
        name = "long"
        command = "touch {tmp_path}/begun; sleep 1000"
        num_cpus = 0
        [[task]]
        name = "bad"
        command = "while [ ! -e {tmp_path}/begun ]; do sleep 0.02; done; exit 1"
        on_failure = "stop"
        [[task]]
        name = "more"
        command = "true"
        after = ["bad", "long"]
    """
    done = run_batch(written(tmp_path / "jobs.toml", text), "--directory", str(tmp_path / "out")).expect(1)
    assert "stopped: bad failed" in done.stderr
    assert "0 of 3 done, 1 failed, 2 skipped; " in done.stderr


def test_many_failures_stop_it(tmp_path: Path) -> None:
    file = written(tmp_path / "jobs.txt", "false\n" * 200)  # ends are gathered for up to 50 ms, so some more still run
    words = [file, "--directory", str(tmp_path / "out"), "--max-failures"]
    done = run_batch(*words, "3", env={"MPI_RUNTIME_NUM_CPUS": "1"}).expect(1)
    assert "stopped: 4 have failed, which is more than --max-failures" in done.stderr
    counts = re.search(r"0 of 200 done, (\d+) failed, (\d+) skipped", done.stderr)
    assert counts is not None, done.output()
    assert 4 <= int(counts[1]) < 200, "those whose end had come already"
    assert " 0 failed" not in done.stderr, "the job below has no other count"
    assert "200 failed" in run_batch(*words, "200").expect(1).stderr
    refused = run_batch(file, env={"MPI_RUNTIME_RESOURCES": "ssd"}).expect(2).stderr
    assert refused.startswith("mpi-runtime batch: the variable MPI_RUNTIME_RESOURCES must be like licence=3"), refused
    assert "--max-failures must be 0 or more" in run_batch(*words, "-1").expect(2).stderr


def test_everything_wrong_is_said_before_anything_starts(tmp_path: Path) -> None:
    text = f"touch {tmp_path}/started\ntrue #batch after=nobody\ntrue #batch num_cpu=1\n"
    file = written(tmp_path / "jobs.txt", text)
    done = run_batch(file, "--directory", str(tmp_path / "out")).expect(2)
    assert f"{file}:2:13: there is no command or array 'nobody'" in done.stderr
    assert f"{file}:3:13: there is no key 'num_cpu'; did you mean 'num_cpus'?" in done.stderr
    assert "2 problems; nothing was started" in done.stderr
    file = written(tmp_path / "jobs.txt", f"touch {tmp_path}/started\ntrue #batch num_cpus=100000\n")
    done = run_batch(file, "--directory", str(tmp_path / "out")).expect(2)
    assert f"{file}:2:1: line-2: can never run: it needs CPU 100000, and no node has more than CPU " in done.stderr
    assert not (tmp_path / "started").exists()
    assert "--retries must be 0 or more" in run_batch(file, "--retries=-1").expect(2).stderr
    assert "cannot be read" in run_batch(str(tmp_path / "nothing")).expect(2).stderr


def test_check_shows_the_graph_and_starts_nothing(tmp_path: Path) -> None:
    text = f"""
        [[task]]
        name = "a"
        command = "touch {tmp_path}/started {{i}}"
        product = {{i = {{range = [3]}}}}
        time_limit = "1m"
        [[task]]
        command = "true"
        after = ["a"]
    """
    done = run_batch(written(tmp_path / "jobs.toml", text), "--check").expect(0)
    assert done.stdout.splitlines() == [
        f"a (3): 1 CPU, 60 s: touch {tmp_path}/started 0",
        "task-2: 1 CPU, after a: true",
        "4 commands",
    ]
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("ranks", [(), pytest.param(("-n", "2"), marks=pytest.mark.mpi)])
def test_a_stream_is_run_while_it_grows(tmp_path: Path, ranks: tuple[str, ...]) -> None:
    """The second line is written when the first command has run."""
    fifo = tmp_path / "lines"
    os.mkfifo(fifo)
    words = [sys.executable, "-m", "mpi_runtime", "batch", *ranks, "-", "--directory", str(tmp_path / "out")]
    program = helpers.start_command(["/bin/sh", "-c", f"exec {shlex.join(words)} < {fifo}"])
    with program, open(os.open(fifo, os.O_RDWR), "w") as lines:  # for both, so that opening it waits for nobody
        print(
            json.dumps({"command": f"touch {tmp_path}/{{i}}", "name": "t", "product": {"i": [1, 2]}}),
            file=lines,
            flush=True,
        )
        helpers.wait_until(lambda: (tmp_path / "1").exists() and (tmp_path / "2").exists(), 60)
        print(json.dumps({"command": f"touch {tmp_path}/3", "after": ["t"]}), file=lines, flush=True)
        print(json.dumps({"command": "true", "after": ["nobody"]}), file=lines, flush=True)
        helpers.wait_until((tmp_path / "3").exists, 60)
        lines.close()
        done = program.finish().expect(1)
    assert "-:3:21: there is no command or array 'nobody'; there are: line-3, t.0, t.1, t, line-2\n" in done.stderr
    assert "3 of 3 done; " in done.stderr
    assert "lines refused: 1" in done.stderr


def test_ctrl_c_ends_what_runs_and_reports(tmp_path: Path) -> None:
    file = written(tmp_path / "jobs.txt", f"touch {tmp_path}/begun; sleep 1000\ntrue #batch after=line-1\n")
    words = [sys.executable, "-m", "mpi_runtime", "batch", file, "--directory", str(tmp_path / "out")]
    with helpers.start_command(words) as program:
        helpers.wait_until((tmp_path / "begun").exists, 60)
        program.signal(signal.SIGINT)
        done = program.finish().expect(130)
    assert "interrupted: ending what runs" in done.stderr
    assert "0 of 2 done, 2 not run; " in done.stderr


@pytest.mark.mpi
def test_ends_are_written_down_and_ctrl_c_is_heard_while_a_long_list_is_submitted(tmp_path: Path) -> None:
    file = written(tmp_path / "jobs.txt", "true\n" * 60_000)
    words = [sys.executable, "-m", "mpi_runtime", "batch", file, "--directory", str(tmp_path / "out")]
    with helpers.start_command(words, env={"MPI_RUNTIME_NUM_CPUS": "1"}) as program:

        def history() -> History | None:
            with contextlib.suppress(OSError):
                found = read_history(str(tmp_path / "out"))
                return found if found.ends else None
            return None

        found = helpers.wait_until(history, 60)
        assert found is not None
        assert len(found.ends) + len(found.began) < 60_000, "not all were handed over yet"
        program.process.send_signal(signal.SIGINT)
        done = program.finish(timeout=60).expect(130)
    assert "interrupted: ending what runs" in done.stderr
    assert re.search(r"\d+ of 60000 done, (\d+ failed, )?\d+ not run", done.stderr), done.output()


def test_it_starts_ranks_or_is_started_on_them(tmp_path: Path) -> None:
    file = written(
        tmp_path / "jobs.jsonl", json.dumps({"command": "echo {i}", "name": "n", "product": {"i": {"range": [6]}}})
    )
    verb = [sys.executable, "-m", "mpi_runtime", "batch"]
    mpirun = shutil.which("mpirun", path=os.path.dirname(sys.executable)) or "mpirun"
    for number, words in enumerate(([*verb, "-n", "2"], [mpirun, "-n", "2", *verb])):
        directory = tmp_path / str(number)
        with helpers.start_command([*words, file, "--directory", str(directory)]) as program:
            done = program.finish().expect(0)
        assert done.stderr.count("6 of 6 done; ") == 1
        assert sorted(path.read_text() for path in directory.glob("*.out")) == [f"{number}\n" for number in range(6)]
        wrong = written(tmp_path / "wrong.txt", "true #batch nonsense\n")
        with helpers.start_command([*words, wrong]) as program:
            done = program.finish()
        assert done.returncode != 0
        assert done.stderr.count("options are name=value with blanks between") == 1


def test_the_sweep_of_the_examples(tmp_path: Path) -> None:
    file = shutil.copy(ROOT / "examples" / "sweep.toml", tmp_path)
    words = [sys.executable, "-m", "mpi_runtime", "batch", file]
    with helpers.start_command(words, cwd=tmp_path) as program:
        program.finish().expect(0)
    assert (tmp_path / "batch-sweep" / "collect.out").read_text().strip() == "8"
    assert len((tmp_path / "sweep.txt").read_text().splitlines()) == 8


def test_a_second_interrupt_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    text = "trap '' TERM; touch begun; while :; do sleep 0.1; done #batch grace=100\n"
    words = [sys.executable, "-m", "mpi_runtime", "batch", written(tmp_path / "jobs.txt", text)]
    with helpers.start_command(words, cwd=tmp_path) as program:
        helpers.wait_until((tmp_path / "begun").exists, 60)
        program.signal(signal.SIGINT)
        helpers.wait_until(lambda: "Ctrl-C once more ends at once" in program.stderr, 30)
        program.signal(signal.SIGINT)
        done = program.finish(30).expect(130)
    assert "interrupted again: running commands are killed" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_files_of_one_name_do_not_share_a_directory(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        written(tmp_path / name / "jobs.txt", f"echo {name}\n")
    run_batch("a/jobs.txt", cwd=tmp_path).expect(0)
    for more in ([], ["--fresh"]):
        refused = run_batch("b/jobs.txt", *more, cwd=tmp_path).expect(2).stderr
        assert (
            "batch-jobs has the journal and the outputs of another file, a/jobs.txt. Name another directory" in refused
        )
    assert (tmp_path / "batch-jobs" / "line-1.out").read_text() == "a\n"
    run_batch("a/jobs.txt", "--fresh", cwd=tmp_path).expect(0)
    run_batch("b/jobs.txt", "--directory", "other", cwd=tmp_path).expect(0)
    assert (tmp_path / "other" / "line-1.out").read_text() == "b\n"


def test_a_command_can_start_mpi_on_its_host(tmp_path: Path) -> None:
    text = "env | grep -E '^SLURM_' | sort\n"
    variables = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_NODELIST": "n[1-2]",
        "SLURM_NTASKS": "4",
        "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_CLUSTER_NAME": "c",
        "SLURM_JOB_END_TIME": "9999999999",
    }
    run_batch(written(tmp_path / "jobs.txt", text), cwd=tmp_path, env=variables).expect(0)
    assert (tmp_path / "batch-jobs" / "line-1.out").read_text() == (
        "SLURM_CLUSTER_NAME=c\nSLURM_JOB_END_TIME=9999999999\nSLURM_JOB_ID=7\n"
    )


def test_a_check_is_for_the_nodes_that_are_stated(tmp_path: Path) -> None:
    """By options, else by the profile, else inside a job by this host. Elsewhere what does not fit gets a note."""
    text = "train #batch num_gpus=2 num_cpus=2 memory=3GB time_limit=1h\n"
    words = [written(tmp_path / "jobs.txt", text), "--check"]
    env: dict[str, str] = {"MPI_RUNTIME_PROFILES": str(tmp_path / "slurm.toml"), "MPI_RUNTIME_NUM_CPUS": "2"}
    here = run_batch(*words, cwd=tmp_path, env=env).expect(0)
    assert "jobs.txt:1:1: note: line-1: can never run: it needs CPU 2, GPU 2" in here.stderr
    assert "this host was checked; for the nodes of a job add --nodes N --cpus-per-node N" in here.stderr
    assert here.stdout.startswith("line-1: 2 CPU, 2 GPU, 2.79 GiB of memory, 3600 s: train\n")
    job = {**env, "PBS_JOBID": "5.head"}
    assert "can never run" in run_batch(*words, cwd=tmp_path, env=job).expect(2).stderr
    large = ["--nodes", "4", "--cpus-per-node", "64", "--gpus-per-node", "a100:4", "--memory-per-node", "64G"]
    assert run_batch(*words, *large, cwd=tmp_path, env=env).expect(0).stderr == ""
    small = run_batch(*words, "--cpus-per-node", "64", "--gpus-per-node", "1", cwd=tmp_path, env=env).expect(2)
    assert "and no node has more than GPU 1" in small.stderr
    written(
        tmp_path / "slurm.toml", "[default]\ngpus_per_node = 2\ncpus_per_node = 8\ntime = '30'\n[big]\ntime='2:00:00'"
    )
    assert "can never end: it may take 1 h 00 min" in run_batch(*words, cwd=tmp_path, env=env).expect(2).stderr
    assert run_batch(*words, "--profile", "big", cwd=tmp_path, env=env).expect(0).stderr == ""
    assert "no profile 'bg'" in run_batch(*words, "--profile", "bg", cwd=tmp_path, env=env).expect(2).stderr
    refused = run_batch(words[0], "--nodes", "2", cwd=tmp_path, env=env).expect(2)
    assert "--nodes is for --check" in refused.stderr
    refused = run_batch(words[0], "--gpus-per-node", "a100:2", cwd=tmp_path, env=env).expect(2)
    assert "--gpus-per-node must be a number, not 'a100:2'; a type is for --check" in refused.stderr


def test_words_that_are_nearly_right_get_a_hint(tmp_path: Path) -> None:
    run_batch(written(tmp_path / "jobs.txt", "true\n"), cwd=tmp_path).expect(0)
    for words, hint in (
        (("batch", "statsu", "jobs"), "did you mean `mpi-runtime batch status`?"),
        (("batch", "log", "jobs", "line-9"), "there is no command 'line-9'; did you mean 'line-1'?"),
        (("whatif", "jbos"), "there is no batch 'jbos' here"),
    ):
        assert hint in run_verb(*words, cwd=tmp_path).expect(2).stderr
    run_verb("whatif", "jobs", cwd=tmp_path).expect(0)


@pytest.mark.mpi
def test_mpirun_in_a_command_of_a_slurm_job_stays_on_its_host(tmp_path: Path) -> None:
    """With the variables of the job it would start its ranks on other nodes."""
    launcher = find_launcher("openmpi")
    assert launcher is not None
    command = f"{launcher.path} -n 2 sh -c 'echo rank $OMPI_COMM_WORLD_RANK' #batch num_cpus=2 time_limit=60\n"
    variables = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOBID": "7",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NNODES": "2",
        "SLURM_TASKS_PER_NODE": "1(x2)",
    }
    run_batch(written(tmp_path / "jobs.txt", command), cwd=tmp_path, env=variables).expect(0)
    assert sorted((tmp_path / "batch-jobs" / "line-1.out").read_text().splitlines()) == ["rank 0", "rank 1"]
