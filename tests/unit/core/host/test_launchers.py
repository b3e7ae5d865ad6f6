"""What launchers leave in the environment: kept from children where it is theirs, left to them where it is not."""

import os
import pwd
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpi_runtime.core.host import launchers
from mpi_runtime.core.host.launchers import child_environment, environment_of_launcher


def test_settings_of_the_user_reach_the_child() -> None:
    kept = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "tcp",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "I_MPI_FABRICS": "shm", "MPICH_PORT": "1",
        "PRTE_MCA_plm_ssh_agent": "/opt/ssh", "PMIX_MCA_gds": "hash", "OMPI_MCA_plm_slurm_args": "--external-launcher",
        "HYDRA_IFACE": "ib0", "SLURM_JOB_ID": "5", "SLURM_MPI_TYPE": "pmix", "CUDA_VISIBLE_DEVICES": "1", "PMIXER": "",
        "MPI_RUNTIME_FIND_GPUS": "never", "OPAL_PREFIX": "/opt/openmpi", "LD_LIBRARY_PATH": "/opt/openmpi/lib",
        "HOME": "/home/me",
    }  # fmt: skip
    of_a_rank = {
        "OMPI_MCA_ess_base_jobid": "1", "PMI_FD": "4", "PRTE_MCA_plm": "ssh", "OMPI_MCA_plm_base_x": "1",
        "OMPI_MCA_num_restarts": "0", "PMIX_MCA_mca_base_component_path": "/usr/lib/pmix",
    }  # fmt: skip
    assert child_environment(kept | of_a_rank) == kept


def test_paths_of_the_installed_mpi_do_not_reach_the_child() -> None:
    ours = f"{sys.prefix}/lib"
    home = {"HOME": "/home/me"}
    assert child_environment({"OPAL_PREFIX": sys.prefix, "LD_LIBRARY_PATH": f"{ours}:{ours}", **home}) == home
    child = child_environment({"OPAL_PREFIX": sys.prefix, "LD_LIBRARY_PATH": f"{ours}:/opt/lib", **home})
    assert child == {"LD_LIBRARY_PATH": "/opt/lib", **home}


def test_without_home_there_is_one_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI does not start without it."""
    monkeypatch.delenv("HOME")
    listed = pwd.getpwuid(os.getuid()).pw_dir
    assert child_environment({}) == {"HOME": listed}
    with launchers.quick_mpi():
        assert os.environ["HOME"] == listed
    assert "HOME" not in os.environ
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # the user is in no list, as in some containers
    assert child_environment({}) == {"HOME": "/"}


def test_open_mpi_uses_no_bridge_of_containers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "OMPI_MCA_btl_tcp_if_exclude"
    monkeypatch.setenv("HOME", str(tmp_path))
    names = ["lo", "eth0", "docker0", "br0", "br-12ab"]
    monkeypatch.setattr("socket.if_nameindex", lambda: list(enumerate(names, 1)))
    assert launchers.between_hosts({}) == {name: "127.0.0.1/8,sppp,br-12ab,docker0"}
    assert launchers.between_hosts({"OMPI_MCA_btl_tcp_if_include": "eth0"}) == {}
    with launchers.quick_mpi():
        assert "docker0" in os.environ[name]
    assert name not in os.environ
    names[2:] = []
    assert launchers.between_hosts({}) == {}


def test_mpi_starts_quickly_and_nobody_else_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name, second = "OMPI_MCA_btl", "OMPI_MCA_mtl"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPAL_PREFIX", sys.prefix)
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(launchers, "_NETWORKS", (str(tmp_path / "infiniband"),))
    with launchers.quick_mpi():
        assert os.environ[name] == os.environ[second] == "^ofi"
    assert not {name, second} & os.environ.keys()
    with monkeypatch.context() as chosen:
        chosen.setenv("OMPI_MCA_pml", "cm")
        with launchers.quick_mpi():
            assert second not in os.environ
    (tmp_path / "infiniband" / "card").mkdir(parents=True)
    with launchers.quick_mpi():
        assert (os.environ[name], second in os.environ) == ("^ofi", False)
    for size, local, free, components in (("2", "2", 64, "^ofi,tcp"), ("3", "2", 512, "^ofi"), ("3", "3", 64, "^ofi")):
        monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", size)
        monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", local)
        monkeypatch.setattr(os, "statvfs", lambda _, free=free: SimpleNamespace(f_bavail=free, f_frsize=1 << 20))
        with launchers.quick_mpi():
            assert os.environ[name] == components
    monkeypatch.setenv(name, "self,tcp")
    with launchers.quick_mpi():
        assert os.environ[name] == "self,tcp"
    assert os.environ[name] == "self,tcp"
    monkeypatch.delenv(name)
    monkeypatch.setenv("OPAL_PREFIX", "/opt/site")
    with launchers.quick_mpi():
        assert name not in os.environ


@pytest.mark.parametrize(
    ("step", "set_before", "found"),
    [("0", None, "1"), ("0", "0", "0"), ("4294967290", None, None), (None, None, None)],  # the third: a shell of salloc
)
def test_a_launcher_inside_a_step_starts_its_ranks_beside_it(
    step: str | None, set_before: str | None, found: str | None
) -> None:
    env = {"SLURM_STEP_ID": step, "SLURM_OVERLAP": set_before}
    made = environment_of_launcher({name: value for name, value in env.items() if value is not None})
    assert made.get("SLURM_OVERLAP") == found
    assert "SLURM_STEP_ID" not in made
