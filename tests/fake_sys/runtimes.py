"""What the runtimes of the vendors show a process with an environment, written for tests from their documentation.

These are not the functions of `gpu/`: they start from the number of devices, and say which of them a program counts, in
the order in which it numbers them.
"""

from __future__ import annotations

from collections.abc import Mapping


def cuda(count: int, env: Mapping[str, str]) -> list[int]:
    """By CUDA, where all devices are alike: numbers up to the first that is wrong."""
    value = env.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return list(range(count))
    found: list[int] = []
    for entry in value.split(","):
        if not entry.strip().isdecimal() or int(entry) >= count:
            break
        found.append(int(entry))
    return found


def hip(count: int, env: Mapping[str, str]) -> list[int]:
    """By ROCr and then by HIP."""
    left = list(range(count))
    rocr = env.get("ROCR_VISIBLE_DEVICES")
    if rocr is not None:
        kept = []
        for entry in rocr.split(","):
            if not entry.strip().isdecimal() or int(entry) >= count or int(entry) in kept:
                break
            kept.append(int(entry))
        left = kept
    value = env.get("HIP_VISIBLE_DEVICES") or env.get("CUDA_VISIBLE_DEVICES") or ""
    if not value:
        return left
    chosen: list[int] = []
    for entry in value.split(","):
        if not entry.isdecimal() or entry != str(int(entry)) or int(entry) >= len(left):
            break
        if left[int(entry)] not in chosen:
            chosen.append(left[int(entry)])
    return chosen


def level_zero(count: int, env: Mapping[str, str]) -> list[int]:
    """By Level Zero and then by SYCL, where a number is a device: its own order, whatever that of the entries."""
    mask = env.get("ZE_AFFINITY_MASK") or ""
    left = sorted({int(entry) for entry in mask.split(",") if int(entry) < count}) if mask else list(range(count))
    selector = env.get("ONEAPI_DEVICE_SELECTOR", "*:*")
    listed = selector.partition(":")[2]
    if listed in ("*", "gpu"):
        return left
    return [left[int(entry)] for entry in listed.split(",") if int(entry) < len(left)]
