"""`make device`: one file of results, whatever is missing, hangs or fails. What it measures only a card can test."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import card
from benchmarks.card import FACTS, STAGES, Stage
from tests.e2e.api.test_nsight import NSYS
from tests.fake_cuda import memory
from tests.helpers import ROOT

LIBRARIES = Path(memory.__file__).parent / "libraries"


def run(monkeypatch: pytest.MonkeyPatch, out: Path, *words: str, ask: str = "") -> tuple[int, dict[str, Any]]:
    monkeypatch.setattr(card, "ASK", ask)
    if not ask:
        monkeypatch.setattr(card, "no_card", lambda: "")  # without another process, which would take its time
    monkeypatch.setattr(sys, "argv", ["card", "--out", str(out), *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = card.main()
    return code, json.loads(out.read_text())


def python(source: str, limit_s: float = 30, name: str = "one") -> Stage:
    return Stage(name, ("-c", source), limit_s)


def test_each_stage_costs_no_more_than_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stages = (
        python("print('a word'); print('{\"a\": 1}')", name="answers"), python("raise SystemExit(3)", name="fails"),
        python("import os; os.abort()", name="crashes"), python("import time; time.sleep(60)", 0.5, "hangs"),
        python("print('in words')", name="speaks"),
    )  # fmt: skip
    monkeypatch.setattr(card, "STAGES", stages)
    monkeypatch.setattr(card, "NEEDED", {})
    code, found = run(monkeypatch, tmp_path / "device.json")
    assert code == 0
    assert found["answers"]["answer"] == {"a": 1}
    assert (found["fails"]["code"], found["crashes"]["code"]) == (3, -6)
    assert "ended after 0 s" in found["hangs"]["late"] or "ended after 1 s" in found["hangs"]["late"]
    assert found["speaks"]["output"] == "in words\n"


def test_the_time_of_all_is_kept_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = "import time; time.sleep(60)"
    monkeypatch.setattr(card, "STAGES", (python(slow, name="first"), python(slow, name="second")))
    monkeypatch.setattr(card, "NEEDED", {})
    _, found = run(monkeypatch, tmp_path / "device.json", "--seconds", "1.5")
    assert "it was ended after" in found["first"]["late"]
    assert found["second"] == {"skipped": "the 2 s were over"}


def test_what_is_missing_is_said_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(card, "NEEDED", {"no_such_module": "no-such-package"})
    monkeypatch.setattr(card, "STAGES", (python("print(1)", name="export"), python("print(1)", name="tests")))
    code, found = run(monkeypatch, tmp_path / "device.json", "--wheels", str(tmp_path / "none"))
    assert code == 1
    assert found["tests"] == {"skipped": "what it needs is missing"}
    assert found["export"]["code"] == 0, "which needs libcuda alone"
    said = capsys.readouterr().err
    assert f"missing: no_such_module (there is no folder {tmp_path / 'none'})" in said
    assert "pip download --dest wheels no-such-package; then make device WHEELS=wheels" in said


def test_stages_have_names_of_their_own_and_facts_exist() -> None:
    from benchmarks import card_facts

    names = [stage.name for stage in STAGES]
    assert len(set(names)) == len(names)
    assert all(callable(getattr(card_facts, name)) for name in (*FACTS, "warm_up"))


def test_what_pinning_rests_on_is_asked_of_the_driver() -> None:
    """On a pretended card, which answers as the documentation has it, and holds pages as a driver does."""
    env = {**os.environ, "FAKE_CUDA_DEVICES": "1", "PYTHONPATH": os.pathsep.join([str(LIBRARIES), str(ROOT)])}
    env.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, "-m", "benchmarks.card_facts", "pinned"]
    found = json.loads(subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout)
    assert found.pop("ulimit_l")
    assert "InvalidValue" in found.pop("copy_in_part")
    assert found == {
        "driver_is_found": True, "attribute_host_register": 1, "attribute_read_only_register": 0,
        "attribute_uses_host_page_tables": 0, "register_read_only": 1, "register_read_only_by_its_flag": 801,
        "register": 0, "register_again": 712, "copy_by_another_mapping": "None", "another_mapping_has_it": True,
        "seen_where_pages_were_taken": 0, "seen_beside": 7, "unregister": 0, "unregister_again": 713,
    }  # fmt: skip


def test_the_profiler_is_asked_for_a_report(tmp_path: Path) -> None:
    env = {**os.environ, "FAKE_CUDA_DEVICES": "1", "PYTHONPATH": os.pathsep.join([str(LIBRARIES), str(ROOT)])}
    command = [sys.executable, "-m", "benchmarks.card_facts", "nsight"]

    def ask(path: str) -> dict[str, Any]:
        done = subprocess.run(command, cwd=ROOT, env={**env, "PATH": path}, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    assert "has no nsys on the PATH" in ask("/nowhere")["error"]
    (tmp_path / "nsys").write_text(NSYS)
    (tmp_path / "nsys").chmod(0o755)
    found = ask(f"{tmp_path}:{os.environ['PATH']}")
    assert found["sum"] == 2 * 64 * 64
    assert [name.endswith(".nsys-rep") for name in found["reports"]] == [True]


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        ("raise OSError('libcuda.so.1: cannot open shared object file')", "OSError: libcuda.so.1: cannot open"),
        ("print('CUDA answers 802 when it is to start')", "CUDA answers 802"),
        ("import time; time.sleep(60)", "the driver did not answer within 1 s"),
    ],
)
def test_a_machine_without_a_card(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], ask: str, reason: str
) -> None:
    monkeypatch.setattr(card, "CARD_S", 1 if "sleep" in ask else 60)
    monkeypatch.setattr(card, "NEEDED", {})
    monkeypatch.setattr(card, "STAGES", (python("print(1)", name="export"),))
    code, found = run(monkeypatch, tmp_path / "device.json", ask=ask)
    assert (code, found["export"]) == (1, {"skipped": "there is no GPU"})
    assert reason in found["no_card"]
    assert f"there is no GPU here that CUDA can use: {found['no_card']}" in capsys.readouterr().err
