"""`python -m benchmarks`: this project and others, side by side; the other benchmarks are named in README.md."""

from benchmarks.peers import main

main()
