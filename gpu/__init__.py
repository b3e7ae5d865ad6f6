"""GPUs: what they are, which a process may use, how several are chosen. Knows nothing of the rest of mpi_runtime."""

if __name__ != "mpi_runtime.gpu":
    raise ImportError("import this package as mpi_runtime.gpu, not by its folder's name")
