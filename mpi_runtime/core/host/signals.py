"""Signals that a batch system or a terminal sends to all processes of a job. They are for the driver alone.

`#SBATCH --signal=USR2@60`, `scancel --signal`, `srun`, `pkill` and launchers send one signal to drivers, ranks and
executors. Processes of ours that run no user code ignore it. What the driver does about it decides: if it ends, they
end. Left out are signals by which a process is interrupted by itself, such as SIGALRM.
"""

import signal

FOR_DRIVER = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""SIGTERM is not among them, because ranks end by it."""
_NEWS = (signal.SIGUSR1, signal.SIGUSR2)
_ENDS = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGXCPU)
IGNORE = (
    f"import _signal as s; m = {[int(number) for number in FOR_DRIVER]}; [s.signal(n, s.SIG_IGN) for n in m]; "
    "s.pthread_sigmask(s.SIG_UNBLOCK, m); del s, m"
)
"""Code for the first moment of an interpreter. `signal` itself would load five more modules before they are found by
listings."""


def ignore(*more: int) -> None:
    """Ignore these signals, and `more`: this process runs no user code."""
    for number in (*FOR_DRIVER, *more):
        signal.signal(number, signal.SIG_IGN)


def listen(in_batch_job: bool) -> None:
    """Set the signals of an executor, before its first user code, which may set others.

    The driver may need executors to save data before it ends the job, so they survive what a batch system sends.
    Outside of batch jobs a signal that ends processes was sent to this one. A handler, not SIG_IGN: programs that a
    task starts have the default again.
    """
    for number in (*FOR_DRIVER, *_ENDS):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (*_NEWS, *(_ENDS if in_batch_job else ())):
        signal.signal(number, lambda *_: None)
