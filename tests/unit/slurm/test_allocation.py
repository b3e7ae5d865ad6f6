"""What batch systems grant is read from the environment of their jobs.

That of Slurm was recorded with Slurm 22.05, shortened to what tells of the allocation. Those of PBS, LSF and Grid
Engine follow their documentation, qsub(1B) of OpenPBS and Torque, "Environment variables" of LSF 10.1 and sge_pe(5),
and what users have shown of their jobs in public threads, here with other names: open-mpi/ompi 1449 and 5973,
TACC/launcher 53, galaxyproject/galaxy 2145 (PBS), LLNL/UnifyFS 505, ExaWorks/psij-python 200, a job of LSF 7 (LSF),
futureverse/parallelly 127, the log of a job on a site's pages (Grid Engine), llnl/scr (bjobs); the answers of qstat
are as sites' manuals print them.
"""

import os
from datetime import datetime
from pathlib import Path

import pytest

from mpi_runtime import config
from mpi_runtime.slurm import end_of_time, nodelist, systems
from mpi_runtime.slurm.allocation import Allocation, from_environment

BATCH = {
    "CUDA_VISIBLE_DEVICES": "0,1", "SLURMD_NODENAME": "n1", "SLURM_CPUS_ON_NODE": "2", "SLURM_JOB_ID": "1",
    "SLURM_GPUS_ON_NODE": "2", "SLURM_GPUS_PER_NODE": "2", "SLURM_JOB_CPUS_PER_NODE": "2(x2)", "SLURM_JOB_GPUS": "0,1",
    "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_MEM_PER_CPU": "500", "SLURM_NODEID": "0",
    "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_TASKS_PER_NODE": "2(x2)",
}  # fmt: skip
# A rank that Open MPI's mpirun has started on the second node: the step is that of its daemon.
SECOND_NODE = BATCH | {
    "SLURMD_NODENAME": "n2", "SLURM_NODEID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_GPUS": "2,3", "SLURM_STEP_ID": "1",
    "SLURM_STEP_NODELIST": "n2", "SLURM_STEP_NUM_TASKS": "1", "CUDA_VISIBLE_DEVICES": "2,3",
}  # fmt: skip
HETEROGENEOUS = {
    "SLURM_HET_SIZE": "2", "SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "2",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURM_JOB_NODELIST_HET_GROUP_1": "g[01-02]",
    "SLURM_TASKS_PER_NODE_HET_GROUP_0": "2", "SLURM_TASKS_PER_NODE_HET_GROUP_1": "1(x2)",
    "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0": "4", "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "1(x2)",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("n[1-3,7],login", ["n1", "n2", "n3", "n7", "login"]),
        ("gpu[08-10]-ib", ["gpu08-ib", "gpu09-ib", "gpu10-ib"]),
        ("rack[1-2]n[1-2]", ["rack1n1", "rack1n2", "rack2n1", "rack2n2"]),
        ("a,b[1],c-d-[2-3]", ["a", "b1", "c-d-2", "c-d-3"]),
    ],
)
def test_node_lists(text: str, names: list[str]) -> None:
    assert nodelist.expand(text) == names


@pytest.mark.parametrize("text", ["n[1-3", "n]", "n[a-b]", "n[1-]", ",n1"])
def test_what_is_no_node_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of nodes"):
        nodelist.expand(text)


def test_counts() -> None:
    assert nodelist.expand_counts("4(x2),1") == [4, 4, 1]
    assert nodelist.expand_counts("") == []
    with pytest.raises(ValueError, match="not like 4"):
        nodelist.expand_counts("four")


def test_outside_of_a_job_there_is_nothing() -> None:
    assert from_environment({"PATH": "/usr/bin", "SLURM_JOB_ID": ""}) == Allocation()


@pytest.mark.parametrize(
    "env",
    [
        BATCH,
        {"PBS_JOBID": "5.head"},
        {"LSB_JOBID": "5"},
        {"OAR_JOB_ID": "5", "OAR_NODEFILE": "/nodes"},
        {"FLUX_JOB_ID": "f2ocEvDUtBb"},
        {"FLUX_ENCLOSING_ID": "f2ocEvDUtBb"},
        {"MPI_RUNTIME_FLUX": "5 1 1 n1"},
        {"JOB_ID": "5", "SGE_O_HOST": "login"},
        {"JOB_ID": "5", "PE_HOSTFILE": "/hosts"},
        {"OAR_JOB_ID": "5"},
        {"JOB_ID": "5"},
        {},
    ],
)
def test_a_program_is_in_a_batch_job_where_its_system_knows_one(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", env)
    assert config.is_batch_job() == (systems.around(env) is not None)


def test_slurm() -> None:
    found = from_environment(BATCH)
    assert found == Allocation("slurm", "1", ("n1", "n2"), (2, 2), (2, 2), ("0", "1"))
    more = {"SLURM_RESTART_COUNT": "3", "SLURM_ARRAY_TASK_ID": "17", "SLURM_JOB_END_TIME": "1795300000"}
    found = from_environment(BATCH | more)
    assert (found.restarts, found.array_task, found.end_s) == (3, 17, 1795300000)


def test_gpus_of_a_process_are_those_it_sees_else_those_of_its_step() -> None:
    assert from_environment(SECOND_NODE).gpus == ("2", "3")
    unseen = {name: value for name, value in SECOND_NODE.items() if name != "CUDA_VISIBLE_DEVICES"}
    assert from_environment(unseen).gpus == ("2", "3")
    del unseen["SLURM_STEP_GPUS"]
    assert from_environment(unseen).gpus == ("0", "1")
    assert from_environment(unseen | {"SLURM_NODEID": "1"}).gpus is None, "true on the first node alone"
    assert from_environment(BATCH | {"CUDA_VISIBLE_DEVICES": ""}).gpus == ()
    assert from_environment(BATCH | {"CUDA_VISIBLE_DEVICES": "GPU-3a,-1,2"}).gpus == ("GPU-3a",)


def test_a_heterogeneous_job_has_the_nodes_of_all_its_components() -> None:
    found = from_environment(HETEROGENEOUS)
    assert found.parts == 2
    assert found.nodes == ("n1", "g01", "g02")
    assert found.tasks == (2, 1, 1)
    assert found.cpus == (4, 1, 1)


def test_pbs(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("a.site\na.site\nb.site\nb.site\n")
    openpbs = {"PBS_JOBID": "12[3].server", "PBS_NODEFILE": str(file), "NCPUS": "8", "PBS_ARRAY_INDEX": "3"}
    assert from_environment(openpbs) == Allocation(
        "pbs", "12[3].server", ("a.site", "b.site"), (2, 2), (8, 8), array_task=3
    )
    torque = {"PBS_JOBID": "12.server", "PBS_NODEFILE": str(file), "PBS_NUM_PPN": "2", "PBS_ARRAYID": "4"}
    found = from_environment(torque)
    assert (found.cpus, found.array_task) == ((2, 2), 4)
    assert from_environment(torque | {"PBS_ARRAYID": "0"}).array_task == 0
    assert from_environment({"PBS_JOBID": "12.server", "PBS_NODEFILE": "absent"}).nodes == ()


@pytest.mark.parametrize(
    ("lines", "ncpus", "nodes", "tasks", "cpus"),
    [
        # Torque: a line for each process, and hosts in the order in which they were allotted.
        ("r6c7 r6c6 r6c5", "", ("r6c7", "r6c6", "r6c5"), (1, 1, 1), ()),
        ("a20.x.edu " * 4 + "a10.x.edu " * 4, "", ("a20.x.edu", "a10.x.edu"), (4, 4), ()),
        # PBS Pro: names may be numbers, with a line for each node; NCPUS alone tells of CPUs.
        ("2015 2016", "", ("2015", "2016"), (1, 1), ()),
        ("gpu1", "16", ("gpu1",), (1,), (16,)),
    ],
)
def test_pbs_as_users_have_shown_it(
    lines: str, ncpus: str, nodes: tuple[str, ...], tasks: tuple[int, ...], cpus: tuple[int, ...], tmp_path: Path
) -> None:
    file = tmp_path / "2293982.r04-sn064.cm.cluster"
    file.write_text("\n".join(lines.split()) + "\n")
    env = {"PBS_JOBID": file.name, "PBS_NODEFILE": str(file), "NCPUS": ncpus}
    assert from_environment(env) == Allocation("pbs", file.name, nodes, tasks, cpus)


def test_lsf() -> None:
    env = {"LSB_JOBID": "77", "LSB_MCPU_HOSTS": "h1 16 h2 8", "LSB_JOBINDEX": "0", "CUDA_VISIBLE_DEVICES": "1"}
    assert from_environment(env) == Allocation("lsf", "77", ("h1", "h2"), (16, 8), (16, 8), ("1",))
    assert from_environment(env | {"LSB_JOBINDEX": "5"}).array_task == 5


def test_lsf_as_users_have_shown_it() -> None:
    """A host that only starts the script comes first, with one slot; there may be a blank at the end."""
    launched = {"LSB_JOBID": "1014", "LSB_MCPU_HOSTS": "batch3 1 c05n14 42 c05n15 42 ", "LSB_DJOB_NUMPROC": "85"}
    assert from_environment(launched).nodes == ("batch3", "c05n14", "c05n15")
    assert from_environment(launched).tasks == (1, 42, 42)
    uneven = {"LSB_JOBID": "748", "LSB_MCPU_HOSTS": "grid3 1 grid5 1 grid1 2", "LSB_JOBINDEX": "0"}
    assert from_environment(uneven) == Allocation("lsf", "748", ("grid3", "grid5", "grid1"), (1, 1, 2), (1, 1, 2))


def test_grid_engine(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("h1 4 all.q@h1 UNDEFINED\nh2 2 all.q@h2 UNDEFINED\n")
    env = {"PE_HOSTFILE": str(file), "JOB_ID": "5", "SGE_TASK_ID": "undefined"}
    assert from_environment(env) == Allocation("sge", "5", ("h1", "h2"), (4, 2), (4, 2))
    assert from_environment(env | {"PE_HOSTFILE": "absent"}).nodes == ()
    file.write_text("c-64-11.local 40 mpi.q@c-64-11.local UNDEFINED\nc-64-12.local 32 mpi.q@c-64-12.local UNDEFINED\n")
    shown = {"PE_HOSTFILE": str(file), "JOB_ID": "8736123", "SGE_TASK_ID": "undefined", "NSLOTS": "72"}
    nodes = ("c-64-11.local", "c-64-12.local")
    assert from_environment(shown) == Allocation("sge", "8736123", nodes, (40, 32), (40, 32))
    assert from_environment(shown | {"SGE_TASK_ID": "7"}).array_task == 7


# When the time ends: answers of batch systems, read at noon.

NOON = datetime(2019, 2, 19, 12, 0, 0).timestamp()
TORQUE = """Job Id: 67048.head.site.edu
    Job_Name = fit_138
    job_state = R
    exec_host = x21/0-1
    mtime = Tue Feb 19 11:47:56 2019
    Output_Path = head.site.edu:/users/ada/experiments/newsu
        icidality/fit_138.o67048
    Resource_List.nodes = 1:ppn=2
    Resource_List.walltime = 03:00:00
    start_time = Tue Feb 19 11:47:56 2019
    Walltime.Remaining = 10076
    start_count = 1

"""
PBS_PRO = """Job Id: 315236.head
    Job_Name = job.pbs
    resources_used.ncpus = 1
    resources_used.walltime = 00:30:05
    job_state = R
    Resource_List.select = 1:mem=1gb:ncpus=1
    Resource_List.walltime = 720:00:00
    stime = Tue Feb 19 11:29:50 2019
    Variable_List = PBS_O_HOME=/home/ada,PBS_O_LANG=en_AU.UTF-8,
        PBS_O_QUEUE=submission
"""

BJOBS = "bjobs -noheader -o time_left run_time runtimelimit delimiter=';'"


@pytest.mark.parametrize(
    ("own", "command", "answer", "left_s"),
    [
        (Allocation("slurm", "7"), "scontrol show job -o 7", "JobId=7 EndTime=2019-02-19T12:00:30 Deadline=N/A", 30),
        (Allocation("slurm", "7"), "scontrol show job -o 7", "JobId=7 EndTime=Unknown Deadline=N/A", None),
        (Allocation("pbs", "67048.head"), "qstat -f 67048.head", TORQUE, 3 * 3600 - 12 * 60 - 4),
        (Allocation("pbs", "315236.head"), "qstat -f 315236.head", PBS_PRO, 720 * 3600 - 30 * 60 - 10),
        (Allocation("pbs", "1"), "qstat -f 1", PBS_PRO.replace("stime", "qtime"), 720 * 3600 - 30 * 60 - 5),
        (Allocation("pbs", "1"), "qstat -f 1", TORQUE.replace("Resource_List.walltime", "x"), None),
        (Allocation("pbs", "1"), "qstat -f 1", TORQUE.replace("03:00:00", "10800"), 3 * 3600 - 12 * 60 - 4),
        (Allocation("lsf", "77"), f"{BJOBS} 77", "0:12 L\n", 12 * 60),
        (Allocation("lsf", "77"), f"{BJOBS} 77", "0:12 L;2835 second(s);60.0\n", 60 * 60 - 2835),
        (Allocation("lsf", "77"), f"{BJOBS} 77", "0:12 L;2835 second(s);600.0\n", 12 * 60),
        (Allocation("lsf", "77", array_task=5), f"{BJOBS} 77[5]", "121:30 L\n", 121.5 * 3600),
        (Allocation("lsf", "77"), f"{BJOBS} 77", "-\n", None),
        (Allocation("lsf", "77"), f"{BJOBS} 77", "0:12 E\n", None),
    ],
)
def test_the_end_as_batch_systems_answer(own: Allocation, command: str, answer: str, left_s: float | None) -> None:
    asked = end_of_time.question(own)
    assert asked is not None
    assert " ".join(asked[0]) == command
    assert asked[1](answer, NOON) == (None if left_s is None else NOON + left_s)


GRID_ENGINE = """<?xml version='1.0'?>
<JB_hard_resource_list>
  <qstat_l_requests><CE_name>s_vmem</CE_name><CE_doubleval>7.000000</CE_doubleval></qstat_l_requests>
  <qstat_l_requests><CE_name>h_rt</CE_name><CE_stringval>100</CE_stringval><CE_doubleval>100.000000</CE_doubleval>
  </qstat_l_requests>
</JB_hard_resource_list>
<JB_ja_tasks>
  <ulong_sublist><JAT_status>128</JAT_status><JAT_task_number>1</JAT_task_number>
  <JAT_start_time>1795891092</JAT_start_time></ulong_sublist>
  <ulong_sublist><JAT_status>128</JAT_status><JAT_task_number>2</JAT_task_number>
  <JAT_start_time>1795891090</JAT_start_time></ulong_sublist>
</JB_ja_tasks>
"""
"""Shortened, of Grid Engine 8.1.9."""


@pytest.mark.parametrize(
    ("task", "answer", "end_s"),
    [
        (None, GRID_ENGINE, 1795891192),
        (2, GRID_ENGINE, 1795891190),
        (3, GRID_ENGINE, None),
        (1, GRID_ENGINE.replace("h_rt", "s_rt"), None),
    ],
)
def test_the_end_as_grid_engine_answers(task: int | None, answer: str, end_s: float | None) -> None:
    asked = end_of_time.question(Allocation("sge", "5", array_task=task))
    assert asked is not None
    assert " ".join(asked[0]) == "qstat -j 5 -xml"
    assert asked[1](answer, NOON) == end_s


def test_nobody_can_be_asked_outside_of_jobs() -> None:
    assert end_of_time.question(Allocation()) is None


def test_grid_engine_without_a_parallel_environment() -> None:
    env = {"JOB_ID": "5", "SGE_O_HOST": "login", "HOSTNAME": "h1", "RESTARTED": "1", "SGE_TASK_ID": "undefined"}
    assert from_environment(env) == Allocation("sge", "5", ("h1",), (1,), (1,), restarts=1)
    assert from_environment({"JOB_ID": "5"}) == Allocation(), "a variable that anyone may have set"
