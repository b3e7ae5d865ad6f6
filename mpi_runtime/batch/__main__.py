"""`python -m mpi_runtime.batch FILE`: what ranks and the scripts of submitted batches start."""

import sys

from mpi_runtime.batch.cli.options import read_options
from mpi_runtime.batch.cli.running import run_batch
from mpi_runtime.errors import JournalError, LaunchError


def main() -> None:
    """Run the batch and exit."""
    try:
        sys.exit(run_batch(read_options(sys.argv[1:])))
    except (JournalError, LaunchError) as error:
        print(f"mpi-runtime batch: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
