"""Files as data sets, and data sets as files.

- `reading.py`: data sets of files
- `opening.py`: a data set of files of one format
- `finding.py`: finds files, and gives them an order
- `schemas.py`: the columns of files of Parquet, which need not all have the same ones
- `formats.py`: reads a file of one format
- `webdataset.py`: tar files with samples
- `saving.py`: the methods of a data set that write files
- `writing.py`: files of data sets
- `finished.py`: with a journal, what is written and is not recreated
"""
