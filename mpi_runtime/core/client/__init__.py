"""The client: the connection of a driver or executor to its rank, its references, its values, its waits.

`client.py` puts the parts together. The parts that need no lock and no socket (`references.py`, `outgoing.py`,
`incoming.py`, `executor_feed.py`, `blocking.py`) also run in the simulator.

- `client.py`: the client: makes and connects all parts
- `current.py`: the client of this process
- `scope.py`: the running call, from which new ids derive, and the settings that its calls inherit
- `submitting.py`: submits calls, actors, values and placement groups, and makes their references
- `object_ref.py`: `ObjectRef`, and the references behind handles of actors
- `references.py`: the count of references of this process, and the values that have arrived
- `outgoing.py`: outgoing messages in the order that the scheduler needs
- `outbox.py`: sends them: at once on a quiet connection, together on a busy one
- `connection.py`: the connection: one waiting thread reads for all
- `incoming.py`: takes incoming messages and items, and knows which waits are complete
- `waiting.py`: `get`, `wait`, and the next item of a generator
- `stalls.py`: log lines about a wait without progress
- `store.py`: writes values into messages or the arena, and reads them
- `far_arena.py`: the same memory, for a driver on another host: in parts, through its line
- `spare_extents.py`: extents granted ahead of use, so that writes of one size skip the request
- `questions.py`: questions to the scheduler and to the agent, with their answers
- `generators.py`: generators of references to items
- `futures.py`: futures of values: one thread waits for all of them
- `blocking_future.py`: the future class itself, loaded on first use
- `executor_feed.py`: the input of an executor: calls to run, specs, consumed items
- `blocking.py`: reports when the call of an executor waits, so that its CPU is lent
- `interrupts.py`: delays Ctrl-C until a message is complete, or the client is loaded; repeats what Python ignores
- `typed_ids.py`: ids as classes, for programs written for Ray
"""
