"""cubed: chunked arrays on `RayExecutor`."""

import tempfile

import cubed
import cubed.array_api as xp
from cubed.runtime.executors.ray import RayExecutor


def main():
    with tempfile.TemporaryDirectory() as folder:
        spec = cubed.Spec(folder, allowed_mem="200MB", executor=RayExecutor())
        a = xp.asarray([[1, 2, 3], [4, 5, 6], [7, 8, 9]], chunks=(2, 2), spec=spec)
        print((a + a).compute().tolist(), int(xp.sum(a).compute()))


if __name__ == "__main__":
    main()
