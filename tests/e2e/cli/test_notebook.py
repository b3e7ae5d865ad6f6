"""Cells of a notebook, in a real kernel: short HTML forms, and errors with the frames of the user only."""

import json
import re

import pytest

from tests.helpers import run_program

KERNEL = """
import json
import sys

from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel()
found = []
for cell in json.loads(sys.argv[1]):
    parts = {}

    def hook(message):
        content = message["content"]
        if message["msg_type"] == "error":
            parts["error"] = "\\n".join(content["traceback"])
        parts.update(content.get("data", {}))

    client.execute_interactive(cell, timeout=60, output_hook=hook)
    found.append(parts)
client.stop_channels()
manager.shutdown_kernel()
print(json.dumps(found))
"""
CELLS = [
    "import mpi_runtime as ray\ncontext = ray.init(num_cpus=2)\ncontext",
    """
@ray.remote
def work(number):
    if number == 7:
        raise ValueError("seven")
    return number

@ray.remote
class Counter:
    def add(self):
        return 1

ref = work.remote(1)
ray.get(ref)
ref""",
    "counter = Counter.options(name='<b>').remote()\nray.get(counter.add.remote())\ncounter",
    "ray.nodes()",
    "ray.get_runtime_context()",
    "ray.get(work.remote(7))",
    "list(work.map(range(9)))",
    "ray.shutdown()\nref",
]


def test_forms_and_errors() -> None:
    pytest.importorskip("ipykernel")
    done = run_program(KERNEL, json.dumps(CELLS), timeout=100).expect(0)
    context, ref, actor, nodes, here, error, of_map, ended = json.loads(done.stdout.splitlines()[-1])
    assert "job of 1 rank" in context["text/html"]
    assert "<td>inline</td>" in ref["text/html"]
    assert "<td>&lt;b&gt;</td>" in actor["text/html"], "text of users is text"
    assert "<td>ALIVE</td>" in actor["text/html"]
    assert nodes["text/html"].startswith("<table>")
    assert "task_name" in here["text/html"]
    for shown in (error, of_map):
        text = re.sub(r"\x1b\[[0-9;]*m", "", shown["error"])
        assert "ValueError: seven" in text
        assert "in work" in text
        assert "mpi_runtime/" not in text, text
    assert "its job has ended" in ended["text/html"]
