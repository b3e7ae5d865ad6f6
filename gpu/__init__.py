"""GPUs: finding them, choosing some for a request, arrays on them. Imports nothing else of mpi_runtime."""

if __name__ != "mpi_runtime.gpu":
    raise ImportError("import this package as mpi_runtime.gpu, not by its folder's name")
