"""Scripts that `submit` of earlier versions wrote start this; see `mpi_runtime/batch/__main__.py`."""

from mpi_runtime.batch.__main__ import main

if __name__ == "__main__":
    main()
