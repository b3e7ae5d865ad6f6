"""Tools for user programs, on top of the public names."""
