"""Claims of processes that die or are stopped."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mpi_runtime.errors import JournalError
from mpi_runtime.files import claim
from mpi_runtime.files.claim import Claim
from tests.helpers import wait_until
from tests.unit.files import test_claim as unit
from tests.unit.files.test_claim import at_once, owners

_no_claim_is_left = unit._no_claim_is_left


def test_a_journal_of_a_dead_process_is_free(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from mpi_runtime.files.claim import Claim; Claim(Path({str(tmp_path)!r}), 'x')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert owners(tmp_path) == ["owner-1"]
    assert claim.owner_of(tmp_path) == ""
    Claim(tmp_path, "the next").release()


HOLD = """
import sys, time
from pathlib import Path
from mpi_runtime.files.claim import Claim
claim = Claim(Path(sys.argv[1]), "the stopped")
print("has it", flush=True)
while True:
    claim.beat()
    time.sleep(0.05)
"""


def test_a_stopped_owner_is_replaced_on_its_own_host_and_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "has it\n"
            with pytest.raises(JournalError, match="in use by the stopped"):
                Claim(tmp_path, "the next")
            first.send_signal(signal.SIGSTOP)
            wait_until(lambda: claim.state_and_start(first.pid)[0] == "T")
            second = Claim(tmp_path, "the next")
            first.send_signal(signal.SIGCONT)
            assert "the next has taken the journal over" in first.communicate(timeout=30)[1]
            second.beat()
        finally:
            first.kill()
