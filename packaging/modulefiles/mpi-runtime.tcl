#%Module1.0
# For environment-modules: as mpi-runtime.lua. Copy to MODULEPATH as mpi-runtime/0.1.0.
module-whatis "Tasks and actors on plain MPI, with the API of Ray's core"
conflict mpi-runtime

# The MPI with which mpi4py was built:
# module load openmpi/5.0

set root /apps/mpi-runtime/0.1.0
if {[info exists env(MPI_RUNTIME_ROOT)]} { set root $env(MPI_RUNTIME_ROOT) }
prepend-path PATH $root/bin
