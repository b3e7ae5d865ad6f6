"""Stand-ins for cupy and torch that have nothing but their errors: a directory for PYTHONPATH."""
