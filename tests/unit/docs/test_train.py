"""Each public name of `ray.train`, each parameter and each member is here, or asks for something else with a reason.

`ray_train_names.txt` has the names of Ray 2.60.
"""

import inspect
import re
from typing import Any, NamedTuple

import pytest

from mpi_runtime.as_ray import import_system, ray_names
from mpi_runtime.tune.unsupported import ADVICE
from tests.helpers import ROOT

NOT_HERE = {
    "ray.train.RunConfig": "storage_context sync_config",
    "ray.train.ScalingConfig": "as_placement_group_factory from_placement_group_factory topology",
    "ray.train.TrainContext": "get_metadata",
    "ray.train.BackendConfig": "framework to_dict",
    "ray.train.torch.TorchConfig": "framework to_dict",
}
"""Members that are not here: fields of arguments that are not, Ray's own needs, and what Ray has deprecated."""
MADE_HERE = {"ray.train.Result", "ray.train.ReportedCheckpoint", "ray.train.WorkerGroupError"}
"""Classes that programs do not call."""


class Name(NamedTuple):
    """What Ray has."""

    path: str
    parameters: list[str]
    members: list[str]


def known() -> list[Name]:
    """The list."""
    found = []
    for line in (ROOT / "tests" / "unit" / "docs" / "ray_train_names.txt").read_text().splitlines():
        path, parameters, members = re.fullmatch(r"([\w.]+)\((.*?)\)(?:: (.*))?", line).groups()  # type: ignore[union-attr]
        found.append(Name(path, parameters.split(", ") if parameters else [], (members or "").split()))
    return found


NAMES = known()
ABSENT = [name for name in NAMES if name.path in ray_names.ABSENT]


def found(name: Name) -> Any:
    """What stands for it."""
    module, _, own = name.path.rpartition(".")
    return import_system._find(module, own)


def test_each_name_is_here_or_has_a_reason_of_its_own() -> None:
    assert len(NAMES) > 40
    for name in NAMES:
        assert name in ABSENT or "mpi_runtime" in found(name).__module__, name.path


@pytest.mark.parametrize("name", ABSENT, ids=lambda name: name.path)
def test_what_is_absent_explains_itself(name: Name) -> None:
    value, reason = found(name), re.escape(f"is not here: {ray_names.ABSENT[name.path]}")
    with pytest.raises(NotImplementedError, match=reason):
        value()
    if inspect.isclass(value):
        assert not hasattr(value, "__wrapped__"), "libraries that look at a class see nothing special"
        for one in name.members:
            with pytest.raises(AttributeError, match=f"{name.path}.{one} {reason}"):
                getattr(value, one)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ABSENT], ids=lambda name: name.path)
def test_a_name_takes_what_that_of_ray_takes(name: Name) -> None:
    value = found(name)
    taken = set(inspect.signature(value).parameters)
    absent = [one for one in name.parameters if one not in taken]
    if name.path not in MADE_HERE:
        for one in absent:
            assert one in ADVICE
            with pytest.raises(TypeError, match=rf"Ray's argument {one} of \w+ is not here: \w+"):
                value(**{one: 1})
    here = {*dir(value), *getattr(value, "__dataclass_fields__", ())}
    assert [one for one in name.members if one not in here] == NOT_HERE.get(name.path, "").split()


def test_a_result_is_read_from_a_directory_and_from_nowhere_else() -> None:
    with pytest.raises(ValueError, match="storage_filesystem=1 is not the file system of this host"):
        import_system._find("ray.train", "Result").from_path("results", storage_filesystem=1)
