"""A directory in which the finished calls of a job are recorded, so that a later run need not make them again."""
