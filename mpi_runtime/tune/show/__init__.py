"""What people see of an experiment, while it runs and after.

- `progress.py`: the table of trials in a terminal or a notebook
- `remaining.py`: how long an experiment still takes
- `loggers.py`: files of each trial: JSON lines, CSV, TensorBoard
- `plots.py`: plots of an experiment, as matplotlib axes
- `shown.py`: an experiment as pages and plots see it
- `page.py`: one HTML page about an experiment
"""
