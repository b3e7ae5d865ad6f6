"""What needs all rows of a data set at once: they are stored, and get new places.

- `exchange.py`: cuts blocks into pieces, and gathers new blocks of them
- `sorting.py`: orders, and parts by ranges of keys
- `grouping.py`: groups of rows with equal keys
- `dividing.py`: numbers of rows, and the same rows in another number of blocks
"""
