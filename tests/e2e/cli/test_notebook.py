"""Cells of a notebook, run by nbclient in a real kernel: HTML forms, bars, and errors with the user's frames only."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import run_program

NOTEBOOK = """
import json
import sys

import nbformat
from nbclient import NotebookClient

cells = [nbformat.v4.new_code_cell(cell) for cell in json.loads(sys.argv[1])]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, timeout=80, allow_errors=True, resources={"metadata": {"path": "."}}).execute()
print(json.dumps([cell.outputs for cell in notebook.cells]))
"""
CELLS = [
    "import mpi_runtime as ray\ncontext = ray.init(num_cpus=2)\ncontext",
    """
import os, time

@ray.remote
def work(number):
    if number == 7:
        raise ValueError("seven")
    return number

@ray.remote
class Counter:
    def add(self):
        return 1

@ray.remote
def opened(number, gate):
    while number > 3 and not os.path.exists(gate):
        time.sleep(0.01)
    return number

ref = work.remote(1)
ray.get(ref)
ref""",
    "counter = Counter.options(name='<b>').remote()\nray.get(counter.add.remote())\ncounter",
    "ray.nodes()",
    "ray.get_runtime_context()",
    "ray.get(work.remote(7))",
    "list(work.map(range(9)))",
    """
from mpi_runtime.show import bars

def drawn(*arguments, draw=bars.Bar._html):
    open(gate, "w").close()
    return draw(*arguments)

bars.Bar._html = drawn  # the calls wait for the bar
ray.get([opened.remote(number, gate) for number in range(9)])""",
    """
os.unlink(gate)
[value for value in opened.starmap([(number, gate) for number in range(9)])]""",
    "ray.shutdown()\nref",
]


def forms(outputs: list[Any]) -> list[str]:
    return [text for one in outputs if (text := one.get("data", {}).get("text/html"))]


def error_of(outputs: list[Any]) -> str:
    (found,) = [one for one in outputs if one["output_type"] == "error"]
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(found["traceback"]))


@pytest.mark.slow
def test_forms_bars_and_errors(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    pytest.importorskip("nbclient")
    cells = [f"gate = {str(tmp_path / 'gate')!r}", *CELLS]
    done = run_program(NOTEBOOK, json.dumps(cells), timeout=100).expect(0)
    found = json.loads(done.stdout.splitlines()[-1])[1:]
    context, ref, actor, nodes, here, error, of_map, many, mapped, ended = found
    assert "job of 1 rank" in forms(context)[0]
    assert "<td>inline</td>" in forms(ref)[0]
    assert "<td>&lt;b&gt;</td>" in forms(actor)[0], "text of users is text"
    assert "<td>ALIVE</td>" in forms(actor)[0]
    assert forms(nodes)[0].startswith("<table>")
    assert "task_name" in forms(here)[0]
    for shown in (error, of_map):
        text = error_of(shown)
        assert "ValueError: seven" in text
        assert "in work" in text
        assert "mpi_runtime/" not in text, text
    for shown, noun in ((many, "values"), (mapped, "calls of opened()")):
        (bar,) = forms(shown)
        assert re.fullmatch(
            rf'<progress style="width: 20em" value="9" max="9"></progress> 9 of 9 {re.escape(noun)} in \S+ s', bar
        )
    assert "its job has ended" in forms(ended)[0]
