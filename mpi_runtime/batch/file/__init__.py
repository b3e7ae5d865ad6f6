"""Batch files: three forms become entries, entries become commands.

`parse.py` calls the reader of the form, checks all entries and reports all problems at once.

- `model.py`: a command: its text and its options, each with a reader
- `values.py`: reads the values of options
- `launchers.py`: the option `launcher`: programs that start the ranks of a command
- `parse.py`: the parser: finds the form, makes groups of commands, reports problems
- `entries.py`: the text of a file within its limits; entries and problems with their lines and columns
- `lines.py`: the form with one shell command a line
- `toml.py`: the form in TOML
- `json.py`: the form with one JSON object a line
- `shells.py`: notes on commands that are written for bash, and run by another shell
- `templates.py`: placeholders in commands, such as `{seed}`
- `parameters.py`: rows of parameters for arrays: products, zips, CSV and JSON files
- `selection.py`: chooses the commands of a run: all that are not done, or those named by the user
"""
