"""Arguments of trainers, how data are cut, ports of gangs."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import numpy
import pytest

from mpi_runtime import train, tune
from mpi_runtime.core.gangs import rendezvous
from mpi_runtime.errors import InfeasibleResourceError
from mpi_runtime.train import shards
from mpi_runtime.train.torch import TorchConfig, TorchTrainer
from mpi_runtime.tune.trials.bundles import slots_for


def loop() -> None:
    """Train nothing."""


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"num_workers": -1}, ValueError, "with 0 alone the function runs in the process of the program"),
        ({"num_workers": 100_001}, ValueError, "num_workers=100001: the numbers must be 1 to 100000"),
        ({"num_workers": 1.5}, ValueError, "whole number"),
        ({"num_workers": True}, ValueError, "whole number"),
        ({"num_workers": (2, 1)}, ValueError, "the least before the most"),
        ({"num_workers": (0, 1)}, ValueError, "must be 1 to 100000"),
        ({"num_workers": (1, 2, 3)}, ValueError, "the least and the most of them"),
        ({"use_gpu": 1}, TypeError, "True or False"),
        ({"resources_per_worker": 2}, TypeError, "amounts by name"),
        ({"resources_per_worker": {"CPU": -1}}, ValueError, "0 or more"),
        ({"resources_per_worker": {"GPU": 1}}, ValueError, "use_gpu=True"),
        ({"use_gpu": True, "resources_per_worker": {"GPU": 0}}, ValueError, "contradict"),
        ({"placement_strategy": "NEAR"}, ValueError, "PACK, SPREAD"),
        ({"num_workers": 2, "label_selector": [{"zone": "a"}]}, ValueError, "has 1 dictionaries for 2 workers"),
        ({"num_workers": 2, "label_selector": [{"zone": "a"}, {}]}, ValueError, "the same conditions here"),
        ({"accelerator_type": ""}, TypeError, "name of a type of GPU"),
        ({"label_selector": {"zone": "!"}}, ValueError, "label_selector must be like"),
        ({"use_tpu": True, "use_gpu": True}, ValueError, "Cannot specify both"),
        ({"trainer_resources": {}}, DeprecationWarning, "what runs beside the workers needs nothing"),
        ({"topology": "2x2"}, TypeError, "no TPUs"),
    ],
)
def test_scaling_that_has_no_meaning(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        train.ScalingConfig(**given)


def test_scaling_in_amounts() -> None:
    config = train.ScalingConfig(3, use_gpu=True, resources_per_worker={"CPU": 2}, placement_strategy="STRICT_SPREAD")
    assert config.total_resources == {"CPU": 6, "GPU": 3}
    assert config.request.options == {"num_ranks": 3, "_starts_mpi": False, "ranks_per_node": 1}
    assert (config.num_cpus_per_worker, config.num_gpus_per_worker) == (2, 1)
    assert config.additional_resources_per_worker == {}
    plain = train.ScalingConfig(2)
    assert (plain.num_cpus_per_worker, plain.num_gpus_per_worker) == (1, 0)
    licensed = train.ScalingConfig(2, resources_per_worker={"licence": 1})
    assert (licensed.num_cpus_per_worker, licensed.additional_resources_per_worker) == (0, {"licence": 1})
    gpus = train.ScalingConfig(2, use_gpu=True, accelerator_type="H100")
    assert gpus.total_resources == {"GPU": 2, "accelerator_type:H100": 0.002}
    assert gpus.request.options == {"num_ranks": 2, "_starts_mpi": False}
    same = train.ScalingConfig(2, label_selector=[{"zone": "a"}, {"zone": "a"}])
    assert same.request.label_selector == {"zone": "a"}
    packed = train.ScalingConfig(2, placement_strategy="STRICT_PACK").request
    assert packed.options["ranks_per_node"] == 2
    assert train.ScalingConfig(2, placement_strategy="SPREAD").request.options["scheduling_strategy"] == "SPREAD"


@pytest.mark.parametrize(
    ("strategy", "cpus", "nodes", "gangs"),
    [
        ("PACK", 1, [4, 1], 2),
        ("STRICT_PACK", 1, [4, 1], 2),
        ("STRICT_PACK", 1, [1, 1], 0),
        ("STRICT_SPREAD", 1, [4, 1], 2),
        ("STRICT_SPREAD", 1, [4], 0),
        ("SPREAD", 2, [1, 3], 0),
        ("PACK", 0, [1], 1),
        ("STRICT_SPREAD", 0, [4], 0),
    ],
)
def test_gangs_that_fit(strategy: str, cpus: float, nodes: list[int], gangs: int) -> None:
    request = train.ScalingConfig(2, resources_per_worker={"CPU": cpus}, placement_strategy=strategy).request
    there = [{"Resources": {"CPU": float(count)}} for count in nodes]
    if gangs:
        assert slots_for(request, there) == gangs
        return
    with pytest.raises(InfeasibleResourceError, match=f"by {strategy}, and no" if "STRICT" in strategy else "fits"):
        slots_for(request, there)


def test_gangs_that_fit_on_nodes_with_labels() -> None:
    there: list[dict[str, Any]] = [{"Resources": {"CPU": 4.0}, "Labels": {"zone": zone}} for zone in ("a", "a", "b")]
    for selector, gangs in (({"zone": "a"}, 4), ({"zone": "!in(a,c)"}, 2), ({"disk": "!ssd"}, 6)):
        request = train.ScalingConfig(2, label_selector=selector).request
        assert request.options["label_selector"] == selector
        assert slots_for(request, there) == gangs
    with pytest.raises(InfeasibleResourceError, match=r"on nodes with the labels \{'zone': 'c'\}, and no trial"):
        slots_for(train.ScalingConfig(2, label_selector={"zone": "c"}).request, there)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"train_loop_per_worker": 1}, "must be a function"),
        ({"train_loop_per_worker": lambda a, b: None}, "no argument or one"),
        ({"train_loop_config": [1]}, "must be a dictionary"),
        ({"scaling_config": {"num_workers": 2}}, "must be a ScalingConfig"),
        ({"run_config": {}}, "must be a RunConfig"),
        ({"datasets": [1]}, "must be a dictionary"),
        ({"datasets": {"a": {1: 2}}}, "must be a list of references"),
        ({"datasets": {"a": 3}}, "must be a list of references"),
        ({"torch_config": "gloo"}, "must be a TorchConfig"),
        ({"resume_from_checkpoint": "there"}, "pass the checkpoint in train_loop_config"),
    ],
)
def test_trainers_that_have_no_meaning(given: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        TorchTrainer(**{"train_loop_per_worker": loop, **given})


def test_a_group_is_made_by_variables_only() -> None:
    with pytest.raises(ValueError, match="must be"):
        TorchConfig(init_method="file:///x")


def test_outside_of_a_training_there_is_none(tmp_path: Path) -> None:
    for function in (train.get_context, train.get_checkpoint, train.get_dataset_shard, lambda: train.report({})):
        with pytest.raises(RuntimeError, match="not a trial"):
            function()
    for restore in (train.DataParallelTrainer.can_restore, TorchTrainer.restore):
        with pytest.raises(DeprecationWarning, match=r"fit\(\) continues the training that has the same"):
            restore(tmp_path)
    assert train.TrainContext is tune.TuneContext


def test_parts_are_consecutive_and_equal() -> None:
    parts = [shards.cut(list(range(8)), rank, 3) for rank in range(3)]
    assert [list(part) for part in parts if isinstance(part, train.Shard)] == [[0, 1], [2, 3, 4], [5, 6, 7]]
    array = shards.cut(numpy.arange(8), 1, 3)
    assert isinstance(array, numpy.ndarray)
    assert array.tolist() == [2, 3, 4]
    part = shards.cut(range(8), 2, 3)
    assert isinstance(part, train.Shard)
    assert (len(part), part[0], part[-1], part[1:], 9 in part) == (3, 5, 7, [6, 7], False)
    with pytest.raises(IndexError):
        part[3]


def test_a_block_of_ports_belongs_to_one_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    low, high = rendezvous.ephemeral()
    monkeypatch.setattr(rendezvous, "_taken", taken := list[socket.socket]())
    try:
        first, second = rendezvous.take_ports(), rendezvous.take_ports()
        assert first != second
        assert not {first, first + rendezvous.PORTS_OF_GANG - 1, second} & {*range(low, high + 1)}
    finally:
        for one in taken:
            one.close()
    file = tmp_path / "range"
    monkeypatch.setattr(rendezvous, "EPHEMERAL", os.fspath(file))
    file.write_text("10001\t31000\n")
    monkeypatch.setattr(rendezvous, "PORTS", (range(20_000, 32_000), range(10_000, 20_000)))
    try:
        assert 31_000 < rendezvous.take_ports() < 32_000
        file.write_text("1024 65535")
        with pytest.raises(OSError, match="no block of ports"):
            rendezvous.take_ports()
    finally:
        for one in taken:
            one.close()
    file.write_text("")
    assert rendezvous.ephemeral() == (32_768, 60_999)
