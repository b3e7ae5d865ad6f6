"""The client: the connection of a process to its rank, its references, its values, and waiting for them."""
