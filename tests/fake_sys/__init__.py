"""Machines of AMD and Intel as trees of files, and what the vendors' runtimes would show a process on them."""
