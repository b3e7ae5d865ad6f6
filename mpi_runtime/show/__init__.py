"""Log lines, tables and pages: what people look at beside the output of their program.

- `log.py`: log lines about a job, through `logging` if the program has set it up
- `tables.py`: lists that a notebook shows as tables
- `page.py`: the builder of HTML reports: charts, failures, a table
- `job.py`: the report of a job: `init(report="job.html")`
"""
