"""What people see of a batch, while it runs and after.

- `overview.py`: the state of a batch in numbers and lines, with its graph
- `report.py`: the report: one HTML file
"""
