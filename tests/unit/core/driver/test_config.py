"""The configuration is checked once, and the environment is read in one place."""

import math
from typing import Any

import msgspec
import pytest

from mpi_runtime import config
from mpi_runtime.config import Config, from_init

GIB = 1 << 30


@pytest.fixture(autouse=True)
def not_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(config.QUIET)


def test_defaults() -> None:
    made = from_init()
    assert made == Config()
    assert (made.num_cpus, made.inline_bytes_max, made.log_to_driver, made.start_timeout_s) == (None, 65536, True, 60.0)
    assert from_init(num_cpus=None, resources=None) == Config()
    with pytest.raises(AttributeError, match="immutable"):
        made.num_cpus = 3  # type: ignore[misc]


def test_travels_to_the_other_ranks() -> None:
    made = from_init(
        num_cpus=0.5, num_gpus=8, memory=GIB, resources={"node:a": 1, "disk": 2.5}, labels={"zone": "a"},
        object_store_memory=2 * GIB, inline_bytes_max=0, log_to_driver=False, namespace="n", start_timeout_s=5,
    )  # fmt: skip
    for one in (made, Config()):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=Config) == one


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"num_cpus": -1}, ValueError, "num_cpus must be .* 0 or more, not -1"),
        ({"num_cpus": True}, TypeError, "num_cpus must be a number.* not True"),
        ({"num_cpus": "4"}, TypeError, "num_cpus .* not '4'"),
        ({"num_gpus": math.nan}, ValueError, "num_gpus .* finite .* not nan"),
        ({"num_gpus": 1001}, ValueError, "num_gpus must be at most 1000 for each host, not 1001"),
        ({"num_gpus": math.inf}, ValueError, "num_gpus .* finite .* not inf"),
        ({"resources": {"a": 2**63}}, ValueError, "at most"),
        ({"memory": 1.5}, TypeError, "memory .* whole number of bytes, not 1.5"),
        ({"object_store_memory": -5}, ValueError, "object_store_memory .* 0 or more bytes, not -5"),
        ({"object_store_memory": True}, TypeError, "object_store_memory .* not True"),
        ({"inline_bytes_max": -1}, ValueError, "inline_bytes_max"),
        ({"resources": {"CPU": 1}}, ValueError, "resources must not name 'CPU': use num_cpus"),
        ({"resources": {"GPU": 1}}, ValueError, "use num_gpus"),
        ({"resources": {"memory": 1}}, ValueError, "use memory"),
        ({"resources": {"disk": -1}}, ValueError, r"resources\['disk'\] .* not -1"),
        ({"resources": {"disk": True}}, TypeError, r"resources\['disk'\] .* not True"),
        ({"resources": {3: 1}}, TypeError, "resources .* names .* not 3"),
        ({"resources": [("disk", 1)]}, TypeError, "resources must be a dict"),
        ({"labels": {"zone": 1}}, TypeError, r"labels\['zone'\] must be a string, not 1"),
        ({"labels": {"": "x"}}, TypeError, "labels"),
        ({"log_to_driver": 1}, TypeError, "log_to_driver must be True or False, not 1"),
        ({"namespace": 1}, TypeError, "namespace must be a string"),
        *(
            ({name: " "}, ValueError, f"{name} must be a path, and it is only blank: ' '")
            for name in ("journal", "report", "metrics", "object_spilling_directory")
        ),
        ({"start_timeout_s": 0}, ValueError, "start_timeout_s must be more than 0"),
        ({"num_cpu": 1}, TypeError, "no argument 'num_cpu'; did you mean 'num_cpus'"),
        ({"zzz": 1}, TypeError, "no argument 'zzz'; there are: num_cpus"),
    ],
)
def test_refusals_name_argument_value_and_what_is_allowed(
    arguments: dict[Any, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        from_init(**arguments)


def test_defaults_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(config.NUM_CPUS, "3")
    monkeypatch.setenv(config.START_TIMEOUT_S, "7.5")
    assert from_init() == Config(num_cpus=3, start_timeout_s=7.5)
    monkeypatch.setenv(config.QUIET, "1")
    monkeypatch.setenv(config.IGNORE_UNHANDLED_ERRORS, "0")
    assert from_init() == Config(num_cpus=3, start_timeout_s=7.5, quiet=True)
    assert not from_init(quiet=False).quiet
    assert from_init(num_cpus=2).num_cpus == 2
    monkeypatch.setenv(config.NUM_CPUS, "many")
    with pytest.raises(ValueError, match="MPI_RUNTIME_NUM_CPUS is 'many'"):
        from_init()
    monkeypatch.setenv(config.NUM_CPUS, "-1")
    with pytest.raises(ValueError, match="MPI_RUNTIME_NUM_CPUS must be a finite number, 0 or more, not -1"):
        from_init()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (config.QUIET, "false"),
        (config.IGNORE_UNHANDLED_ERRORS, "no"),
        (config.DIRECT_LINES, "off"),
        (config.GANG_PROTOCOL, "pmi2"),
        (config.FIND_GPUS, " "),
        (config.GPU_PIN_MB, "9" * 20),
        (config.GPU_RESERVE_MB, "-1"),
    ],
)
def test_a_variable_with_nonsense_is_refused_and_an_empty_one_is_not_set(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"the variable {variable} is '{value}'; it m"):
        from_init()
    monkeypatch.setenv(variable, "")
    assert not from_init().quiet


def test_labels_of_all_hosts_and_of_one() -> None:
    everywhere = Config(labels={"zone": "a", "disk": "ssd"})
    assert config.labels(everywhere, {}) == {"zone": "a", "disk": "ssd"}
    stated = config.labels(everywhere, {config.LABELS: "zone=b, rack = 7,"})
    assert stated == {"zone": "b", "disk": "ssd", "rack": "7"}


@pytest.mark.parametrize("text", ["zone", "zone=", "=a", "hostname=a", "a=b,ray.io/node-id=c"])
def test_labels_that_are_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="must be like zone=a,disk=ssd"):
        config.labels(Config(), {config.LABELS: text})
    monkeypatch.setenv(config.LABELS, text)
    with pytest.raises(ValueError, match=config.LABELS):
        from_init()


def test_resources_of_all_hosts_and_of_one() -> None:
    everywhere = Config(resources={"licence": 3, "ssd": 1})
    assert config.resources(everywhere, {}) == {"licence": 3, "ssd": 1}
    stated = config.resources(everywhere, {config.RESOURCES: "ssd=0, scratch = 0.5,"})
    assert stated == {"licence": 3, "ssd": 0, "scratch": 0.5}


@pytest.mark.parametrize("text", ["ssd", "ssd=", "=1", "ssd=many", "ssd=-1", "ssd=nan", "CPU=2", "memory=1", "a=1;b=2"])
def test_resources_that_are_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(config.RESOURCES, text)
    with pytest.raises(ValueError, match=f"{config.RESOURCES} must be like licence=3,ssd=1, not '{text}': "):
        from_init()


def test_environment_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    before = config.environment()
    monkeypatch.setenv("MPI_RUNTIME_PROBE", "1")
    assert "MPI_RUNTIME_PROBE" not in before
    assert config.environment()["MPI_RUNTIME_PROBE"] == "1"


def test_whether_to_look_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.find_gpus({}) == "auto"
    assert config.find_gpus({config.FIND_GPUS: "never"}) == "never"
    monkeypatch.setenv(config.FIND_GPUS, "perhaps")
    with pytest.raises(ValueError, match="MPI_RUNTIME_FIND_GPUS is 'perhaps'; it may be auto, always, never"):
        from_init()


@pytest.mark.parametrize("variable", [config.JOURNAL, config.RECORD, config.SCRATCH_DIR])
def test_a_variable_that_is_only_blank_is_not_a_path(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, " ")
    with pytest.raises(ValueError, match=f"the variable {variable} must be a path, and it is only blank: ' '"):
        from_init()
