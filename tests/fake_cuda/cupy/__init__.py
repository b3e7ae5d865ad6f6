"""A stand-in: see `tests/fake_cuda`."""
