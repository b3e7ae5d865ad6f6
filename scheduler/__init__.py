"""The scheduler: a value that takes events and returns effects. No input or output, no clock, no environment."""

if __name__ != "mpi_runtime.scheduler":
    raise ImportError("import this package as mpi_runtime.scheduler, not by its folder's name")
