"""Runs streams: all stages of a data set at once, in the process that asks for its rows.

- `stream.py`: decides which stage does what next; pure
- `records.py`: blocks, tasks, stages and orders
- `running.py`: performs the orders with tasks and actors
- `storing.py`: runs a stream to its end, and keeps its blocks
- `calls.py`: the calls of tasks
- `coroutines.py`: calls of asynchronous functions, several at a time
- `lost_blocks.py`: rebuilds blocks that were lost with a host
- `making_way.py`: finds who gives way if a stream waits for what it keeps, such as a GPU
- `progress.py`: the line of a running stream, and its table
"""
