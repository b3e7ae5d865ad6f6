"""Values: the directory of objects, ends of calls, copies, lineage, keys of the journal.

- `message_checks.py`: checks of what clients send
- `objects.py`: the directory: values and places, waiters, reference counts
- `retries.py`: whether a call runs again, and the retry that this uses up
- `call_ends.py`: ends of calls: return values, and the release of arguments
- `items.py`: items of calls that yield
- `spreading.py`: which rank fetches a value, and from which source
- `lineage.py`: calls that are remembered so that lost values can be rebuilt
- `journaling.py`: which calls are recorded in the journal, and which are recalled
"""
