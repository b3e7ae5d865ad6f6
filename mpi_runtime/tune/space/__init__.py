"""Spaces: what each parameter may be, and the configurations that follow.

- `domains.py`: domains such as `uniform` and `choice`, and `grid_search`
- `bounds.py`: checks the bounds and steps of domains
- `samplers.py`: how domains are sampled, described in Ray's words, and generators as libraries pass them
- `variants.py`: from a space to configurations: grids, and random values for the rest
- `flat.py`: a space with names such as `layer/units`, for searchers that learn
- `unit_cube.py`: values as numbers between 0 and 1, for models
"""
