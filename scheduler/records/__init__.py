"""The state: all tables and records. They decide nothing; only `lifecycle.advance` changes the state of a record.

A scheduler must know, at each moment, which call waits for what, who runs what, and what is left of each node. A record
is the answer for one thing. The most important ones, and how they refer to each other:

    Task --> Function
     |
     +-----> Executor --> Source: the Node or Bundle that its grant was taken from
     |          |
     +-----> Queue -----> Family --> Source: reserved while the family waits

and back: an executor has its `assigned` tasks, a queue its `ready` tasks and its executors, a node its idle executors.

- A *task* is a call that has not ended. Its *function* has the spec, and what was measured of such calls.
- A *queue* has the ready tasks that can run on the same executors: with equal requests, environment and place.
- An *executor* is a process. It holds a *grant*, an amount of CPUs, GPUs and so on, for one queue, or for its actor.
- A *source* is a node, or a bundle of a placement group: grants are taken from it and return to it.
- A *family* is the queues that differ only in time limits. It waits, and nodes are reserved for it, as a whole.
- A *client* sends events: a driver or an executor. An object counts the clients, tasks and objects that hold it.

What always holds:

- An executor has a grant exactly while it has assigned tasks or is an actor.
- The total of a source is what is free of it, its grants, and on a node its bundles. A call that waits in `get` lends
  its CPU. When it continues, the CPU may be in use, so free CPUs may be negative for a while.
- A task is in one state (`lifecycle.py`), and only `advance` moves it there. A move that is not allowed is a bug: it
  raises with the story of the task.

Not obvious:

- The records refer to each other in circles, so they are in one module, `records.py`, below all behaviour. What several
  modules do to one record is a method of it.
- They are Structs with `gc=False`: Python's collector would look through a million of them. `Scheduler.close` takes the
  circles apart instead. `eq=False`: a record is compared, and is a key of a dict, by its identity.
- What most records of a kind lack, such as a stream of values, is a record of its own (`parts.py`), or None.
- A queue keeps tasks that were cancelled, and counts them as `withdrawn`: to search for them would cost more.

Its modules:

- `state.py`: all tables of the scheduler, and the effects gathered so far
- `records.py`: calls, actors, executors, ranks, nodes, queues
- `parts.py`: parts of these that most of them lack: a stream, saved states, a charge
- `statistics.py`: what is kept of the past, for people: attempts, kinds of errors, totals
- `lifecycle.py`: states and allowed moves of calls, actors, objects, executors; their stories
- `grant_sources.py`: nodes and bundles as sources of grants, and reservations of them
- `index.py`: finds a node with room without a search
- `timers.py`: alarms, the earliest first
"""
