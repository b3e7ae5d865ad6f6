"""Calls from submission to their end.

- `tasks.py`: submission, waits for arguments, ends, retries
- `unfilled.py`: calls that come back from an executor that lacks an argument
- `copies.py`: copies of arguments that arrive, fail to arrive, or are no longer needed
- `refusals.py`: impossible events of ranks, and the end of executors that break the protocol
"""
