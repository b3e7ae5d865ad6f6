"""The processes that MPI starts: head and workers, with the agent of each."""
