"""What needs all rows of a data set at once: they are stored, and get new places.

- `exchange.py`: cuts blocks into pieces, and gathers new blocks of them
- `sorting.py`: orders, and parts by ranges of keys
- `grouping.py`: groups of rows with equal keys
- `joining.py`: rows of two data sets with equal keys
- `dividing.py`: rows by their places: their number, other blocks, parts, and those of several data sets as one
- `lacking.py`: columns that some blocks lack
- `reductions.py`: what a reduction is
- `aggregating.py`: sums, bounds and means
"""
