"""Tracebacks that a driver prints, and what errors import."""

import subprocess
import sys
import textwrap


def test_uncaught_in_a_driver_prints_the_remote_traceback() -> None:
    program = """
        from mpi_runtime.errors.remote import make_task_error

        def mine():
            raise KeyError("absent")

        try:
            mine()
        except KeyError as error:
            remote = make_task_error(error, "mine", 77, 2, "n3")
        raise remote
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert "mpi_runtime.errors.TaskError(KeyError): mine() failed: pid=77, rank=2, host=n3" in run.stderr
    assert run.stderr.rstrip().endswith("KeyError: 'absent'")


def test_errors_import_only_modules_of_their_floor() -> None:
    ours = "sorted(name.partition('.')[2] for name in sys.modules if name.startswith('mpi_runtime.'))"
    program = f"import sys, mpi_runtime.errors.remote; print(*{ours})"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    found = ["errors", "errors.copies", "errors.frames", "errors.remote", "listings"]
    assert run.stdout.split() == found  # the last one finds all others
