"""mpi_runtime for Spack: `package.py` of `py-mpi-runtime`, in a repository of the site."""

from spack_repo.builtin.build_systems.python import PythonPackage
from spack.package import *


class PyMpiRuntime(PythonPackage):
    """Tasks and actors on plain MPI, with the API of Ray's core."""

    homepage = "https://example.invalid/mpi-runtime"  # where your site keeps its clone
    git = "https://example.invalid/mpi-runtime.git"

    license("MIT")

    version("0.1.0", tag="v0.1.0")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-cloudpickle@3:", type=("build", "run"))
    depends_on("py-msgspec@0.18.6:", type=("build", "run"))
    depends_on("py-numpy@1.24:", type=("build", "run"))
    depends_on("py-nvidia-ml-py@12.555:", type=("build", "run"))
    depends_on("py-pathspec@0.12:", type=("build", "run"))
    depends_on("py-threadpoolctl@3.5:", type=("build", "run"))
    depends_on("py-tomli@2:", type=("build", "run"), when="^python@:3.10")
    depends_on("py-mpi4py@4.1:", type="run")  # with the site's MPI
