"""Fair shares between accounts: the order in which their calls start, and how many run.

The account with the smallest dominant share for its weight goes first. The dominant share is the larger one of its
shares of all CPUs and of all GPUs (dominant resource fairness: Ghodsi and others, NSDI 2011). No running call is
stopped: shares balance as calls end. Calls without an account go first.

While calls of several drivers wait, the driver with the smallest dominant share goes first, before all else.
"""

from __future__ import annotations

from mpi_runtime.scheduler.protocol.events import Spec
from mpi_runtime.scheduler.records.grant_sources import Claimant
from mpi_runtime.scheduler.records.parts import Account
from mpi_runtime.scheduler.records.records import Driver, Family, Function, Queue
from mpi_runtime.scheduler.records.state import State


def account_of(state: State, spec: Spec, driver: Driver | None) -> Account | None:
    """The account of a spec's calls. The weight and the limit that were stated last hold."""
    wanted = spec.account
    if wanted is None:
        return None
    accounts = state.accounts if driver is None else driver.accounts
    account = accounts.get(wanted.name)
    if account is None:
        account = accounts[wanted.name] = Account(wanted.name)
        measure(state)
    account.weight, account.limit = wanted.weight, wanted.limit
    return account


def measure(state: State) -> None:
    """Update the sums of CPUs and GPUs of all accounts, since nodes have joined or were lost."""
    accounts = list(state.accounts.values())
    for driver in state.drivers.values():
        accounts += [state.use, driver.use, *driver.accounts.values()]
    if accounts:
        cpu = sum(node.total.cpu for node in state.nodes.values())
        gpu = sum(sum(node.total.gpu_units) for node in state.nodes.values())
        for account in accounts:
            account.cpu_in_all, account.gpu_in_all = max(cpu, 1), max(gpu, 1)


def look(state: State, dirty: list[Queue]) -> None:
    """Find out whether calls of several drivers wait, before a decision."""
    state.by_turns = bool(state.accounts)
    if state.drivers:
        firsts = [family.first() for family in state.waiting]
        uses = [queue.use for queue in (*dirty, *firsts) if queue is not None and queue.ready]
        state.is_divided = any(use is not uses[0] for use in uses)
        state.by_turns |= state.is_divided or any(driver.accounts for driver in state.drivers.values())
    else:
        state.is_divided = False


def use_of(state: State, function: Function) -> Account | None:
    """What the driver of a function uses; None: there is one driver, and nothing is counted."""
    if not state.drivers:
        return None
    return state.use if function.driver is None else function.driver.use


def is_before(state: State, claimant: Claimant, queue: Queue) -> bool:
    """Whether a source is for a claimant rather than for a queue, with which it is not reserved."""
    if state.is_divided and isinstance(claimant, Family):
        first = claimant.first()
        if first is not None and first.use is not queue.use:
            return first.use.share_with(None) < queue.use.share_with(None)
    return claimant.position() < queue.ready[0].order


def why_not(account: Account | None) -> str:
    """Why the limit of an account holds back its calls; empty: it does not."""
    if account is None or not account.is_full():
        return ""
    return f"{account.running} call(s) of account {account.name!r} run, and no more may run at a time. "
