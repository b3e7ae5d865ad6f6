"""Command lines that a real shell reads as a batch writes them."""

import subprocess

from mpi_runtime.batch.file.text import fill


def test_a_real_shell_reads_it_so_too() -> None:
    value = "a 'b' \"c\" $HOME `ls` \\ *\n;#"
    done = subprocess.run(
        ["/bin/sh", "-c", fill("printf %s {x}", {"x": value})], capture_output=True, text=True, check=True
    )
    assert done.stdout == value
