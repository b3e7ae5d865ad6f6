"""Trials on shares of GPUs: each has a device, and no device is given out more than once over.

Trials may pause, continue from the checkpoint of another one, be killed, or start tasks of their own on shares. The
machine is described (`tests/fake_nvml`), all else is real. Each trial leaves a file for its device while it runs, and
at each report adds up the shares of the files that belong to living processes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_nvml.machines import shown, v100_pairs
from tests.helpers import run_program

WAYS = [None, pytest.param(3, marks=pytest.mark.mpi)]

PROGRAM = """
import contextlib, os, sys, time, uuid
import mpi_runtime as ray
from mpi_runtime import tune
from mpi_runtime.tune.schedulers import ASHAScheduler, PopulationBasedTraining

FOLDER, KIND = sys.argv[1:]
CLAIMS = FOLDER + "/claims"

def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

@contextlib.contextmanager
def claim(share):
    "Have a file for the device of this process."
    (device,) = ray.get_gpu_ids()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == str(device), "it sees its device and no other"
    path = f"{CLAIMS}/{device}-{share}-{os.getpid()}-{uuid.uuid4().hex}"
    open(path, "w").close()
    try:
        yield device
    finally:
        os.unlink(path)

def used(device):
    "The shares of a device that living processes have."
    claims = [name.split("-") for name in os.listdir(CLAIMS)]
    return sum(float(share) for id, share, pid, _ in claims if id == str(device) and lives(pid))

@ray.remote(num_cpus=0, num_gpus=0.5)
def helps():
    with claim(0.5) as device:
        time.sleep(0.02)
        return used(device)

def train(config):
    found = tune.get_checkpoint()
    first = found.to_dict()["epoch"] if found else 0
    with claim(config["share"]) as device:
        for epoch in range(first, 9):
            time.sleep(0.01)
            if KIND == "killed" and epoch == 4 and first < 4 and config["n"] % 2:
                os.kill(os.getpid(), 9)
            other = ray.get(helps.remote()) if KIND == "bundles" else 0.0
            tune.report(
                {"score": config["n"] * (epoch + 1), "used": max(used(device), other), "device": device, "first": first,
                 "epoch": epoch},
                checkpoint=tune.Checkpoint.from_dict({"epoch": epoch + 1}))

def a_pbt():
    return PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations={"n": tune.randint(0, 40)})

ray.init(num_cpus=8)
os.mkdir(CLAIMS)
share = 0.25 if KIND == "quarters" else 0.5
wanted = {"cpu": 0, "gpu": share}
if KIND == "bundles":
    wanted = tune.PlacementGroupFactory([{"GPU": 0.5}, {"GPU": 0.5}])
scheduler = {"paused": ASHAScheduler(max_t=9, reduction_factor=3, type="promotion"), "exploited": a_pbt()}.get(KIND)
results = tune.Tuner(
    tune.with_resources(train, wanted),
    param_space={"n": tune.randint(0, 40), "share": share},
    tune_config=tune.TuneConfig("score", "max", scheduler=scheduler, num_samples=8 if KIND == "exploited" else 20),
    run_config=tune.RunConfig(name="e", storage_path=FOLDER, verbose=0,
                              failure_config=tune.FailureConfig(max_crashes=1)),
).fit()
reports = [report for one in results for report in one.history]
assert {one.status for one in results} == {"TERMINATED"}, [one.error for one in results if one.error]
assert max(report["used"] for report in reports) == 1.0, "as many share a device as have room, and no more"
assert {report["device"] for report in reports} == {0, 1, 2, 3}, "all devices have work"
went_on = sum(report["first"] > 0 for report in reports)
assert bool(went_on) == (KIND in ("paused", "exploited", "killed")), went_on
if KIND == "exploited":
    assert any(len(results.policy(one.trial_id)) > 1 for one in results)
end = time.monotonic() + 20
while ray.available_resources().get("GPU") != 4 and time.monotonic() < end:
    time.sleep(0.02)
print("free", ray.available_resources()["GPU"])
"""


@pytest.mark.parametrize("ranks", WAYS)
@pytest.mark.parametrize("kind", ["quarters", "paused", "exploited", "killed", "bundles"])
def test_no_device_is_given_out_more_than_once_over(kind: str, ranks: int | None, tmp_path: Path) -> None:
    done = run_program(PROGRAM, str(tmp_path), kind, ranks=ranks, env=shown(v100_pairs())).expect(0)
    assert done.stdout == "free 4.0\n"
    assert done.stderr == ""
