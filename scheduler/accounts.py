"""Fair shares: what the calls of each account may use of the whole, while calls of others wait.

The account goes first of which the least is used for its weight. What counts is its dominant share, the largest of its
shares of all CPUs and of all GPUs (dominant resource fairness: Ghodsi and others, NSDI 2011). Nobody is stopped for it:
shares are balanced as calls end. Calls without an account go before those with one.
"""

from __future__ import annotations

from mpi_runtime.scheduler.events import Spec
from mpi_runtime.scheduler.records import Account
from mpi_runtime.scheduler.state import State


def account_of(state: State, spec: Spec) -> Account | None:
    """The account of a spec's calls. It has the weight and the limit that were stated last."""
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
    """Nodes have joined or are gone: tell accounts what there is in all."""
    if state.accounts:
        cpu = sum(node.total.cpu for node in state.nodes.values())
        gpu = sum(sum(node.total.devices) for node in state.nodes.values())
        for account in state.accounts.values():
            account.cpu_in_all, account.gpu_in_all = max(cpu, 1), max(gpu, 1)


def why_not(account: Account | None) -> str:
    """Why a call of an account does not start although there may be room; empty if the account is not the reason."""
    if account is None or not account.is_full():
        return ""
    return f"{account.running} call(s) of account {account.name!r} run, and no more may run at a time. "
