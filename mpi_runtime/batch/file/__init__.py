"""Batch files: three forms become entries, entries become commands.

`parse.py` calls the reader of the form, checks all entries and reports all problems at once.

- `model.py`: a command, and what it asks of the jobs that run it
- `options.py`: the options of a command: the reader of each, and what does not go together
- `text.py`: the text of a command: placeholders such as `{seed}`, words of bash, the option `launcher`
- `parse.py`: the parser: finds the form, makes groups of commands, reports problems
- `entries.py`: the text of a file within its limits, in three forms; its entries and problems with their places
- `raw_bytes.py`: bytes that are not UTF-8 in a list of commands
- `parameters.py`: rows of parameters for arrays: products, zips, CSV and JSON files
- `selection.py`: chooses the commands of a run: all that are not done, or those named by the user
"""
