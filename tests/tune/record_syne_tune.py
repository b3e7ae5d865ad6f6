"""Writes `syne_tune.json`: what the ASHA of syne-tune decides about the reports of `record_ray`.

python -m tests.tune.record_syne_tune     # in an environment with syne-tune, from the root of the checkout
"""

from __future__ import annotations

import importlib.metadata
import json
import random
from pathlib import Path
from typing import Any

from tests.tune.record_ray import ASHA, FED, made_up

FILE = Path(__file__).with_name("syne_tune.json")
CASES = ("plain", "the least, with other rungs", "a factor that is no integer", "ties")


def decided(name: str) -> dict[str, Any]:
    from syne_tune.optimizer.schedulers.asha import Bracket

    arguments = {key: value for key, value in ASHA[name].items() if key not in FED}
    fed = {key: value for key, value in ASHA[name].items() if key in FED}
    most = arguments.get("max_t", 100)
    sign = 1 if arguments.get("mode") == "min" else -1  # it takes what is to be small
    bracket = Bracket(arguments.get("grace_period", 1), most, arguments.get("reduction_factor", 4), 0)
    reports = made_up(80, random.Random(name), fed)
    events = []
    number, time, value = next(reports)
    while True:
        verdict = "STOP" if time >= most else str(bracket.on_result(number, time, {"v": sign * value}))
        events.append([number, time, value, verdict[0]])
        try:
            number, time, value = reports.send(verdict == "CONTINUE")
        except StopIteration:
            return {"arguments": arguments, "reports": events}


def main() -> None:
    recorded = {"version": importlib.metadata.version("syne-tune"), "asha": {name: decided(name) for name in CASES}}
    FILE.write_text(json.dumps(recorded, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
