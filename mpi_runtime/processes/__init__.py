"""Each file is one kind of process, or what two of them share."""
