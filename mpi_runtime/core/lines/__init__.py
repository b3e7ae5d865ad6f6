"""Lines: how a program on another host is a driver of a session, through the standard streams of `ssh` or `srun`.

    driver ── socketpair ── dialler ══ ssh or srun ══ `session pipe` ── attendant ── head
                            its child                 hands on its      a thread of the keeper
                                                      streams           and a near driver

The **dialler** is to the driver what a head is: it takes the `Hello`, answers with a `Welcome`, moves frames. The
**attendant** is to the head what a driver on its host is. It lives in the keeper, so it survives the line: srun kills
all that it has started. `session pipe` hands its standard input and output to the attendant, and lives as long as
they are used. So a byte passes no further process.

Both ends count what they send (`numbered.py`). A line that ends, or is silent for `SILENCE_S`, is dialled again, and
each end repeats what the other has not received. So each frame arrives once, and in order, however often and wherever
lines are cut. What each failure does:

- *The line ends or is silent*: both ends wait for another one for at most `reconnect_s`, and the dialler
  dials it.
- *Two lines at once*, since the first looked dead and was not: the one with the larger epoch is used, the other closed.
- *The driver ends or is killed*: its dialler sends `END`, and the head frees at once what belonged to it.
- *The dialler is killed*: the driver has lost its session, and ssh ends with the dialler. The attendant waits for it in
  vain, then closes its connection: the head frees what belonged to the driver.
- *The head or the keeper ends*: `END` the other way if it can be sent, else the next dial is refused.
- *The driver sends more than `KEPT_MAX` while there is no line*: a warning is logged, and the driver waits in `send`.
- *The line is lost for good*: the dialler leaves the reason in a pipe, and the error of the driver names it.
- *The driver does not read*: the dialler acknowledges only what the driver has taken. The attendant then reads
  nothing more from the head, which holds messages back, as for a near driver.

A line of srun is slow. Large values then pass through files in a directory that the dialler makes, if the attendant
sees it too (`objects/passed_files.py`). Both remove it when they end.

A dial costs what `ssh HOST python -c pass` costs, and the import of the command line. A round trip costs two more
processes that read and write than on the host of the session.

- `numbered.py`: frames of a line, counted, kept and repeated; no input or output
- `end.py`: one end of a line: its streams, its frames, signs of life
- `dialler.py`: the process beside the driver
- `dial.py`: one attempt of it to reach the session
- `commands.py`: the commands of ssh and srun, and what their failures mean
- `output.py`: what calls print, on the driver's own standard output and error
- `pipe.py`: the verb `session pipe`
- `arrivals.py`: lines that arrive in the keeper, and whose they are
- `attendant.py`: serves one driver, in the keeper
- `parts.py`: reads and writes large values for a driver that does not share the memory
"""
