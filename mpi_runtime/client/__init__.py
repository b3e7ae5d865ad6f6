"""The client: a process's line to its rank, its references, its values, and waiting for them."""
