"""What is varied in a simulation: the cluster, the work, and the faults. All follows from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

UNIT = 10_000
"""One CPU or GPU. Said here again: what looks from outside takes nothing from inside."""
MIB = 1 << 20
ALL = -1


@dataclass(frozen=True)
class Shape:
    """One host."""

    ranks: int = 1
    cpus: int = 2
    """Processors of the host, dealt out to its ranks."""
    gpus: int = 0
    kinds: tuple[str, ...] = ()
    """The type of each GPU, where ranks describe them. Empty: they are stated, and nothing is known of them."""
    is_split: bool = False
    """Whether its ranks can use different ones of the GPUs that they describe."""
    instances: tuple[int, ...] = ()
    """Which of these are instances of MIG: a call can have one of them."""
    exclusive: tuple[int, ...] = ()
    """Which of these only one process at a time may use: there are no shares of them."""
    is_far: bool = False
    """Whether ranks say which processors are near to GPUs: the last GPUs to those of the first rank."""
    memory: int = 0
    custom: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """One simulation."""

    seed: int = 0
    hosts: tuple[Shape, ...] = (Shape(),)
    """Rank 0 has a host of its own that runs nothing, or shares the first."""
    head_alone: bool = True
    direct_lines: bool = False
    """Whether executors of other ranks on the host of rank 0 have direct lines to the head."""
    calls: int = 60
    """About so many calls are submitted, nested ones included."""
    depth: int = 3
    """How deep random nesting goes; chains of nested calls go down to 20."""
    actors: int = 2
    concurrent: bool = False
    """Whether actors may take several calls at a time, and calls in any order."""
    links: int = 0
    """How many pieces of the driver's program are short calls that need each other's values."""
    trees: int = 0
    """How many trees of calls there are: each call waits for its children."""
    dropped_actors: int = 0
    """How many actors are asked for and let go of, most of them at once."""
    survives_losses: bool = True
    """Whether the job would continue without ranks that die."""
    actor_calls_max: int = 256
    """How many calls an actor is sent ahead: the limit of the scheduler, made small in some worlds."""
    streams: bool = False
    """Whether calls may yield."""
    cancels: float = 0.0
    """Chance after each piece of a program that something is cancelled."""
    limit_us: int = 0
    """How long calls of some functions may run before they are ended; 0: there are none."""
    stubborn: float = 0.0
    """Chance that a call which is interrupted for that goes on all the same."""
    grace_us: int = 100_000
    """How long it may do so: a limit of the scheduler."""
    groups: int = 2
    """Pieces of the driver's program that use placement groups."""
    slow_streams: int = 0
    """How likely the driver takes large items of calls that make them slowly: a weight beside its other choices."""
    questions: float = 0.1
    """Chance for each step of the driver that it asks about the state."""

    # How slow things are, in microseconds, each drawn between the two.
    network_us: tuple[int, int] = (5, 50)
    socket_us: tuple[int, int] = (5, 30)
    stall_us: int = 0
    """Now and then a message, and all behind it from the same sender, takes up to this much longer: so messages of
    different senders overtake each other. Those of one sender never do."""
    fork_us: tuple[int, int] = (1000, 8000)
    exit_us: tuple[int, int] = (100, 5000)
    """From the end of an executor's last call until its process is gone."""
    kill_us: tuple[int, int] = (0, 2000)
    """From the order to kill a process until it is gone."""
    batch_us: int = 500
    """How long an executor keeps results back, to send several at once."""
    transfer_us: tuple[int, int] = (100, 3000)
    part_bytes: int = 0
    """Not 0: of values from this size on parts are passed on while they arrive; a limit of the scheduler."""
    arena_slots: int = 0
    """How many large values a rank's part of the arena has room for; 0: for all. It takes more, and wants room."""
    disk_failures: float = 0.0
    """Chance for each of these that it cannot be written to disk."""

    accounts: int = 0
    """On how many accounts tasks run; the first may have two calls at a time. They say then how long their chains are,
    and some how long they take, so that gaps before reservations are filled; ends of some may be told late."""
    alternatives: bool = False
    """Whether some tasks can run with one of several requests."""
    end_us: int = 0
    """When the job's time ends, and it is put off; 0: never. Some calls say then that they take long."""
    long_us: int = 10_000_000
    """Calls of functions that have been measured to take longer are compared with that: a limit of the scheduler."""

    # Faults
    duplicates: float = 0.0
    """Chance that a message is said twice, where the protocol allows that: `Subscribed` and `ExecutorStarted`. All
    others are counted by their receiver and come over lines that lose and repeat nothing."""
    deaths: float = 0.0
    """Chance for each call that its executor dies while it runs."""
    idle_deaths: float = 0.0
    """Chance after each call that its executor dies soon."""
    deaths_max: int = 0
    stillborn: float = 0.0
    """Chance for each executor that it dies before it begins a call. If it is not zero, there are also functions whose
    executors all do."""
    forkserver_kills: int = 0
    """How many forkservers are killed, and all executors of their rank with each."""
    slow_executors: float = 0.0
    """Share of executors that take ten times as long for everything."""
    long_calls: float = 0.0
    """Chance that a call takes much longer than others of its function."""
    refusals: float = 0.0
    """Chance that an arena has no room for a value or a copy."""
    losses: float = 0.0
    """Chance for each transfer between hosts that the rank which has the object cannot be reached."""
    rank_losses: int = 0
    """How many ranks die that are not the last of their host."""
    host_losses: bool = False
    """Whether all ranks of the last host die. Another host is like it, so that there is room for all."""
    kills: bool = False
    """Whether the driver kills actors."""
    breakable: int = 0
    """How many GPUs of a host may fail: 1 is its first, and no call needs all. ALL: actors and placement groups ask for
    none then, or what others wait for might never come free."""
    tight: float = 0.0
    """Chance for each call that begins that the memory of its host is nearly used up from then on, for a while."""
    gpu_faults: float = 0.0
    """Chance for each call that has such a GPU that its process can use none any more, as a wrong kernel does it."""
    broken: float = 0.0
    """Share of those GPUs on which every call ends so."""
    junk: float = 0.0
    """Chance for each call that it writes junk to the descriptor of its executor."""
    busy: float = 0.0
    """Share of those GPUs that processes outside of the job use up: no call there can use it."""
    dead_nodes: float = 0.0
    """Share of the hosts on which CUDA does not start; only where all GPUs may fail."""
    faults_until_us: int = 5_000_000

    kind: str = ""
    """The option of `run.py` that makes such a world."""
    has_journal: bool = False
    """Whether calls that end are recorded."""
    course: int = 0
    """Not 0: other faults happen, at other times, to the same program."""

    is_calm: bool = False
    """Whether nothing happens that would keep calls from the best place."""
    check_inside: bool = True
    """Whether the invariants of the state are checked after each decision: costs time in large worlds."""


def random_options(seed: int) -> Options:
    """A small world drawn from the seed."""
    alternatives = random.Random(seed * 1987 + 13).random() < 0.4
    return replace(_random_options(seed)[1], alternatives=alternatives, survives_losses=seed % 8 != 7)


def losing_options(seed: int) -> Options:
    """The world of the seed, and ranks die. With them GPUs go: so no actor and no placement group asks for any."""
    options, rng = random_options(seed), random.Random(seed * 6947 + 31)
    hosts = tuple(replace(shape, ranks=rng.choice((1, 2, 3))) for shape in options.hosts)
    host_losses = rng.random() < 0.6
    if host_losses:
        hosts = (*hosts, rng.choice(hosts))
    losses = rng.choice((0, 1, 1, 2))
    options = replace(options, part_bytes=random.Random(seed * 4789 + 19).choice((0, 100_000, 100_000)))
    if random.Random(seed * 3851 + 37).random() < 0.25:
        options = replace(options, streams=True, slow_streams=60)
    return replace(
        options, hosts=hosts, rank_losses=losses, host_losses=host_losses, survives_losses=True, breakable=ALL,
        kind="--losses",
    )  # fmt: skip


def spilling_options(seed: int) -> Options:
    """The world of the seed with arenas that have little room; in some of them ranks die too."""
    options, rng = (losing_options if seed % 3 == 0 else random_options)(seed), random.Random(seed * 3307 + 43)
    slots, failures = rng.choice((1, 1, 2, 4)), rng.choice((0.0, 0.0, 0.2))
    options = replace(options, part_bytes=random.Random(seed * 4787 + 23).choice((0, 100_000, 100_000)))
    return replace(options, arena_slots=slots, disk_failures=failures, kind="--spills")


def dropping_options(seed: int) -> Options:
    """The world of the seed, whose driver lets go of actors that wait to be created."""
    dropped_actors = random.Random(seed * 2539 + 41).choice((3, 10, 40))
    return replace(random_options(seed), dropped_actors=dropped_actors, kind="--drops")


def link_options(seed: int) -> Options:
    """A small world with short calls that need each other's values; in some worlds ranks die too."""
    rng = random.Random(seed * 2777 + 53)
    options = (losing_options if seed % 4 == 0 else random_options)(seed)
    hosts = tuple(replace(shape, cpus=rng.choice((1, 2, 2, 4))) for shape in options.hosts)
    options = replace(options, hosts=(*hosts[:-1], hosts[-2]) if options.host_losses else hosts)
    deaths = rng.choice((0.0, 0.0, 0.01, 0.1))
    return replace(
        options, links=rng.choice((1, 2, 3)), calls=5, actors=min(options.actors, 1), groups=0, end_us=0,
        streams=False, questions=0.0, accounts=options.accounts if seed % 5 == 0 else 0, alternatives=False,
        limit_us=0, deaths=deaths, idle_deaths=rng.choice((0.0, deaths)), deaths_max=rng.choice((20, 200)),
        batch_us=rng.choice((0, 300, 3000)), kind="--links",
    )  # fmt: skip


def tree_options(seed: int) -> Options:
    """A small world with trees of calls, in which most things die; in some worlds ranks die too."""
    rng = random.Random(seed * 2287 + 47)
    options = (losing_options if seed % 3 == 0 else random_options)(seed)
    hosts = tuple(replace(shape, cpus=rng.choice((1, 1, 2, 4))) for shape in options.hosts)
    options = replace(options, hosts=(*hosts[:-1], hosts[-2]) if options.host_losses else hosts)
    deaths, batch = rng.choice((0.05, 0.15, 0.4)), rng.choice((0, 300, 3000))
    return replace(
        options, trees=rng.choice((1, 1, 2)), calls=5, actors=min(options.actors, 1), groups=0, end_us=0, limit_us=0,
        streams=False, questions=0.0, check_inside=seed % 5 == 0,
        deaths=deaths, idle_deaths=rng.choice((0.0, 0.1)), deaths_max=rng.choice((20, 400)), batch_us=batch,
        forkserver_kills=rng.choice((0, 0, 8)), slow_executors=rng.choice((0.0, 0.2)), stillborn=0.0,
        stall_us=rng.choice((0, 500, 20_000)), cancels=rng.choice((0.0, 0.0, 0.1)), kind="--trees",
    )  # fmt: skip


def calm_options(seed: int) -> Options:
    """The world of the seed without faults, and with nothing that waits for anything but values and room."""
    quiet, rng = _random_options(seed)[0], random.Random(seed * 4409 + 17)
    hosts = [replace(shape, is_split=False, is_far=rng.random() < 0.5) for shape in quiet.hosts]
    kinds = rng.choice(((), ("A",) * 4))
    hosts.append(Shape(ranks=rng.choice((1, 2, 4)), cpus=4, gpus=4, kinds=kinds, is_far=rng.random() < 0.5))
    hosts = hosts if rng.random() < 0.7 else hosts[:-1]
    return replace(
        quiet,
        hosts=tuple(hosts),
        groups=0,
        cancels=0.0,
        streams=False,
        end_us=0,
        limit_us=0,
        is_calm=True,
        kind="--calm",
    )


def _random_options(seed: int) -> tuple[Options, Options]:
    """The world of the seed before anything happens to it, and with what happens."""
    rng = random.Random(seed * 7919 + 1)
    kinds = random.Random(seed * 6007 + 5)
    ends = random.Random(seed * 5003 + 7)
    concurrent = kinds.random() < 0.5
    times = random.Random(seed * 8111 + 29)
    troubles, garbled = random.Random(seed * 4517 + 23), random.Random(seed * 7561 + 5)
    births, accounts = random.Random(seed * 3571 + 29), random.Random(seed * 2917 + 31)
    shapes = [_random_shape(rng) for _ in range(rng.choice((1, 1, 2, 3, 5)))]
    cards, modes = random.Random(seed * 6151 + 3), random.Random(seed * 5003 + 11)
    hosts = tuple(_in_modes(_described(shape, cards), modes) for shape in shapes)
    is_direct = random.Random(seed * 6269 + 13).random() < 0.7
    if is_direct:
        hosts = (replace(hosts[0], ranks=max(2, hosts[0].ranks)), *hosts[1:])
    quiet = Options(
        groups=rng.choice((0, 1, 3)),
        seed=seed,
        hosts=hosts,
        head_alone=rng.random() < 0.5,
        direct_lines=is_direct,
        calls=rng.choice((15, 40, 80)),
        depth=rng.choice((1, 2, 4)),
        actors=rng.choice((0, 1, 1, 3)) + concurrent,
        network_us=rng.choice(((1, 1), (5, 50), (100, 3000))),
        socket_us=rng.choice(((1, 1), (5, 30), (5, 500))),
        fork_us=rng.choice(((500, 500), (1000, 8000), (10_000, 60_000))),
        exit_us=rng.choice(((1, 1), (100, 5000), (50_000, 50_000))),
        batch_us=rng.choice((0, 300, 3000)),
        concurrent=concurrent,
        actor_calls_max=kinds.choice((256, 256, 2, 4)),
        streams=kinds.random() < 0.5,
        cancels=kinds.choice((0.0, 0.0, 0.1, 0.4)),
        accounts=accounts.choice((0, 0, 1, 3)),
        end_us=ends.choice((0, 0, 0, 0, 0, 15_000, 60_000, 200_000)),
        long_us=ends.choice((10_000_000, 5000, 500)),
        limit_us=times.choice((0, 0, 1000, 50_000)),
        stubborn=times.choice((0.0, 0.3)),
    )
    if rng.random() < 0.25:
        return quiet, quiet
    return quiet, replace(
        quiet,
        stall_us=rng.choice((0, 500, 20_000)),
        duplicates=rng.choice((0.0, 0.1)),
        deaths=rng.choice((0.0, 0.03, 0.15)),
        idle_deaths=rng.choice((0.0, 0.03)),
        deaths_max=rng.choice((3, 20)),
        slow_executors=rng.choice((0.0, 0.2)),
        long_calls=rng.choice((0.0, 0.1)),
        refusals=rng.choice((0.0, 0.0, 0.1)),
        kills=rng.random() < 0.75,
        breakable=modes.choice((0, 1, ALL, ALL)),
        gpu_faults=modes.choice((0.0, 0.1)),
        broken=modes.choice((0.0, 0.3, 0.6)),
        junk=garbled.choice((0.0, 0.0, 0.05)),
        losses=modes.choice((0.0, 0.0, 0.3)),
        stillborn=births.choice((0.0, 0.0, 0.1, 0.5)),
        forkserver_kills=births.choice((0, 0, 0, 8)),
        busy=troubles.choice((0.0, 0.0, 0.0, 0.3)),
        tight=garbled.choice((0.0, 0.0, 0.05)),
        dead_nodes=troubles.choice((0.0, 0.6, 0.6)),
    )


def node_id(options: Options, host: int) -> str:
    """The id of the node that a host is: nodes are numbered in the order in which hosts join."""
    return f"{host + options.head_alone:032x}"


def zone(host: int) -> str:
    """The label of a host."""
    return f"zone{host % 2}"


def _random_shape(rng: random.Random) -> Shape:
    return Shape(
        ranks=rng.choice((1, 1, 2, 3)),
        cpus=rng.choice((1, 1, 2, 2, 4, 8)),
        gpus=rng.choice((0, 0, 1, 2, 4)),
        memory=rng.choice((0, 1 << 30)),
        custom=rng.choice(({}, {}, {"disk": 2 * UNIT}, {"disk": UNIT // 2, "lane": UNIT})),
    )


def _described(shape: Shape, rng: random.Random) -> Shape:
    """The host with more said of its GPUs, or not."""
    if rng.random() < 0.4:
        return shape
    kinds = rng.choice((("A",), ("A", "B")))
    return replace(shape, kinds=tuple(rng.choice(kinds) for _ in range(shape.gpus)), is_split=rng.random() < 0.5)


def _in_modes(shape: Shape, rng: random.Random) -> Shape:
    """The host with some of its described GPUs in other modes, or not. The first is as any other."""
    others = range(1, len(shape.kinds))
    if rng.random() < 0.5:
        return shape
    drawn = {number: rng.choice(("", "instance", "exclusive")) for number in others}
    instances, exclusive = (tuple(n for n in others if drawn[n] == mode) for mode in ("instance", "exclusive"))
    return replace(shape, instances=instances, exclusive=exclusive)


def large_options(seed: int, hosts: int = 2000, calls: int = 21_000) -> Options:
    """A large world: many hosts, few faults, no look at the inside."""
    return Options(
        seed=seed,
        hosts=(Shape(cpus=4),) * hosts,
        calls=calls,
        depth=2,
        actors=20,
        questions=0.0,
        deaths=0.003,
        deaths_max=50,
        slow_executors=0.01,
        long_calls=0.01,
        stall_us=2000,
        check_inside=False,
        kind=f"--hosts {hosts} --calls {calls}",
    )
