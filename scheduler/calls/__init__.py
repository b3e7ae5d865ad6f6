"""Calls from submission to their end.

- `tasks.py`: submission, waits for arguments, ends, retries
- `copies.py`: copies of arguments that arrive, fail to arrive, or are no longer needed
- `refusals.py`: events that break the protocol, and the end of the executor that sent them
"""
