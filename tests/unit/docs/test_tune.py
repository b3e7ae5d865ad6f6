"""docs/tune_from_ray.md: each public name of `ray.tune` has a row, and each row is true.

`ray_tune_names.txt` has the names of Ray 2.60 with their parameters and methods; where Ray is installed it is compared
with Ray.
"""

import contextlib
import inspect
import re
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pytest

from mpi_runtime import tune
from tests.helpers import ROOT
from tests.unit.docs import ray_tune_names

LIST = (ROOT / "tests" / "unit" / "docs" / "ray_tune_names.txt").read_text().splitlines()
ROW = re.compile(r"^\| `([\w.]+)` \| (?:`([\w.]+)`|(no)) \| (.*) \|$", re.MULTILINE)


@dataclass
class Name:
    """What Ray has."""

    parameters: list[str]
    methods: list[str]


@dataclass
class Row:
    """What the page says."""

    here: str
    text: str

    @property
    def without(self) -> set[str]:
        """What it says is not here."""
        part = re.search(r"without ((?:`\w+`(?:, | and )?)+)", self.text)
        return set(re.findall(r"`(\w+)`", part[1])) if part else set()


def known() -> dict[str, Name]:
    """The list."""
    found = {}
    for line in LIST:
        name, parameters, methods = re.fullmatch(r"([\w.]+)\((.*?)\)(?:: (.*))?", line).groups()  # type: ignore[union-attr]
        found[name] = Name(parameters.split(", ") if parameters else [], (methods or "").split())
    return found


NAMES = known()
ROWS = {
    name: Row(here or no, text)
    for name, here, no, text in ROW.findall((ROOT / "docs" / "tune_from_ray.md").read_text())
}


def resolved(path: str) -> Any:
    """What a name below `mpi_runtime.tune` stands for."""
    return reduce(getattr, path.split("."), tune)


def missing(value: Any, name: Name) -> set[str]:
    """Parameters and methods that Ray has and we do not. `**more` takes those of the base class."""
    taken: set[str] = set()
    for one in value.__mro__[:-1] if inspect.isclass(value) else [value]:
        with contextlib.suppress(ValueError):  # exceptions say nothing
            taken |= set(inspect.signature(one).parameters)
    members = set(dir(value)) | set(getattr(value, "__annotations__", {}))
    members |= set(re.findall(r"self\.(\w+)\b[^=]*= ", source_of(value)))
    return {one for one in (*name.parameters, *name.methods) if one not in taken | members}


def source_of(value: Any) -> str:
    """The text of a function, or of the functions of a class: Python looks for classes where they are offered."""
    texts = []
    for one in vars(value).values() if inspect.isclass(value) else [value]:
        with contextlib.suppress(OSError):  # `dataclass` has made it
            texts += [inspect.getsource(one)] if inspect.isfunction(one) else []
    return "\n".join(texts)


def test_every_name_has_a_row_and_no_other() -> None:
    assert len(NAMES) > 80
    assert sorted(ROWS) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_tells_the_truth(name: str) -> None:
    row = ROWS[name]
    if row.here == "no":
        assert len(row.text) > 5, "a reason"
        assert name.rpartition(".")[2] not in tune.__all__
        return
    assert row.without == missing(resolved(row.here), NAMES[name])


def test_the_list_is_that_of_ray() -> None:
    ray = ray_tune_names.installed()
    if ray is None:
        pytest.skip("Ray is not installed here")
    assert ray_tune_names.lines(ray) == LIST


def test_absent_arguments_of_ray_raise_advice() -> None:
    absent = [(name, one) for name, had in NAMES.items() for one in had.parameters if one in ROWS[name].without]
    assert len(absent) > 20
    for name, argument in absent:
        target = resolved(ROWS[name].here)
        if target is not tune.Trainable:  # its objects are made for trials
            with pytest.raises(TypeError, match=rf"Ray's argument {argument} of \w+ is not here: \w+"):
                target(**{argument: 1})


def test_arguments_of_ray_train_raise_advice() -> None:
    pairs: list[tuple[Any, str]] = [
        (tune.FailureConfig, "controller_failure_limit"),
        (tune.RunConfig, "sync_config"),
        (tune.report, "checkpoint_upload_mode"),
    ]
    for target, argument in pairs:
        with pytest.raises(TypeError, match=rf"Ray's argument {argument} of \w+ is not here: \w+"):
            target(**{argument: 1})
    assert tune.RunConfig(sync_config=None), "None asks for nothing"  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'nonsense'"):
        tune.RunConfig(nonsense=1)  # type: ignore[call-arg]
