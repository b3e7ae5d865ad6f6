"""The live page of `mpi-runtime view`, in a real browser: a job that runs, fails, ends, or is killed."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mpi_runtime.cli.view import leading_to
from tests import helpers
from tests.browser import Browser, needs_browser
from tests.unit.show.test_training import result

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

JOB = """
import os, sys, time
import mpi_runtime as ray

@ray.remote
def work(gate):
    print("<b>hello</b>", flush=True)
    while not os.path.exists(gate):
        time.sleep(0.02)

@ray.remote
def wrong(n):
    raise ValueError(f"wrong <img src=x onerror=alert({n})>")

@ray.remote
class Counter:
    def wait(self, gate):
        while not os.path.exists(gate):
            time.sleep(0.02)

with ray.init(num_cpus=2):
    gate = sys.argv[1]
    counter = Counter.options(name="the-counter").remote()
    refs = [counter.wait.remote(gate), *(wrong.remote(n) for n in range(3))]
    ray.wait(refs[1:], num_returns=3)
    refs += [work.remote(gate) for _ in range(4)]
    print("up", flush=True)
    ray.wait(refs, num_returns=len(refs))
"""


@contextmanager
def viewed(*words: str) -> Iterator[tuple[helpers.Program, str]]:
    """The server, and its address."""
    command = [sys.executable, "-m", "mpi_runtime", "view", "--no-browser", *words]
    with helpers.start_command(command) as server:
        helpers.wait_until(lambda: "ssh -L" in server.stdout, 60, "the address")
        yield server, server.stdout.splitlines()[0]
        with suppress(ProcessLookupError):  # the test has ended it
            server.signal(signal.SIGINT)
        server.finish()


def request(address: str, path: str = "", token: str | None = None, host: str | None = None) -> tuple[int, str]:
    place = urlsplit(address)
    assert place.hostname == "127.0.0.1"
    assert place.port is not None
    own = place.query.partition("token=")[2]
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    connection.request(
        "GET", f"/{path}?token={own if token is None else token}", headers={"Host": host or place.netloc}
    )
    found = connection.getresponse()
    text = found.read().decode()
    connection.close()
    return found.status, text


@needs_browser
def test_a_job_that_fails_and_ends(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with helpers.start_program(JOB, str(gate)) as program:
        program.wait_for_line("up")
        with viewed(str(program.pid)) as (server, address), Browser(tmp_path) as browser:
            browser.open(address)
            browser.wait_for("document.title.endsWith(': running')")
            browser.wait_for("document.querySelectorAll('.answer .big')[2]?.textContent.startsWith('3')")
            browser.run("document.querySelector('#functions [data-id=wrong] .tog').click()")
            browser.wait_for("document.querySelector('#functions .detail .err pre')")
            seen = browser.run("document.querySelector('#functions .detail').innerText")
            assert "wrong <img src=x onerror=alert(" in seen, "as text"
            assert "raise ValueError" in seen
            browser.run("document.querySelector('#functions [data-id=work] .tog').click()")
            browser.wait_for("document.querySelector('#functions').innerText.includes('The oldest waiting call')")
            button = "[...document.querySelectorAll('#functions button')].find(one => one.textContent.startsWith('Stack"
            browser.run(f"{button}')).focus()")
            browser.run("document.activeElement.click()")
            browser.wait_for(f"{button}') && one.textContent.endsWith('again'))")
            runs_for = "document.querySelector('#functions .detail td[data-l=for]').textContent"
            before = browser.run(runs_for)
            browser.wait_for(f"{runs_for} !== {before!r}")
            assert browser.run(f"{button}') && one.textContent.endsWith('again')) === document.activeElement"), (
                "a stack, and the focus, outlive the next second"
            )
            browser.wait_for("document.querySelector('#actors').innerText.includes('the-counter')")
            browser.wait_for("document.querySelector('#output').innerText.includes('<b>hello</b>')")
            assert browser.run("document.querySelectorAll('#functions .tog[aria-expanded=true]').length") == 2, (
                "it stays open"
            )
            for width in (400, 1600):
                browser.resize(width, 900)
                assert browser.run("document.documentElement.scrollWidth") <= width
            gate.touch()
            browser.wait_for("document.title.endsWith(': ended')")
            assert browser.run("document.querySelectorAll('.answer .big')[0].textContent").startswith("9 ")
            browser.wait_for("document.querySelector('#functions .detail .err pre')?.innerText.includes('wrong <img')")
            assert not browser.problems
            program.finish().expect(0)
            server.signal(signal.SIGINT)
            server.finish().expect(130)


@needs_browser
def test_a_job_that_is_killed_and_a_server_that_is_killed(tmp_path: Path) -> None:
    with helpers.start_program(JOB, str(tmp_path / "gate")) as program:
        program.wait_for_line("up")
        with viewed(str(program.pid)) as (server, address), Browser(tmp_path) as browser:
            browser.open(address)
            browser.wait_for("document.title.endsWith(': running')")
            server.signal(signal.SIGSTOP)
            server.signal(signal.SIGCONT)
            os.kill(program.pid, signal.SIGKILL)
            browser.wait_for("document.title.endsWith(': killed')")
            assert "last state" in browser.run("document.querySelector('#banner').innerText")
            assert browser.run("document.querySelectorAll('.answer h2')[0].textContent") == "What was it doing?"
            assert not browser.problems


@needs_browser
def test_the_page_notices_that_its_server_has_ended(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with helpers.start_program(JOB, str(gate)) as program:
        program.wait_for_line("up")
        with viewed(str(program.pid)) as (server, address), Browser(tmp_path) as browser:
            browser.open(address)
            browser.wait_for("document.title.endsWith(': running')")
            server.signal(signal.SIGKILL)
            browser.wait_for("document.querySelector('#banner').innerText.includes('No answer')")
            assert browser.run("document.body.classList.contains('stale')")
            server.finish()
            with viewed(str(program.pid), "--port", str(urlsplit(address).port)):
                browser.wait_for("document.querySelector('#banner').innerText.includes('has another address')")
                assert browser.run("document.body.classList.contains('stale')"), "what it shows is old"
        gate.touch()
        program.finish().expect(0)


def test_who_gets_an_answer(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with helpers.start_program(JOB, str(gate)) as program:
        program.wait_for_line("up")
        with viewed(str(program.pid)) as (_, address):
            port = urlsplit(address).port
            for path in ("", "changes", "detail", "metrics"):
                assert request(address, path, token="wrong")[0] == 403
                assert request(address, path, token="")[0] == 403
                assert request(address, path, host="evil.example")[0] == 403, "DNS may lead any name here"
            status, page = request(address)
            assert (status, "hello" in page) == (200, False)
            assert request(address, host=f"localhost:{port}")[0] == 200
            status, text = request(address, "metrics")
            assert status == 200
            assert 'mpi_runtime_calls_failed_total{function="wrong"} 3' in text
            status, text = request(address, "detail", token=f"{urlsplit(address).query[6:]}&block=functions&id=wrong")
            assert json.loads(text)[0]["errors"][0]["text"].startswith("ValueError: wrong <img")
            helpers.wait_until(lambda: '"head"' in request(address, "changes")[1], 60, "the first look at the job")
            whole = json.loads(request(address, "changes")[1])
            assert whole["head"]["order"] == [one["id"] for one in whole["blocks"]], "no answer stays open"
            own = urlsplit(address).query[6:]
            later = json.loads(request(address, "changes", token=f"{own}&since={whole['number']}")[1])
            assert "output" not in [one["id"] for one in later.get("blocks", [])], "it has not changed"
            none = json.loads(request(address, "changes", token=f"{own}&since=999999")[1])
            assert list(none) == ["number"]
            for sockets in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
                listening = [
                    line.split()[1] for line in sockets.read_text().splitlines()[1:] if line.split()[3] == "0A"
                ]
                mine = [one for one in listening if one.endswith(f":{port:04X}")]
                assert all(one.startswith("0100007F") for one in mine), "on 127.0.0.1 alone"
        gate.touch()
        program.finish().expect(0)


FAKE_BROWSER = """#!/bin/sh
printf '%s ' "$@" > {seen}.new; mv {seen}.new {seen}
while [ ! -e {gate} ]; do sleep 0.05; done
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_arguments_of_the_browser_have_no_token(tmp_path: Path, end: signal.Signals) -> None:
    """Every user of a host sees the arguments of all processes, and would have the state of the job by them."""
    if signal.getsignal(end) == signal.SIG_IGN:
        pytest.skip("below nohup a view ignores this signal, as its user wants")
    seen, gate, home, script = (tmp_path / name for name in ("seen", "gate", "home", "browser"))
    script.write_text(FAKE_BROWSER.format(seen=seen, gate=gate))
    script.chmod(0o755)
    home.mkdir()
    journal = tmp_path / "search"
    journal.mkdir()
    (journal / "000001.journal").touch()
    command = [sys.executable, "-m", "mpi_runtime", "view", str(journal)]
    env = {"DISPLAY": ":0", "BROWSER": str(script), "HOME": str(home)}
    with helpers.start_command(command, env=env) as server:
        helpers.wait_until(seen.exists, 60, "the browser")
        address = server.stdout.splitlines()[0]
        token = urlsplit(address).query[6:]
        shown = seen.read_text().strip()
        assert token not in shown
        (file,) = home.iterdir()
        assert shown == file.as_uri()
        assert not file.name.startswith("."), "a browser installed by snap sees no hidden files"
        assert file.stat().st_mode & 0o777 == 0o600
        assert f"url={address}" in file.read_text()
        assert request(address)[0] == 200, "while the browser runs"
        gate.touch()
        server.signal(end)
        server.finish().expect(130)
    assert not list(home.iterdir())


def test_a_home_without_room_for_the_file_of_the_browser(tmp_path: Path) -> None:
    seen, gate, script = (tmp_path / name for name in ("seen", "gate", "browser"))
    script.write_text(FAKE_BROWSER.format(seen=seen, gate=gate))
    script.chmod(0o755)
    gate.touch()
    (tmp_path / "000001.journal").touch()
    command = [sys.executable, "-m", "mpi_runtime", "view", str(tmp_path)]
    env = {"DISPLAY": ":0", "BROWSER": str(script), "HOME": str(tmp_path / "absent")}
    with helpers.start_command(command, env=env) as server:
        helpers.wait_until(seen.exists, 60, "the browser")
        file = Path(urlsplit(seen.read_text().strip()).path)
        assert file.parent == server.place, "in TMPDIR"
        assert file.exists()
        server.signal(signal.SIGINT)
        server.finish().expect(130)
    assert not file.exists()


@needs_browser
def test_a_browser_follows_the_file_to_the_page(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text('{"algorithm": "PPO", "env": "CartPole-v1", "lr": 0.0003}')
    (tmp_path / "result.json").write_text(json.dumps(result(1)) + "\n")
    with viewed(str(tmp_path)) as (_, address), Browser(tmp_path) as browser, ExitStack() as until_end:
        browser.open(leading_to(address, until_end))
        browser.wait_for(f"location.href === {address!r} && document.querySelector('#answers')")
        assert not browser.problems


@needs_browser
def test_a_batch(tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_text("echo the last words; exit 3\ntrue\n")
    words = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
    env = {**os.environ, "PYTHONPATH": str(helpers.ROOT)}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=100, check=False, env=env)
    assert done.returncode == 1, done.stderr
    with viewed(str(tmp_path / "batch-jobs")) as (_, address), Browser(tmp_path) as browser:
        browser.open(address)
        browser.wait_for("document.querySelector('#failures')?.innerText.includes('exit code 3')")
        browser.wait_for("document.querySelector('#failures').innerText.includes('the last words')")
        assert browser.run("document.querySelectorAll('#commands tbody tr').length") == 2
        assert not browser.problems


@needs_browser
def test_a_training(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text('{"algorithm": "PPO", "env": "CartPole-v1", "lr": 0.0003}')
    lines = [result(number, episode_reward_mean=float("nan") if number < 3 else number) for number in range(1, 30)]
    (tmp_path / "result.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with viewed(str(tmp_path)) as (_, address), Browser(tmp_path) as browser:
        browser.open(address)
        browser.wait_for("document.querySelector('#returns path.step')")
        assert browser.run("document.querySelectorAll('#updates path.step').length") == 1
        with (tmp_path / "result.json").open("a") as file:
            file.write(json.dumps(result(30)) + "\n")
        browser.wait_for(
            "document.querySelector('#answers').innerText.includes('30\\niterations') || "
            "document.querySelector('#answers').innerText.includes('30 iterations')"
        )
        assert not browser.problems


def test_what_cannot_be_viewed(tmp_path: Path) -> None:
    for word, problem in (
        ("nowhere", "there is no directory of this name"),
        ("999999998", "no running job with the process id"),
        (str(tmp_path), "is neither the process id"),
    ):
        with helpers.start_command([sys.executable, "-m", "mpi_runtime", "view", word]) as program:
            assert problem in program.finish().expect(2).stderr
    code = (
        "import sys; sys.modules['uvicorn'] = None; from mpi_runtime.cli.main import main; "
        f"sys.exit(main(['view', {str(tmp_path)!r}]))"
    )
    (tmp_path / "journal").mkdir()
    with helpers.start_command([sys.executable, "-c", code]) as program:
        assert "pip install starlette uvicorn" in program.finish().expect(2).stderr


def test_parts_of_a_job_in_a_terminal(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with helpers.start_program(JOB, str(gate)) as program:
        program.wait_for_line("up")

        def said(*words: str) -> str:
            command = [sys.executable, "-m", "mpi_runtime", *words]
            with helpers.start_command(command) as started:
                return started.finish().expect(0).stdout

        pid = str(program.pid)
        (actor,) = json.loads(said("list", "actors", pid, "--json"))
        assert (actor["name"], actor["class_name"], actor["state"]) == ("the-counter", "Counter", "ALIVE")
        assert "the-counter" in said("list", "actors", pid)
        assert said("list", "tasks", pid).splitlines()[-1] == "5 tasks"
        assert json.loads(said("list", "nodes", pid, "--json"))[0]["Resources"]["CPU"] == 2
        assert said("list", "groups", pid) == "0 groups\n"
        assert re.search(r"work \(", said("stack", pid))
        assert re.search(r"^\d\d:\d\d:\d\d work: <b>hello</b>$", said("logs", pid, "--grep", "hello"), re.MULTILINE)
        events = json.loads(said("timeline", pid, "-o", "-"))
        assert {event["name"] for event in events if event["ph"] == "X"} == {"submits", "wrong", "Counter"}
        gate.touch()
        program.finish().expect(0)


def test_the_screen_of_top(tmp_path: Path) -> None:
    pytest.importorskip("rich", reason="rich is not installed")
    pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed")
    gate = tmp_path / "gate"
    with helpers.start_program(JOB, str(gate)) as program:
        program.wait_for_line("up")
        child = pexpect.spawn(
            sys.executable,
            ["-m", "mpi_runtime", "top", "--watch", str(program.pid)],
            dimensions=(90, 140),
            timeout=60,
            env={**os.environ, "PYTHONPATH": str(helpers.ROOT), "TERM": "xterm", "COLUMNS": "140", "LINES": "90"},
        )
        try:
            child.expect("the-counter")
            child.expect("wrong <img src=x onerror=alert")
            child.send("d")
            child.expect("raise ValueError")
            child.send("/zzz\r")
            child.expect("no function has this name")
            gate.touch()
            child.expect("Ended")
            child.send("q")
            child.expect("the job has ended")
            child.expect(pexpect.EOF)
            child.wait()
            assert child.exitstatus == 0
        finally:
            child.close(force=True)
        program.finish().expect(0)
