"""What a job says of itself, where it says it, and how it is silenced: docs/logging.md."""

import re
import signal
import socket
from pathlib import Path

import pytest

from tests.helpers import ROOT, Completed, run_program, start_program

LOUD = {"MPI_RUNTIME_QUIET": None}
WAYS = [None, pytest.param(3, marks=pytest.mark.mpi)]
"""Numbers of ranks."""
LINE = re.compile(r"\d\d:\d\d:\d\d mpi_runtime: (.*)")


def said(completed: Completed) -> list[str]:
    """The lines on standard error, all of which are of ours."""
    found = [LINE.fullmatch(line) for line in completed.stderr.splitlines()]
    assert all(found), completed.output()
    return [line[1] for line in found if line]


def normal(text: str) -> list[str]:
    """The lines of a run without what differs from run to run."""
    for pattern, instead in (
        (r"\d\d:\d\d:\d\d mpi", "TIME mpi"),
        (re.escape(socket.gethostname()), "node1"),
        (r"pid \d+", "pid N"),
        (r"executor \d+", "executor N"),
        (r"rank [12]\b", "rank N"),
        (r"actor Model [0-9a-f]{32}", "actor Model ID"),
        (r"\d+\.\d s", "N s"),
        (r"[\d.]+ GiB", "N GiB"),
        (r"Open MPI v[\d.]+", "Open MPI VERSION"),
    ):
        text = re.sub(pattern, instead, text)
    return text.splitlines()


@pytest.mark.mpi
def test_the_documented_run_is_what_is_seen() -> None:
    document = (ROOT / "docs" / "logging.md").read_text()
    program, transcript = re.findall(r"```(?:python|text)\n(.*?)```", document, re.DOTALL)[:2]
    completed = run_program(program, ranks=3, env=LOUD).expect(0)
    expected = normal(transcript)
    assert normal(completed.stderr) == [line for line in expected if line.startswith("TIME ")]
    assert completed.stdout.splitlines() == [line for line in expected if not line.startswith("TIME ")]


BEGIN = "import logging, os, sys, time\nimport mpi_runtime as ray\n"
CRASH = """
@ray.remote(max_retries=1)
def crash(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), 9)

ray.get(crash.remote(os.path.abspath("crashed")))
"""


@pytest.mark.parametrize("ranks", WAYS)
def test_a_job_says_what_it_has(ranks: int | None) -> None:
    completed = run_program(f"{BEGIN}ray.init(num_cpus=3, num_gpus=2, memory=2**30)", ranks=ranks, env=LOUD).expect(0)
    (line,) = said(completed)
    host = socket.gethostname()
    has = f"on 1 host ({host}): 3 CPUs, 2 GPUs, 1.0 GiB of memory; "
    assert line.startswith(f"{ranks or 1} rank{'s' if ranks else ''} {has}")
    assert line.endswith("Open MPI v5.0.11" if ranks else "without MPI") or "MPI" in line.rpartition("; ")[2]


@pytest.mark.parametrize(
    ("before", "env", "lines"),
    [
        ("ray.init(num_cpus=1)", LOUD, 2),
        ("ray.init(num_cpus=1, quiet=True)", LOUD, 1),
        ("ray.init(num_cpus=1)", {"MPI_RUNTIME_QUIET": "1"}, 1),
        ("logging.getLogger('mpi_runtime').setLevel(logging.WARNING); ray.init(num_cpus=1)", LOUD, 1),
        ("logging.getLogger('mpi_runtime').setLevel(logging.ERROR); ray.init(num_cpus=1)", LOUD, 0),
        ("logging.disable(logging.WARNING); ray.init(num_cpus=1)", LOUD, 0),
        ("logging.getLogger('mpi_runtime').addHandler(logging.NullHandler()); ray.init(num_cpus=1)", LOUD, 0),
        ("logging.basicConfig(stream=open(os.devnull, 'w')); ray.init(num_cpus=1)", LOUD, 0),
    ],
)
def test_what_silences_it(before: str, env: dict[str, str | None], lines: int) -> None:
    """The start is INFO, the crash is WARNING."""
    found = said(run_program(BEGIN + before + CRASH, env=env).expect(0))
    assert len(found) == lines
    assert lines == 0 or "crash is run again (1 of 1 retries left)" in found[-1]
    assert lines == 0 or "was killed by signal 9" in found[-1]


@pytest.mark.parametrize("ranks", WAYS)
def test_a_handler_of_the_program_gets_all_and_nothing_else_is_written(ranks: int | None) -> None:
    source = f"""{BEGIN}
class Show(logging.Handler):
    def emit(self, record):
        age = abs(record.created - time.time())
        print(record.name, record.levelname, record.event, record.rank, record.host, age < 30, record.getMessage())

logging.getLogger("mpi_runtime").setLevel(logging.INFO)
logging.getLogger("mpi_runtime").addHandler(Show())
for job in range(2):  # under MPI the second has the same head
    ray.init(num_cpus=1, waiting_line_s=0.5)
    {CRASH.strip().replace(chr(10), chr(10) + "    ")}
    os.unlink("crashed")
    ray.get(ray.remote(time.sleep).remote(1.2))
    ray.shutdown()
"""
    completed = run_program(source, ranks=ranks, env=LOUD).expect(0)
    assert completed.stderr == ""
    host = socket.gethostname()
    lines = [line for line in completed.stdout.splitlines() if "waiting for crash" not in line]  # a slow machine
    assert len(lines) == 6, completed.output()
    for start, crash, waiting in (lines[:3], lines[3:]):
        assert start.startswith(f"mpi_runtime INFO start 0 {host} True {ranks or 1} rank")
        where = r"[12]" if ranks else "0"
        assert re.match(rf"mpi_runtime WARNING crash {where} {re.escape(host)} True crash is run again", crash)
        assert waiting.startswith(f"mpi_runtime INFO waiting 0 {host} True waiting for sleep for ")


@pytest.mark.parametrize("handler", [False, True])
def test_lines_come_while_the_program_computes(handler: bool) -> None:
    """The main thread never waits for anything of ours: it looks at what was written, or at what its handler got."""
    source = f"""{BEGIN}
records = []
class Keep(logging.Handler):
    def emit(self, record):
        records.append(record)

if {handler}:
    logging.getLogger("mpi_runtime").addHandler(Keep())
os.dup2(os.open("errors", os.O_RDWR | os.O_CREAT), 2)
ray.init(num_cpus=1)

@ray.remote(max_retries=1)
def crash():
    if ray.get_runtime_context().get_worker_id() == f"{{1:032x}}":
        os._exit(1)

ref = crash.remote()
end = time.monotonic() + 30
while not (records if {handler} else "run again" in open("errors").read()):
    assert time.monotonic() < end
    sum(range(1000))
ray.get(ref)
print(open("errors").read() if {handler} else "")
"""
    assert run_program(source, env=LOUD).expect(0).stdout == "\n"


def test_a_wait_in_vain_says_for_what_with_growing_pauses() -> None:
    source = f"""{BEGIN}
ray.init(num_cpus=1, waiting_line_s=0.5)

@ray.remote
def busy():
    time.sleep(4.2)

@ray.remote
def next_one():
    pass

@ray.remote
def items():
    time.sleep(1)
    yield 1

first, second = busy.remote(), next_one.remote()
ray.get([second, first])
ray.wait([ray.remote(time.sleep).remote(0.9)])
list(items.remote())
try:
    ray.get(ray.remote(time.sleep).remote(2), timeout=0.2)
except ray.errors.GetTimeoutError:
    pass
"""
    lines = [line for line in said(run_program(source, env=LOUD).expect(0)) if line.startswith("waiting")]
    seconds = [float(re.findall(r"for (\d+) s\.", line)[0]) for line in lines]
    first = [line for line in lines if line.startswith("waiting for next_one and 1 other values for ")]
    assert 2 <= len(first) <= 4, lines  # after 0.5, 1.5 and 3.5 seconds; 7.5 if the executor starts late
    assert all(". next_one: It needs 1 CPU" in line or "behind busy" in line for line in first), lines
    pauses = [later - sooner for sooner, later in zip([0, *seconds], seconds[: len(first)], strict=False)]
    assert pauses == sorted(pauses), lines
    assert list(dict.fromkeys(line.split()[2] for line in lines[len(first) :])) == ["sleep", "items"], lines


UNREAD = f"""{BEGIN}
ray.init(num_cpus=1)

@ray.remote(max_retries=0)
def fail(what):
    if what == "crash":
        os._exit(1)
    raise ValueError(what)

@ray.remote
class Actor:
    def __init__(self, fails=False):
        if fails:
            raise KeyError("in the constructor")

    def fail(self):
        raise ValueError("of a method")

    def wait(self):
        time.sleep(30)

@ray.remote
def use(value):
    pass

def settle():
    ray.get(use.remote(1))
    time.sleep(0.2)

fail.remote("dropped at once")
ref = fail.remote("dropped when it was there")
ray.wait([ref])
del ref
settle()
fail.remote("crash")
settle()
actor = Actor.remote()
actor.fail.remote()
ray.wait([Actor.remote(True).fail.remote()])
use.remote(fail.remote("passed on"))
a, b = fail.options(num_returns=2).remote("for two")
ray.wait([a])
del a
settle()
print("so far", file=sys.stderr, flush=True)
del b
settle()
# What is read, or expected, is no news.
for ref in [fail.remote("read"), use.remote(fail.remote("read")), *fail.options(num_returns=2).remote("read")[:1]]:
    try:
        ray.get(ref)
    except ValueError:
        pass
del ref
ref = ray.remote(time.sleep).remote(30)
ray.cancel(ref)
ray.wait([ref])
del ref
actor.wait.remote()
ray.kill(actor)
settle()
"""


@pytest.mark.parametrize("ranks", WAYS)
def test_errors_that_nobody_reads_are_told(ranks: int | None) -> None:
    completed = run_program(UNREAD, ranks=ranks, env={"MPI_RUNTIME_QUIET": "1"}).expect(0)
    before, _, after = completed.stderr.partition("so far\n")
    found = [line.partition("unhandled error of ")[2] for line in before.splitlines()]
    nobody = "for which nobody has called get():"
    hint = " (MPI_RUNTIME_IGNORE_UNHANDLED_ERRORS=1 silences such lines)"
    assert found[:2] == [
        f"fail(), {nobody} ValueError: dropped at once{hint}.",
        f"fail(), {nobody} ValueError: dropped when it was there.",
    ]
    assert found[2].startswith(f"fail(), {nobody} WorkerCrashedError: fail did not end: its executor (pid ")
    assert sorted(found[3:]) == [
        f"Actor(), {nobody} KeyError: 'in the constructor'.",
        f"Actor.fail(), {nobody} ValueError: of a method.",
        f"fail(), {nobody} ValueError: passed on.",
    ]
    assert after.splitlines() == [
        line for line in after.splitlines() if f"fail(), {nobody} ValueError: for two." in line
    ], "said when the second reference is gone, and nothing else is said"
    assert len(after.splitlines()) == 1
    again = run_program(UNREAD, env={"MPI_RUNTIME_IGNORE_UNHANDLED_ERRORS": "1"}, ranks=ranks).expect(0)
    assert again.stderr == "so far\n"


def test_a_forked_child_does_not_keep_the_job_from_ending() -> None:
    """It has the socket on which lines come, too."""
    source = f"""{BEGIN}
import warnings
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
ray.init(num_cpus=1)
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
if not os.fork():
    time.sleep(1)
    os._exit(0)
ray.shutdown()
print("down", flush=True)
os.wait()
"""
    completed = run_program(source, env=LOUD).expect(0)
    assert completed.stdout.splitlines()[-1] == "down"
    assert completed.stderr == ""


def test_a_driver_with_a_handler_may_be_killed() -> None:
    source = f"""{BEGIN}
logging.basicConfig(level=logging.INFO)
ray.init(num_cpus=1)
ray.get(ray.remote(time.sleep).remote(60))
"""
    with start_program(source, env=LOUD) as program:
        program.wait_for_line("of memory")
        program.signal(signal.SIGKILL)
        assert program.finish(timeout=20).returncode == -signal.SIGKILL


def test_the_page_names_all_events() -> None:
    page = Path(ROOT / "docs" / "logging.md").read_text()
    from mpi_runtime.scheduler.protocol import effects
    from mpi_runtime.show import log

    named = {log.START, log.UNUSED, log.TOTALS, log.WAITING, log.REPORT, log.EXPERIMENT, log.JOURNAL, log.END}
    named |= {effects.GPU, effects.QUARANTINE, effects.LATE, effects.CRASH, effects.RESTARTED}
    named |= {effects.UNHANDLED, effects.REFUSED, effects.IGNORED, effects.MEMORY, effects.RANK_LOST}
    assert set(re.findall(r"^\| `(\w+)` \| [A-Z, ]+ \|", page, re.MULTILINE)) == named
