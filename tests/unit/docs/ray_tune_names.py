"""The public names of `ray.tune`, read from the source of an installed Ray, as lines of `ray_tune_names.txt`.

    .venv-bench/bin/python -m tests.unit.docs.ray_tune_names > tests/unit/docs/ray_tune_names.txt

A line is a name as it is imported below `ray.tune`, its parameters, and after a colon its public methods and
properties. Nothing of Ray is imported.
"""

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

MODULES = {
    # Module of Ray: names that its `__all__` lacks or that have none; None: what `__all__` has.
    "": None,
    "schedulers": None,
    "schedulers.pb2": ["PB2"],
    "search": None,
    **{
        f"search.{name}": None
        for name in ("ax", "bayesopt", "bohb", "hebo", "hyperopt", "nevergrad", "optuna", "zoopt")
    },
    "stopper": None,
    "logger": None,
    "trainable": None,
    "experiment": ["Trial"],
    "utils": ["wait_for_gpu"],
    **{
        f"integration.{name}": ["TuneReportCheckpointCallback"]
        for name in ("keras", "lightgbm", "pytorch_lightning", "xgboost")
    },
}
INNER = {"TrialScheduler", "Searcher", "SearchAlgorithm", "LoggerCallback", "TuneReporterBase", "Trainable", "Stopper"}
"""Whoever inherits from these has their methods, and others only for Ray itself."""
PLAIN = {"Trial", "TuneReportCheckpointCallback"}
Found = ast.ClassDef | ast.FunctionDef


def definitions(home: Path) -> dict[str, list[tuple[Path, Found]]]:
    """Functions and classes by name."""
    found: dict[str, list[tuple[Path, Found]]] = {}
    for path in [*home.glob("tune/**/*.py"), *home.glob("air/**/*.py"), *home.glob("train/_*.py")]:
        if "examples" not in path.parts:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, Found):
                    found.setdefault(node.name, []).append((path, node))
    return found


def exported(path: Path) -> list[str]:
    """The content of `__all__`."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    raise AssertionError(path)


def bases(node: Found, known: dict[str, list[tuple[Path, Found]]]) -> Iterator[ast.ClassDef]:
    """A class and those that it inherits from, as far as they are Ray's."""
    if isinstance(node, ast.ClassDef):
        yield node
        for base in node.bases:
            name = getattr(base, "id", getattr(base, "attr", "")).lstrip("_").removeprefix("Train")
            for _, one in known.get(name, []):
                if one is not node:
                    yield from bases(one, known)
                    break


def parameters(node: Found, known: dict[str, list[tuple[Path, Found]]]) -> list[str]:
    """What it is called with; private parameters left out."""
    names: list[str] = []
    for one in [node] if isinstance(node, ast.FunctionDef) else bases(node, known):
        init = one if isinstance(one, ast.FunctionDef) else method(one, "__init__")
        if init is not None:
            given = init.args
            names = [arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            break
        names += [
            each.target.id for each in one.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        ]
    return [name for name in dict.fromkeys(names) if name != "self" and not name.startswith("_")]


def method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """The method of this name; None: it has none."""
    return next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == name), None)


def methods(node: Found, known: dict[str, list[tuple[Path, Found]]]) -> list[str]:
    """Public methods of the class, without those that all schedulers or all searchers have."""
    found: list[str] = []
    chain = list(bases(node, known))
    inner = INNER & {one.name for one in chain[1:]} or node.name in PLAIN
    for one in [] if inner else chain:
        found += [each.name for each in one.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    return sorted(dict.fromkeys(found))


def lines(home: Path) -> list[str]:
    """All lines."""
    known = definitions(home)
    seen: set[str] = set()
    found = []
    for module, names in MODULES.items():
        place = home / "tune" / module.replace(".", "/")
        for name in names or exported(place / "__init__.py"):
            if name in seen or name.startswith(("_", "UN")) or name not in {*known, "ASHAScheduler"}:
                continue  # constants, and what is another library's
            if not module.startswith("integration"):
                seen.add(name)
            there = known.get(name) or known.get({"ASHAScheduler": "AsyncHyperBandScheduler"}.get(name, ""), [])
            near = [node for path, node in there if place in (path.parent, path.with_suffix(""))]
            node = (near or [node for _, node in there])[0]
            of = f": {' '.join(each)}" if (each := methods(node, known)) else ""
            found.append(f"{module}{'.' if module else ''}{name}({', '.join(parameters(node, known))}){of}")
    return sorted(found)


def installed() -> Path | None:
    """Where Ray is; None: it is not here."""
    spec = find_spec("ray")
    return Path((spec.submodule_search_locations or [""])[0]) if spec and spec.origin else None


if __name__ == "__main__":
    ray = installed()
    print("\n".join(lines(ray)) if ray else "Ray is not installed here")
