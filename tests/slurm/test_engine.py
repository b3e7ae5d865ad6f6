"""`examples/llm_engine.sbatch` as it is, with a stand-in for the engine, on nodes with four described GPUs each."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fake_nvml import machines
from tests.helpers import ROOT
from tests.slurm.cluster import Cluster

SCRIPT = (ROOT / "examples" / "llm_engine.sbatch").read_text()
SOURCE = (ROOT / "examples" / "llm_engine.py").read_text()
TELL = "import os; print('shown', os.environ['CUDA_VISIBLE_DEVICES'], os.uname().nodename, flush=True)"


def test_an_engine_in_a_job(slurm: Cluster) -> None:
    place = slurm.directory()
    mine = {name: value for name, value in machines.shown(machines.a100x4()).items() if value and name != "PYTHONPATH"}
    begin = (
        f"import os, sys\nos.environ.update({mine!r})\nsys.path.insert(1, {str(Path(machines.__file__).parent)!r})\n"
    )
    (place / "llm_engine.py").write_text(SOURCE.replace("import argparse\n", begin + "import argparse\n", 1))
    (place / "engine.py").write_text(f"{TELL}\nfrom llm_engine import STAND_IN\nexec(STAND_IN)\n")
    command = f'export COMMAND="{sys.executable} {place}/engine.py {{port}}"'
    script = SCRIPT.replace("COMMAND=${COMMAND", f"{command}\nCOMMAND=${{COMMAND", 1)
    done = slurm.wait(slurm.sbatch(script, cwd=place)).expect()
    assert done.stdout.count("shown") == 1
    assert "GPUs [0, 1, 2, 3]" in done.stdout
    assert all(f"'prompt {number}': 'PROMPT {number}'" in done.stdout for number in range(8))
