"""What a graph of calls would have taken with other resources: the same scheduler in virtual time."""
