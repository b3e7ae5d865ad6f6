"""What `tune` uses of reinforcement learning, beside its public names: algorithms by name, as trials."""

from mpi_runtime.rl import config, trainable

__all__ = ["config", "trainable"]
