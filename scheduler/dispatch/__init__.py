"""Dispatch: gives ready calls to executors.

A ready call enters a queue of calls with the same request. A decision serves queues in turn: it hires executors, sends
calls some milliseconds ahead, and steals calls back.

- `queues.py`: queues of ready calls, one for each request, and the order in which a decision serves them
- `dispatch.py`: serves a queue: sends calls, takes grants back
- `executors.py`: finds an executor for a queue: an idle one, or a fork, if that is worth it
- `following.py`: sends calls behind the calls that make their arguments
- `alternatives.py`: calls that run with one of several requests, the fastest that has room
- `locality.py`: prefers the node with most of a call's arguments, and limits that wait
- `dependencies.py`: brings the arguments of a call to the host of its executor, then sends the call
- `reservations.py`: keeps nodes free for large requests; stops idle executors
- `backfill.py`: lets short calls use a reserved node
- `fair_shares.py`: fair shares between accounts
- `stealing.py`: takes back calls that were sent ahead, for executors with room
- `blocked.py`: executors that wait for objects lend their CPU
- `backoff.py`: pauses before a call runs again after several quick deaths
- `deadline.py`: holds back calls that cannot finish before the job's time ends
"""
