"""The examples and the benchmark for GPUs, on machines that are described, with and without something to compute with.

What no machine has is a device: `tests/fake_cupy` stands for cupy, and is as strict where the two libraries meet.
"""

from __future__ import annotations

import importlib.util
import os
import re
from typing import Any

import pytest

from tests.fake_nvml.machines import Machine, a100x4, h100x8, shown, v100_pairs
from tests.helpers import ROOT, Completed, run_program

FAKE_CUPY = ROOT / "tests" / "fake_cupy"


def run(name: str, machine: Machine, *args: str, cupy: bool, **where: Any) -> Completed:
    """Run a program where it finds this machine, and the stand-in for cupy or none."""
    env = shown(machine)
    if cupy:
        env["PYTHONPATH"] = f"{FAKE_CUPY}{os.pathsep}{env['PYTHONPATH']}"
    elif importlib.util.find_spec("cupy"):
        pytest.skip("cupy is installed here")
    return run_program(ROOT / name, *args, env=env, **where).expect(0)


@pytest.mark.parametrize(
    ("machine", "count", "where"),
    [
        (v100_pairs(), 4, {}),
        pytest.param(h100x8(), 8, {"ranks": 3, "mpi": "mpich"}, marks=pytest.mark.mpi),
        ({"gpus": []}, 0, {}),
    ],
)
def test_a_product_over_all_gpus(machine: Machine, count: int, where: dict[str, Any]) -> None:
    """Also of a size that the tiles do not divide; the program itself looks whether the product is right."""
    done = run("examples/gpu_matmul.py", machine, "301", cupy=True, **where)
    tiles = {0: 4, 4: 9, 8: 16}[count]
    assert f"tasks compute with {'cupy' if count else 'numpy'}\n301 x 301 in {tiles} tiles: " in done.stdout
    used = {int(each): int(n) for n, each in re.findall(r"^  (\d+) tiles on .* GPU \[(\d)\]$", done.stdout, re.M)}
    if count:
        assert sum(used.values()) == tiles
        assert used.keys() <= set(range(count))
        assert len(used) > 1
    on_shares = re.findall(r"(\d+) on \S+ (?:GPU \[\d\])?", done.stdout.splitlines()[-1] + " ")
    assert sum(map(int, on_shares)) == 40, done.stdout
    assert done.stderr == ""


@pytest.mark.mpi
def test_a_product_without_cupy() -> None:
    """What it computes is told from the GPUs that it is given."""
    done = run("examples/gpu_matmul.py", a100x4(), cupy=False, ranks=3, mpi="openmpi")
    assert done.stdout.startswith("4 GPU(s) of types ['A100', 'A100-40G']; tasks compute with numpy\n")
    assert re.search(r"^  \d tiles on .* GPU \[[0-3]\]$", done.stdout, re.M)
    assert done.stderr == ""


@pytest.mark.parametrize(
    "where", [{}, pytest.param({"ranks": 3, "mpi": "openmpi"}, marks=pytest.mark.mpi)], ids=["plain", "openmpi"]
)
def test_actors(where: dict[str, Any]) -> None:
    """The pair is one that NVLink joins, in the order of its ordinals; each GPU has an actor that gets batches."""
    done = run("examples/gpu_actors.py", v100_pairs(), "40", cupy=True, **where)
    begin, *rest = done.stdout.splitlines()
    pair = re.fullmatch(
        r"4 GPU\(s\); a product in parts on GPU (\d) \(Tesla V100-SXM2-16GB\) as cuda:0 and GPU (\d) \(.*\) as cuda:1, "
        "with cupy",
        begin,
    )
    assert pair, begin
    assert pair.groups() in {("0", "3"), ("1", "2")}
    assert rest[0] == "40 batches, at most 8 of them in flight"
    by_gpu = {int(id): int(n) for n, id in re.findall(r"^  (\d+) on .* GPU \[(\d)\]$", "\n".join(rest[1:]), re.M)}
    assert by_gpu.keys() == set(range(4))
    assert sum(by_gpu.values()) == 40
    assert done.stderr == ""


def test_actors_with_one_gpu() -> None:
    """Two are not to be had: it takes what there is."""
    one = {"gpus": a100x4()["gpus"][:1]}
    done = run("examples/gpu_actors.py", one, "5", cupy=True)
    assert done.stdout.startswith(
        "1 GPU(s); a product in parts on GPU 0 (NVIDIA A100-SXM4-40GB) as cuda:0, with cupy\n"
    )
    assert re.search(r"^5 batches, at most 2 of them in flight\n  5 on .* GPU \[0\]$", done.stdout, re.M)
    assert done.stderr == ""


@pytest.mark.device
@pytest.mark.parametrize("name", ["gpu_matmul", "gpu_actors"])
def test_on_a_real_card(name: str) -> None:
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("cupy finds no device")
    done = run_program(ROOT / "examples" / f"{name}.py", env={"MPI_RUNTIME_FIND_GPUS": "always"}).expect(0)
    assert "with cupy" in done.stdout


@pytest.mark.parametrize("cupy", [False, True], ids=["numpy", "cupy"])
def test_the_benchmark(cupy: bool) -> None:
    """Its logic; the figures mean nothing here."""
    done = run("benchmarks/gpu_matmul.py", v100_pairs(), "--quick", cupy=cupy)
    first, _, *rows = done.stdout.splitlines()
    assert first == "cupy on Tesla V100-SXM2-16GB" if cupy else first.startswith("skipped: cupy.")
    types = ["float32", "float16"] if cupy else ["float32"]
    assert [row.split()[:2] for row in rows[: len(types)]] == [["64", kind] for kind in types]
    assert rows[len(types)].startswith("cold executor: ")
    assert [line.split()[0] for line in rows[len(types) + 1 :]] == ["1", "2"]
    assert done.stderr == ""


def test_the_benchmark_says_what_it_skips() -> None:
    done = run("benchmarks/gpu_matmul.py", {"gpus": []}, "--quick", cupy=True)
    assert done.stdout.startswith("skipped: GPUs.")
    assert done.stdout.endswith("skipped: shares of a GPU\n")
