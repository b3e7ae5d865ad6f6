"""Fair shares between accounts: the order in which their calls start, and how many run.

The account with the smallest dominant share for its weight goes first. The dominant share is the larger one of its
shares of all CPUs and of all GPUs (dominant resource fairness: Ghodsi and others, NSDI 2011). No running call is
stopped: shares balance as calls end. Calls without an account go first.
"""

from __future__ import annotations

from mpi_runtime.scheduler.protocol.events import Spec
from mpi_runtime.scheduler.records.parts import Account
from mpi_runtime.scheduler.records.state import State


def account_of(state: State, spec: Spec) -> Account | None:
    """The account of a spec's calls. The weight and the limit that were stated last hold."""
    wanted = spec.account
    if wanted is None:
        return None
    account = state.accounts.get(wanted.name)
    if account is None:
        account = state.accounts[wanted.name] = Account(wanted.name)
        measure(state)
    account.weight, account.limit = wanted.weight, wanted.limit
    return account


def measure(state: State) -> None:
    """Update the sums of CPUs and GPUs of all accounts, since nodes have joined or were lost."""
    if state.accounts:
        cpu = sum(node.total.cpu for node in state.nodes.values())
        gpu = sum(sum(node.total.gpu_units) for node in state.nodes.values())
        for account in state.accounts.values():
            account.cpu_in_all, account.gpu_in_all = max(cpu, 1), max(gpu, 1)


def why_not(account: Account | None) -> str:
    """Why the limit of an account holds back its calls; empty: it does not."""
    if account is None or not account.is_full():
        return ""
    return f"{account.running} call(s) of account {account.name!r} run, and no more may run at a time. "
