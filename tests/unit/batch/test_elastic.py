"""The files of elastic batches on a disk, with what network file systems do: torn, cut off, late, lost and full."""

import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mpi_runtime.batch.elastic import files
from mpi_runtime.batch.elastic.coordinator import Coordinator, TakeBack
from mpi_runtime.batch.elastic.coordinator_turns import is_open
from mpi_runtime.batch.elastic.files import JobFiles
from mpi_runtime.batch.elastic.member import Member
from mpi_runtime.batch.elastic.records import (
    ENTRIES,
    Closed,
    Entry,
    Offer,
    Status,
    Stop,
    Work,
    can_run,
    pool_of,
    share_on,
)
from mpi_runtime.batch.elastic.watch import LOOKS, QUICK_S, Watch
from mpi_runtime.batch.file.model import Asked, Demand
from mpi_runtime.batch.history import requests
from mpi_runtime.batch.history.requests import Answer, Request
from mpi_runtime.files import claim
from mpi_runtime.files.segments import bodies_in, frame
from mpi_runtime.scheduler.protocol.resources import Pool

ONE, TWO = "1" * 16, "2" * 16
packed = msgspec.msgpack.encode


def cpus(*counts: float) -> tuple[Pool, ...]:
    """Nodes with these numbers of CPUs."""
    return tuple(pool_of({"CPU": count}) for count in counts)


def job(folder: Path, token: str) -> JobFiles:
    made = JobFiles(folder, token, lambda bodies: [])
    made.make(status(token, beat=0))
    return made


def status(token: str, beat: int = 1, **more: Any) -> Status:
    return Status(token, beat, "a job", "here", 1, "", "", 1, 0, ({"CPU": 2.0},), **more)


def test_a_slice_has_one_owner_also_if_the_answer_to_a_link_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = job(tmp_path, ONE), job(tmp_path, TWO)
    assert first.make_name("1-1") == ONE
    assert first.make_name("1-1") == second.make_name("1-1") == second.make_name("1-1", is_back=True) == ONE
    assert second.make_name("1-2", is_back=True) == first.make_name("1-2") == "", "it was taken back"
    link = os.link

    def made_without_an_answer(source: Path, target: Path) -> None:
        link(source, target)
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, "link", made_without_an_answer)
    with pytest.raises(OSError, match="lost"):
        first.make_name("1-3")
    monkeypatch.undo()
    assert first.make_name("1-3") == ONE, "the next attempt shows whose it is"
    assert second.make_name("1-3", is_back=True) == ONE
    for one in (first, second):
        one.close()


def test_a_job_makes_more_names_than_one_file_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def at_most_four(source: Path, target: Path) -> None:
        if source.stat().st_nlink >= 4:
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
        assert source.parent == target.parent, "AFS makes no names across directories"
        link(source, target)

    monkeypatch.setattr(os, "link", at_most_four)
    one, other = job(tmp_path, ONE), job(tmp_path, TWO)
    names = [f"1-{number}" for number in range(20)]
    assert {one.make_name(name, is_back=name < "1-15") for name in names} == {ONE, ""}
    assert [other.make_name(name) for name in names] == ["" if name < "1-15" else ONE for name in names]
    for made in (one, other):
        made.close()


def test_a_batch_is_open_while_a_job_that_was_offered_something_may_live(tmp_path: Path) -> None:
    (tmp_path / "owner-5").touch()
    first, member, later = job(tmp_path, ONE), job(tmp_path, TWO), job(tmp_path, "3" * 16)
    first.epoch, later.epoch = 4, 5
    own = (claim.here(), os.getpid(), claim.state_and_start(os.getpid())[1])

    def is_at_work(token: str, **more: Any) -> None:
        host, pid, started = own
        made = {ONE: first, TWO: member}[token]
        made.write_status(msgspec.structs.replace(status(token), host=host, pid=pid, started=started, **more))

    is_at_work(ONE)
    assert not is_open(later, 4), "nothing was offered"
    offer = frame(Offer("4-1", TWO, (Work(1, "a", b"k"),)))
    first.write_offers(0, offer)
    path = tmp_path / f"{files.MEMBER}{TWO}"
    data = path.read_bytes()
    path.write_bytes(data[:60] + b"\0" + data[61:])
    assert is_open(later, 4), "a status that cannot be read shows no end"
    is_at_work(TWO)
    assert is_open(later, 4)
    assert not is_open(later, 5), "that was another batch"
    files.clear(tmp_path)
    assert is_open(later, 4), "nothing of a living job is removed"
    is_at_work(TWO, is_leaving=True)
    assert not is_open(later, 4)
    is_at_work(TWO)
    first.write_offers(len(offer), frame(Closed(0)) + frame(Stop((1,))))
    assert not is_open(later, 4), "it has ended, and its job has not read this yet"
    for made in (first, member, later):
        made.write_status(status(made.token, is_leaving=True))
        made.close()
    files.clear(tmp_path)
    assert os.listdir(tmp_path) == ["owner-5"]


def test_a_status_that_is_torn_is_read_again_later_and_keeps_its_size(tmp_path: Path) -> None:
    own = job(tmp_path, ONE)
    path = tmp_path / f"{files.MEMBER}{ONE}"
    assert own.read_status(ONE) == status(ONE, 0), "others see it with a status"
    size = path.stat().st_size
    own.write_status(status(ONE, 7))
    assert own.read_status(ONE) == status(ONE, 7)
    assert path.stat().st_size == size, "so a full disk does not look like a death"
    data = path.read_bytes()
    path.write_bytes(data[:60] + b"\0" + data[61:])
    assert own.read_status(ONE) is None
    own.close()


def test_offers_are_read_to_their_last_whole_entry() -> None:
    entries: list[Entry] = [Offer("1-1", ONE, (Work(1, "a", b"k"),)), Stop((1, 2)), Closed(0)]
    data = b"".join(map(frame, entries))
    assert bodies_in(data, ENTRIES) == (entries, len(data))
    whole = len(frame(entries[0]))
    for end in range(whole, whole + len(frame(entries[1]))):
        assert bodies_in(data[:end], ENTRIES) == (entries[:1], whole)
    zeros = data[: whole + 4] + bytes(len(data) - whole - 4)
    assert bodies_in(zeros, ENTRIES) == (entries[:1], whole), "what is not there yet may be read as zeros"


def test_offers_that_a_full_disk_has_cut_off_are_written_again_at_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = job(tmp_path, ONE)
    own.epoch = 3
    data = frame(Closed(0))
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, view, at: write(file, view[:5], at) if not at else full())

    def full() -> int:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        own.write_offers(0, data)
    monkeypatch.undo()
    own.write_offers(0, data)
    assert bodies_in(own.read_offers(3, 0, -1), ENTRIES) == ([Closed(0)], len(data))
    assert own.read_offers(4, 0, 10) == b""
    own.close()


def test_a_job_is_lost_after_quick_looks_alone() -> None:
    watch = Watch()
    assert not any(watch.look(1, float(second)) for second in range(LOOKS))
    watch.failed()
    assert not any(watch.look(1, 100.0 + second) for second in range(LOOKS)), "a failed look starts the count again"
    assert watch.look(1, 100.0 + LOOKS)
    slow = Watch()
    assert not any(slow.look(1, second * (QUICK_S + 1)) for second in range(5 * LOOKS)), "the observer is slow"
    moving = Watch()
    assert not any(moving.look(second, float(second)) for second in range(5 * LOOKS))


def test_a_large_command_gets_the_first_job_with_room_and_small_ones_do_not_overtake_it() -> None:
    coordinator = Coordinator(1)
    coordinator.joined("small", cpus(2), None)
    small = [Work(number, f"s{number}", b"", seconds=100.0) for number in range(2, 8)]
    large = Work(1, "large", b"", command=packed(Asked(num_cpus=8)), seconds=100.0)
    for work in [large, *small]:
        coordinator.add(work)
    assert [work.name for offer in offers(coordinator) for work in offer.works] == ["s2", "s3"]
    coordinator.joined("big", cpus(8), None)
    found = {work.name: offer.token for offer in offers(coordinator) for work in offer.works}
    assert found == {"large": "big"}


def test_work_is_not_offered_to_a_job_that_ends_before_it_and_returns_when_a_job_is_lost() -> None:
    coordinator = Coordinator(1)
    coordinator.joined("short", cpus(1), 50.0)
    coordinator.add(Work(1, "a", b"", seconds=1.0, limit_s=60.0))
    assert not offers(coordinator)
    coordinator.joined("long", cpus(1), 100.0)
    (offer,) = offers(coordinator)
    assert offer.token == "long"
    coordinator.lost("long")
    (back,) = coordinator.orders(0.0)
    assert back == TakeBack(offer.slice), "first its name is made, so that no job can begin it"
    coordinator.took_back(offer.slice, False)
    coordinator.joined("third", cpus(1), None)
    (again,) = offers(coordinator)
    assert (again.works[0].number, again.works[0].attempt) == (1, 1), "it may have begun"
    coordinator.ended(1)
    assert not coordinator.outstanding()


def test_commands_that_were_added_before_anything_was_measured_are_offered_with_what_is_known_now() -> None:
    expected_s = 1.0
    coordinator = Coordinator(1, lambda work: expected_s)
    coordinator.joined("own", cpus(2), None)
    for number in range(1, 2001):
        coordinator.add(Work(number, f"w{number}", b""))
    first = [work for offer in offers(coordinator) for work in offer.works]
    assert len(first) == 8, "four seconds of work ahead for two CPUs"
    for work in first:
        coordinator.ended(work.number)
    expected_s = 2**-7
    found = [work for offer in offers(coordinator) for work in offer.works]
    assert (len(found), {work.seconds for work in found}) == (1024, {2**-7})


def test_a_command_that_came_too_late_to_its_turn_does_not_wait_here_if_another_job_has_it() -> None:
    """As when a job was stopped: it reads the new offers before its executors report what they have not begun."""
    member = Member("own", cpus(2))
    works = tuple(Work(number, f"w{number}", b"") for number in (1, 2))
    member.offered(Offer("1-1", "own", works))
    member.took(Offer("1-1", "own", works), True)
    assert member.start() == [*works]
    member.not_begun(1)
    assert member.start() == [works[0]], "it is started again"
    assert member.drop(member.offered(Offer("1-2", "other", works[:1]))) == [1], "the caller ends it"
    member.not_begun(1)
    member.stop([2])
    member.not_begun(2)
    assert (member.start(), member.started) == ([], {})
    member.offered(Offer("1-3", "own", works[:1]))
    member.took(Offer("1-3", "own", works[:1]), True)
    member.start()
    member.not_begun(1)
    assert member.start() == [works[0]], "it is for this job again"


def offers(coordinator: Coordinator) -> list[Offer]:
    return [order for order in coordinator.orders(0.0) if isinstance(order, Offer)]


def test_a_request_is_answered_once_and_withdrawn_without_an_answer(tmp_path: Path) -> None:
    assert requests.send(tmp_path, Request("cancel", ("a",)), limit_s=0.0) is None
    assert not os.listdir(tmp_path)
    (tmp_path / "request-x").write_bytes(msgspec.json.encode(Request("add", text="true")))
    (tmp_path / "request-y").write_text("{")
    found = dict(requests.pending(tmp_path, os.listdir(tmp_path)))
    assert found == {"x": Request("add", text="true"), "y": None}
    requests.answer(tmp_path, "x", Answer(True, "done"))
    requests.answer(tmp_path, "x", Answer(False, "twice"))
    assert sorted(os.listdir(tmp_path)) == ["answer-x", "request-y"]
    assert msgspec.json.decode((tmp_path / "answer-x").read_bytes(), type=Answer) == Answer(True, "done")


def test_ranks_go_to_the_nodes_of_one_job_and_alternatives_to_any_job_that_can_run_one() -> None:
    coordinator = Coordinator(1)
    two = cpus(2, 2)
    gang = Work(1, "gang", b"", packed(Asked(ranks=4)))
    apart = Work(2, "apart", b"", packed(Asked(ranks=2, ranks_per_node=1)))
    alternatives = packed(Asked(num_cpus=4, alternatives=(Demand(4), Demand(1, 1))))
    either = Work(3, "either", b"", alternatives)
    for work in (gang, apart, either):
        coordinator.add(work)
    coordinator.joined("one node", cpus(3), None)
    assert not offers(coordinator), "ranks of a command are in one job"
    coordinator.joined("gpu", (pool_of({"CPU": 1.0, "GPU": 2.0}),), None)
    assert [(offer.token, offer.works) for offer in offers(coordinator)] == [("gpu", (either,))]
    assert share_on(either, (pool_of({"CPU": 1.0, "GPU": 2.0}),)) == 1.0
    coordinator.joined("two", two, None)
    found = {work.name: offer.token for offer in offers(coordinator) for work in offer.works}
    assert found == {"gang": "two", "apart": "two"}
    assert not can_run(Work(4, "", b"", packed(Asked(ranks=5))), two)


def test_what_all_jobs_share_is_counted_over_all_jobs_and_freed_by_ends() -> None:
    coordinator = Coordinator(1)
    for token in ("a", "b"):
        coordinator.joined(token, cpus(8), None)
    licensed = packed(Asked(shares={"licence": 1.5}, batch_resources={"licence": 3.0}))
    works = [Work(number, f"w{number}", b"", licensed) for number in range(1, 5)]
    for work in [*works, Work(5, "free", b"")]:
        coordinator.add(work)
    assert sorted(work.number for offer in offers(coordinator) for work in offer.works) == [1, 2, 5]
    coordinator.ended(1)
    assert [work.number for offer in offers(coordinator) for work in offer.works] == [3]
    coordinator.lost("a")
    coordinator.lost("b")
    coordinator.joined("c", cpus(8), None)
    for order in coordinator.orders(0.0):
        assert isinstance(order, TakeBack)
        coordinator.took_back(order.slice, True)
    again = [work for offer in offers(coordinator) for work in offer.works]
    assert len([work for work in again if work.asked.shares]) == 2, "no more, no less"


def test_shares_of_two_devices_are_not_one_share() -> None:
    """As the scheduler of the job counts them, which would never run such a rank."""
    two = (pool_of({"CPU": 8.0, "GPU": 2.0}),)
    ranks = [Work(n, "", b"", packed(Asked(num_gpus=0.4, ranks=n))) for n in (4, 5)]
    assert [can_run(work, two) for work in ranks] == [True, False]
    assert share_on(ranks[0], two) == 0.8


def test_offers_of_an_earlier_version_are_read_with_the_amounts_of_their_commands() -> None:
    earlier = Work(1, "a", b"k", packed(Asked(num_cpus=3)), (("CPU", 3.0), ("memory", 1e9)), 2.0)
    (offer,), _ = bodies_in(frame(Offer("1-1", ONE, (earlier,))), ENTRIES)
    assert isinstance(offer, Offer)
    assert [(work.requests()[0].cpu, work.seconds) for work in offer.works] == [(30_000, 2.0)]
    assert (can_run(offer.works[0], cpus(3)), can_run(offer.works[0], cpus(2))) == (True, False)


def test_a_stopped_command_holds_its_share_until_its_job_has_ended_it_or_is_gone() -> None:
    licensed = packed(Asked(shares={"licence": 1.0}, batch_resources={"licence": 1.0}))
    for how in ("not begun", "given back", "ended", "gone"):
        coordinator = Coordinator(1)
        coordinator.joined("a", cpus(1), None)
        for number in (1, 2, 3):
            coordinator.add(Work(number, f"w{number}", b"", licensed))
        (offer,) = offers(coordinator)
        coordinator.joined("b", cpus(8), None)
        coordinator.stopped(3)
        coordinator.stopped(1)
        assert coordinator.orders(0.0) == [TakeBack(offer.slice)], "perhaps its job has not begun it"
        assert coordinator.is_ending()
        coordinator.took_back(offer.slice, how == "not begun")
        found = offers(coordinator)
        assert bool(found) == (how == "not begun")
        if how == "given back":
            coordinator.returned([1], [offer.slice], True)
        elif how == "ended":
            coordinator.ended(1)
        elif how == "gone":
            coordinator.lost("a")
        found = found or offers(coordinator)
        assert [work.number for one in found for work in one.works] == [2], how
        coordinator.ended(2)
        assert (coordinator.is_ending(), coordinator.outstanding(), coordinator.waiting()) == (False, {}, [])


def test_a_job_reports_the_stopped_commands_that_it_does_not_start() -> None:
    works = tuple(Work(number, f"w{number}", b"") for number in range(1, 5))
    member = Member("own", cpus(1))
    member.stop([1])
    member.offered(Offer("1-1", "own", works))
    member.took(Offer("1-1", "own", works), True)
    assert member.settled() == [1]
    assert [work.number for work in member.start()] == [2]
    member.started.update({3: member.waiting.pop(3)})
    assert member.stop([2, 3, 4]) == [2, 3], "the caller ends these, and gives them back"
    assert member.settled() == [4]
    member.not_begun(3)
    assert (member.settled(), member.settled()) == ([3], [])
    assert {number: member.slices[number] for number in (1, 3, 4)} == dict.fromkeys((1, 3, 4), "1-1")
