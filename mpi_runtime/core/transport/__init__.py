"""Communication: messages, their codec, channels between the processes of a rank and between ranks.

Look for a message in `messages.py`, and for events and effects of the scheduler in `scheduler/protocol/`.

- `messages.py`: every message that the scheduler does not see, and the unions that are decoded
- `codec.py`: frames: lists of messages in msgpack
- `start.py`: the first messages between driver and head
- `hello.py`: the first message of a program that connects to a session
- `local.py`: connections to local addresses, and their users
- `channel.py`: frames on a socketpair between a client and its rank
- `tokens.py`: a counter of calls that executor and agent share, so that one of them owns a call
- `unsent_frame.py`: an executor's unsent frame in shared memory, which outlives the executor
- `base.py`: the interface of transports between ranks
- `mpi.py`: the transport on MPI; the only importer of mpi4py
- `alone.py`: the transport of a job of one rank
- `doorbell.py`: wakes sleeping ranks of the same host, and passes them descriptors
- `poller.py`: the sockets and pipes that a rank waits for, each with its handler
- `polling.py`: decides whether to poll for a moment before sleeping
- `mpi_libraries.py`: workarounds for MPI libraries: yields of Open MPI, files in /dev/shm
"""
