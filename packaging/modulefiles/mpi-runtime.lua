-- For Lmod: a virtual environment that all users of a site share. Copy to MODULEPATH as mpi-runtime/0.1.0.lua.
--   python3 -m venv /apps/mpi-runtime/0.1.0 && /apps/mpi-runtime/0.1.0/bin/pip install . mpi4py
help("Tasks and actors on plain MPI, with the API of Ray's core. mpi-runtime --help; mpi-runtime doctor")
whatis("Name: mpi-runtime")
whatis("Version: 0.1.0")
conflict("mpi-runtime")

-- The MPI with which mpi4py was built:
-- depends_on("openmpi/5.0")

local root = os.getenv("MPI_RUNTIME_ROOT") or "/apps/mpi-runtime/0.1.0"
prepend_path("PATH", pathJoin(root, "bin"))
