"""`ray.util.state`: the lists of `mpi_runtime.util.state` as Ray has them.

- `lists.py`: the functions, with the arguments of Ray's
- `columns.py`: `ray.util.state.common`: limits, options, kinds of things, and the keys of their entries
- `client.py`: `StateApiClient`, which asks for a kind of thing by name
"""
