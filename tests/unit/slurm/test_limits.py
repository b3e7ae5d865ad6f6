"""Short texts that stand for much: they are refused before it is made."""

import os
import random
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.slurm import nodelist, profiles
from mpi_runtime.slurm.allocation import AllocationError, from_environment
from mpi_runtime.slurm.diagnosis import expected_nodes
from mpi_runtime.slurm.script import Request

SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "a"}
PIECES = (*"[]-,()x ", "n", "rack", "[1-", "(x", "99999999999", "100000", "50000", "7", "007", "9" * 30, "9" * 5000)


def test_as_many_hosts_as_a_job_can_have() -> None:
    assert len(nodelist.expand("a[1-60000],b[1-100][1-400]")) == nodelist.HOSTS_MAX
    assert nodelist.expand_counts("4(x99999),1") == [4] * 99_999 + [1]


@pytest.mark.parametrize(
    "text",
    [
        "a[1-99999999999]",
        "a[1-60000],b[1-40001]",
        "a[1-1000][1-1000]",
        "a[1-1000]b[1-1000]c[1-1000]d[1-1000]",
        ",".join(["a"] * 100_001),
    ],
)
def test_more_hosts_than_a_job_can_have(text: str) -> None:
    with pytest.raises(ValueError, match=r"hosts or more, and a job can have 100000$"):
        nodelist.expand(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{'a' * 300}[1-100000]", "at most 255 letters"),
        ("[1]" * 30_000, "at most 255 letters"),
        (f"n[1-{'9' * 5000}]", "neither a number nor a range"),
        ("n[3-1]", "'3-1' is neither a number nor a range"),
        (f"n[{'1-' * 100_000}]", "is not a list of nodes"),
    ],
)
def test_other_node_lists_that_no_batch_system_writes(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as found:
        nodelist.expand(text)
    assert len(str(found.value)) < 400, "of a long text its beginning"


@pytest.mark.parametrize("text", ["1(x99999999999)", "1(x60000),2(x40001)", f"1(x{'9' * 5000})", "9" * 5000])
def test_counts_that_no_batch_system_writes(text: str) -> None:
    with pytest.raises(ValueError, match=r"a job can have 100000|is not a list of counts"):
        nodelist.expand_counts(text)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"SLURM_JOB_NODELIST": "a[1-99999999999]"}, r"SLURM_JOB_NODELIST is 'a\[1-99999999999\]', which makes no"),
        (
            {"SLURM_TASKS_PER_NODE": "1(x99999999999)"},
            "SLURM_TASKS_PER_NODE is .* stands for 99999999999 hosts or more",
        ),
        ({"SLURM_JOB_CPUS_PER_NODE": "1(x99999999999)"}, "SLURM_JOB_CPUS_PER_NODE is"),
        ({"SLURM_HET_SIZE": "99999999999"}, "SLURM_HET_SIZE is .* a job has 1 to 128 parts"),
        ({"SLURM_HET_SIZE": "0"}, "SLURM_HET_SIZE"),
        ({"SLURM_HET_SIZE": "two"}, "SLURM_HET_SIZE"),
        (
            {"SLURM_HET_SIZE": "2", **{f"SLURM_JOB_NODELIST_HET_GROUP_{n}": "a[1-60000]" for n in range(2)}},
            "SLURM_JOB_NODELIST_HET_GROUP_0 to SLURM_JOB_NODELIST_HET_GROUP_1 are .* 120000 hosts",
        ),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-3"}, "SLURM_STEP_NODELIST is .* is not a list of nodes"),
    ],
)
def test_the_error_names_the_variable_of_slurm(env: dict[str, str], words: str) -> None:
    with pytest.raises(AllocationError, match=words):
        from_environment(SLURM | env)


def test_numbers_that_do_not_fit_into_64_bits_are_none() -> None:
    found = from_environment(SLURM | {"SLURM_RESTART_COUNT": "9" * 5000, "SLURM_STEP_ID": "9" * 5000})
    assert (found.restarts, found.step_nodes) == (0, ())


def test_the_nodes_of_a_step() -> None:
    env = SLURM | {"SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "b[1-2]"}
    own = from_environment(env)
    assert expected_nodes("slurm-pmix", own, env) == ("b1", "b2")
    assert expected_nodes("openmpi", own, env) == ("a",)


@pytest.mark.parametrize("variable", ["PBS_NODEFILE", "PE_HOSTFILE"])
def test_files_of_hosts_are_files(tmp_path: Path, variable: str) -> None:
    job = {"PBS_JOBID": "7"} if variable == "PBS_NODEFILE" else {}
    pipe, large, many = (tmp_path / name for name in ("pipe", "large", "many"))
    os.mkfifo(pipe)
    large.touch()
    os.truncate(large, 1 << 40)
    many.write_text("".join(f"n{number} 1 all.q\n" for number in range(nodelist.HOSTS_MAX + 1)))
    for path, problem in ((pipe, "32 MiB"), (large, "32 MiB"), (Path("/dev/zero"), "32 MiB"), (many, "100001 hosts")):
        with pytest.raises(AllocationError, match=f"{variable} is .*{problem}"):
            from_environment(job | {variable: str(path)})
    assert from_environment(job | {variable: str(tmp_path)}).nodes == (), "as a file that is absent"


def test_a_file_of_hosts_with_one_long_line(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("a " * 1_000_000 + "\nb 1\n")
    tracemalloc.start()
    try:
        assert from_environment({"PBS_JOBID": "7", "PBS_NODEFILE": str(file)}).nodes == ("a", "b")
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_hosts_of_lsf() -> None:
    env = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "a 1 " * 100_001}
    with pytest.raises(AllocationError, match=r"LSB_MCPU_HOSTS is 'a 1 a 1 .*100001 hosts"):
        from_environment(env)


def test_a_request_has_no_more_nodes_than_a_job() -> None:
    for nodes in (100_001, "1-999999999"):
        with pytest.raises(ValueError, match="nodes must be at most 100000, not"):
            Request(nodes=nodes)


def test_a_file_of_profiles_has_an_end_and_a_depth(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it has more than 1048576 letters"):
        profiles.read(Path("/dev/zero"), None)
    deep = tmp_path / "deep.toml"
    deep.write_text(f"[default]\nname = {'[' * 100_000}")
    with pytest.raises(ValueError, match=r"deep\.toml is not TOML"):
        profiles.read(deep, None)
    assert profiles.read(Path("/dev/null"), None) == {}


def is_read(read: Callable[[Any], object], given: object) -> bool:
    """Whether a reader takes something; else its error has words for users."""
    try:
        read(given)
    except ValueError as error:
        assert re.search("makes no sense|is not a list|hosts or more", str(error)), error  # noqa: PT017
        assert len(str(error)) < 1000  # noqa: PT017
        return False
    return True


def test_any_text_is_read_or_refused_in_little_memory() -> None:
    rng = random.Random(1)
    tracemalloc.start()
    try:
        read = 0
        for _ in range(400):
            text = "".join(rng.choices(PIECES, k=rng.randint(1, 12)))
            read += is_read(nodelist.expand, text) + is_read(nodelist.expand_counts, text)
            read += is_read(from_environment, SLURM | {"SLURM_TASKS_PER_NODE": text})
            read += is_read(from_environment, {"LSB_JOBID": text, "LSB_MCPU_HOSTS": text})
        assert tracemalloc.get_traced_memory()[1] < 100e6
        assert 0 < read < 1600
    finally:
        tracemalloc.stop()
