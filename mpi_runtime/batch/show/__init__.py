"""What people see of a batch, while it runs and after.

- `overview.py`: the state of a batch in numbers and lines, with its graph
- `live.py`: the view in a terminal while the batch runs, drawn by rich
- `report.py`: the report: one HTML file
"""
