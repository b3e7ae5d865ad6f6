"""Log lines, tables and pages: what people look at beside the output of their program.

- `command_line.py`: what several verbs have: arguments, `--json`, verbs of a directory
- `log.py`: log lines about a job, through `logging` if the program has set it up
- `terminal.py`: output of unknown programs, without what could change a terminal
- `live_picture.py`: a picture in a terminal that is redrawn in its place
- `ctrl_c.py`: the first Ctrl-C ends gently
- `tables.py`: lists that a notebook shows as tables
- `filters.py`: conditions on their entries
- `bars.py`: a bar in a notebook while many values are awaited
- `numbers.py`: three digits, units, times of the day
- `page.py`: builds every page from a document of blocks; `assets/` has its style and scripts
- `charts.py`: lanes, use over time, and colours of functions, for pages
- `facts.py`: all that is known about a job
- `measures.py`: what was measured on each host, with curves of the last minutes
- `sections.py`: the sections of its page: functions, actors, objects, timeline, output, calls
- `node_sections.py`: its nodes: a table of few, a heat map of many
- `job.py`: the document of a job, while it runs and when it has ended: `init(report="job.html")`
- `training.py`: the document of a training of `mpi-runtime rl train`
- `live.py`: collects what a running job answers, second by second
- `estimates.py`: when a job may be done, with a range
- `stacks.py`: the stack of a running process
- `server.py`: the small server of `mpi-runtime view`
- `metrics.py`: the numbers of a job as OpenMetrics text
"""
