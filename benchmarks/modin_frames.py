"""How long does modin take on this runtime, on Ray, and plain pandas, for a data frame of 500 MB?

.venv-as-ray/bin/python -m mpi_runtime --as-ray benchmarks/modin_frames.py
.venv-as-ray/bin/python -m mpi_runtime run --as-ray -n 4 benchmarks/modin_frames.py
python benchmarks/modin_frames.py --engine ray        where modin[ray] is installed
python benchmarks/modin_frames.py --engine pandas
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def main() -> None:
    """Measure, and print seconds: the best of some runs of each operation."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=("ray", "pandas"), default="ray")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if options.engine == "pandas":
        import pandas as pd
    else:
        import modin.config
        import modin.pandas as pd

        modin.config.Engine.put("Ray")
    rows = options.megabytes * 1_000_000 // 32
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"key": rng.integers(0, 1000, rows), **{name: rng.random(rows) for name in "abc"}})
    other = pd.DataFrame({"key": np.arange(1000), "d": np.arange(1000.0)})
    operations: dict[str, Callable[[], Any]] = {
        "groupby": lambda: frame.groupby("key").mean(),
        "merge": lambda: frame.merge(other, on="key"),
        "sort": lambda: frame.sort_values("a"),
    }
    for name, operation in operations.items():
        seconds = []
        for _ in range(options.runs):
            begin = time.perf_counter()
            result = operation()
            if hasattr(result, "_query_compiler"):
                result._query_compiler.execute()
            seconds.append(time.perf_counter() - begin)
        print(f"{options.engine} {name}: {min(seconds):.2f} s", flush=True)


if __name__ == "__main__":
    main()
