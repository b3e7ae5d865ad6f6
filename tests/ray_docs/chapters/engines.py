"""Engines for language models: the calls of Ray that each makes to place its workers, in its order.

From the public sources of vLLM (`v1/executor/ray_executor*.py`, `v1/engine/utils.py`), SGLang (`srt/ray`), verl
(`single_controller/ray`) and OpenRLHF (`trainer/ray`). The four GPUs are stated, not found. With `--hosts` there are two
hosts with two GPUs each.
"""

import os
import re
import socket
import time
from contextlib import contextmanager
from itertools import chain

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from tests.ray_docs.helpers import eventually, raised

OWN_JOBS = True
JOB = {"num_cpus": 8, "num_gpus": 4}
"""What a job is started with: `__main__.py` replaces it."""
NOSET = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"


@contextmanager
def _job(**more):
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    ray.init(**JOB, **more, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


def _hosts():
    """A short name for each node id: that of the driver is 0."""
    mine = ray.get_runtime_context().get_node_id()
    ids = sorted((node["NodeID"] for node in ray.nodes() if node["Alive"]), key=lambda id: (id != mine, id))
    return {id: number for number, id in enumerate(ids)}


def _addresses():
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def _on(group, index, **more):
    return PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=index, **more)


def _gpus_are_free():
    return eventually(lambda: ray.available_resources().get("GPU", 0) == ray.cluster_resources()["GPU"])


class _Proc:
    """A worker of vLLM, which knows its device only when it has been placed."""

    def __init__(self, rank, is_driver_node=False):
        self.rank = rank
        self.is_driver_node = is_driver_node

    def get_node_and_gpu_ids(self):
        context = ray.get_runtime_context()
        return context.get_node_id(), context.get_accelerator_ids()["GPU"]

    def get_node_ip(self):
        return ray.util.get_node_ip_address()

    def seen(self):
        return os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get(NOSET), ray.get_runtime_context().get_actor_name()

    def initialize(self, local_rank, variables, assigned):
        os.environ.update(variables)
        self.local_rank, self.assigned = local_rank, assigned
        return self.rank, local_rank, assigned

    def execute_method(self, method, *args):
        return getattr(self, method)(*args)

    def wait_for_init(self):
        return {"status": "READY", "rank": self.rank}

    def create_dist_init_method(self):
        with socket.socket() as listener:
            listener.bind((ray.util.get_node_ip_address(), 0))
            return f"tcp://{ray.util.get_node_ip_address()}:{listener.getsockname()[1]}"

    def run(self):
        while True:
            time.sleep(0.05)


def _vllm_group(world):
    """The group that vLLM makes: a device in each bundle, and the first one at the address of the driver."""
    print(ray.cluster_resources().get("GPU", 0))
    me = ray.get_runtime_context().get_node_id()
    from ray._private.state import available_resources_per_node

    print(available_resources_per_node()[me].get("GPU", 0) >= 1)
    specs = [{"GPU": 1.0} for _ in range(world)]
    specs[0][f"node:{ray.util.get_node_ip_address()}"] = 0.001
    group = ray.util.placement_group(specs, strategy="PACK")
    ready = group.ready()
    print(len(ray.wait([ready], timeout=30)[0]))
    ray.get(ready, timeout=0)
    print([sorted(spec.values()) for spec in group.bundle_specs], group.bundle_count)
    return group


def _vllm_bundles(group):
    """Bundles with a device, with node and address: those of the driver's node first."""
    table, me = placement_group_table(group), ray.get_runtime_context().get_node_id()
    bundles = table["bundles"]
    found = [
        (index, node, _addresses()[node])
        for index, node in table["bundles_to_node_id"].items()
        if bundles[index].get("GPU", 0)
    ]
    print(table["state"], table["strategy"], sorted(bundles), table["placement_group_id"] == group.id.hex())
    print([sorted(bundles[index].values()) for index in sorted(bundles)], me in table["bundles_to_node_id"].values())
    return sorted(found, key=lambda one: (one[1] != me, one[1]))


def vllm_ray_executor_v2():
    """Actors with names in bundles, with NOSET; then devices and nodes are asked for, and the workers run for good."""
    with _job():
        hosts, group = _hosts(), _vllm_group(4)
        bundles = _vllm_bundles(group)
        print([hosts[node] for _, node, _ in bundles], len({address for *_, address in bundles}) == len(hosts))
        actors = [
            ray.remote(_Proc)
            .options(
                name=f"vllm_Worker_x_TP{rank}_PP0",
                num_cpus=0,
                num_gpus=1,
                scheduling_strategy=_on(group, index),
                runtime_env={"env_vars": {NOSET: "1"}},
            )
            .remote(rank=rank, is_driver_node=hosts[node] == 0)
            for rank, (index, node, _) in enumerate(bundles)
        ]
        where = ray.get([actor.get_node_and_gpu_ids.remote() for actor in actors])
        print([(hosts[node], type(ids).__name__, [type(id).__name__ for id in ids]) for node, ids in where])
        of_node, ranks = {}, {}
        for rank, (node, ids) in enumerate(where):
            of_node.setdefault(node, []).extend(int(id) for id in ids)
            ranks.setdefault(node, []).append(rank)
        print({hosts[node]: sorted(ids) for node, ids in of_node.items()})
        print(ray.get([actor.seen.remote() for actor in actors]))
        method = ray.get(actors[0].create_dist_init_method.remote())
        print(re.fullmatch(r"tcp://([\d.]+):\d+", method)[1] == ray.util.get_node_ip_address())
        starts = [
            actor.initialize.remote(ranks[node].index(rank), {"VLLM_X": "1"}, sorted(of_node[node]))
            for rank, (actor, (node, _)) in enumerate(zip(actors, where))
        ]
        print(ray.get(starts))
        print(ray.get([actor.wait_for_init.remote() for actor in actors]))
        runs = [actor.run.remote() for actor in actors]
        print(len(ray.wait(runs, num_returns=1, timeout=0.3)[0]))
        ray.kill(actors[2])
        done, _ = ray.wait(runs, num_returns=1, timeout=30)
        print([runs.index(ref) for ref in done], raised(lambda: ray.get(done[0]), "RayActorError", "ActorDiedError"))
        for actor in actors:
            ray.kill(actor)
        print(len(ray.wait(runs, num_returns=4, timeout=30)[0]))
        print(ray.available_resources().get("GPU", 0))
        remove_placement_group(group)
        print(_gpus_are_free(), placement_group_table(group)["state"])


def vllm_ray_executor():
    """The older one: classes with options, ranks by address, variables after the start, calls by name to all."""
    with _job():
        hosts, group = _hosts(), _vllm_group(4)
        indices = [index for index, bundle in enumerate(group.bundle_specs) if bundle.get("GPU", 0)]
        workers = [
            ray.remote(
                num_cpus=0,
                num_gpus=1,
                scheduling_strategy=_on(group, index, placement_group_capture_child_tasks=True),
            )(_Proc).remote(rank)
            for rank, index in enumerate(indices)
        ]
        ips, mine = ray.get([worker.get_node_ip.remote() for worker in workers]), ray.util.get_node_ip_address()
        order = sorted(range(4), key=lambda rank: (ips[rank] != mine, ips.count(ips[rank]), ips[rank]))
        workers = [workers[rank] for rank in order]
        where = [ray.get(worker.get_node_and_gpu_ids.remote()) for worker in workers]
        of_node = {}
        for node, ids in where:
            of_node.setdefault(node, []).extend(int(id) for id in ids)
        print(len(of_node) == len({*ips, mine}), {hosts[node]: sorted(ids) for node, ids in of_node.items()})
        seen = ray.get([worker.execute_method.remote("seen") for worker in workers])
        print([shown == ids[0] for (shown, *_), (_, ids) in zip(seen, where)], [rest for _, *rest in seen])
        shown = [{"CUDA_VISIBLE_DEVICES": ",".join(map(str, sorted(of_node[node])))} for node, _ in where]
        for worker, one in zip(workers, shown):
            ray.get(worker.execute_method.remote("initialize", 0, one, []))
        seen = ray.get([worker.execute_method.remote("seen") for worker in workers], timeout=30)
        print([found == one["CUDA_VISIBLE_DEVICES"] for (found, *_), one in zip(seen, shown)])
        for worker in workers:
            ray.kill(worker)
        remove_placement_group(group)
        print(_gpus_are_free())


def vllm_data_parallel():
    """An engine in each group; its actor has the last bundle, without a device, and makes workers in the others."""

    @ray.remote
    class EngineCore:
        def start(self):
            group = ray.util.get_current_placement_group()
            self.workers = [
                ray.remote(num_cpus=0, num_gpus=1, scheduling_strategy=_on(group, index))(_Proc).remote(index)
                for index, bundle in enumerate(group.bundle_specs)
                if bundle.get("GPU", 0)
            ]
            nodes, ids = zip(*ray.get([worker.get_node_and_gpu_ids.remote() for worker in self.workers]))
            mine = ray.get_runtime_context().get_accelerator_ids()["GPU"]
            return set(nodes) == {ray.get_runtime_context().get_node_id()}, list(chain.from_iterable(ids)), mine

    with _job():
        hosts = _hosts()
        from ray._private.state import available_resources_per_node

        key = f"node:{ray.util.get_node_ip_address()}"
        nodes = sorted(available_resources_per_node().values(), key=lambda node: key not in node)
        print(
            key in nodes[0], [sum(name.startswith("node:") and "head" not in name for name in node) for node in nodes]
        )
        print([int(node["GPU"]) for node in nodes])
        groups = []
        for node in nodes:
            (at,) = (name for name in node if name.startswith("node:") and name != "node:__internal_head__")
            for number in range(int(node["GPU"]) // 2):
                bundles = [{"GPU": 1.0, at: 0.001}] * 2 + [{"CPU": 1.0}]
                groups.append(placement_group(bundles, strategy="STRICT_PACK", name=f"dp_rank_{len(groups)}"))
        engines = [
            EngineCore.options(num_cpus=0, scheduling_strategy=_on(group, 2, placement_group_capture_child_tasks=True))
            .remote()
            for group in groups
        ]  # fmt: skip
        found = ray.get([engine.start.remote() for engine in engines])
        print(
            [(same, len(ids), mine) for same, ids, mine in found],
            sorted(chain.from_iterable(ids for _, ids, _ in found)),
        )
        tables = [placement_group_table(group) for group in groups]
        print([table["name"] for table in tables], sorted(hosts[id] for table in tables for id in {*table["bundles_to_node_id"].values()}))  # fmt: skip
        for engine in engines:
            ray.kill(engine)
        for group in groups:
            remove_placement_group(group)
        print(_gpus_are_free())


@ray.remote
class _Scheduler:
    """A worker of SGLang."""

    def __init__(self, gpu_id, tp_rank, address, fails=False):
        if fails:
            raise ValueError("no such model")
        assigned = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        self.gpu_id = int(assigned[0]) if assigned else gpu_id
        self.tp_rank, self.address = tp_rank, address

    def get_info(self):
        return {
            "status": "ready",
            "rank": self.tp_rank,
            "gpu": self.gpu_id,
            "shown": os.environ["CUDA_VISIBLE_DEVICES"],
        }

    def run_event_loop(self):
        while True:
            time.sleep(0.05)


def sglang_ray_engine():
    """Bundles of several devices, one for each host; tasks without resources say where they are."""
    with _job():
        count = len(_hosts())
        print(ray.util.get_current_placement_group())
        group = placement_group(
            [{"CPU": 1, "GPU": 4 // count}] * count, strategy="SPREAD" if count > 1 else "STRICT_PACK"
        )
        ray.get(group.ready())

        @ray.remote(num_cpus=0, num_gpus=0)
        def get_node_ip():
            return ray.util.get_node_ip_address()

        ips = ray.get([get_node_ip.options(scheduling_strategy=_on(group, n)).remote() for n in range(count)])
        mine = ips.index(ray.util.get_node_ip_address())
        print(len(set(ips)))
        bundles = [mine, *(n for n in range(count) if n != mine)]
        actors = [
            _Scheduler.options(
                num_cpus=0,
                num_gpus=1,
                name=f"sglang_scheduler_node_dp0_pp0_tp{rank}_pg{group.id.hex()[:8]}_bundle{bundles[rank * count // 4]}",
                scheduling_strategy=_on(group, bundles[rank * count // 4]),
            ).remote(gpu_id=rank % (4 // count), tp_rank=rank, address=f"{ips[mine]}:1234")
            for rank in range(4)
        ]
        infos = ray.get([actor.get_info.remote() for actor in actors])
        print([(info["status"], info["rank"]) for info in infos], sorted(info["gpu"] for info in infos))
        print([info["shown"] == str(info["gpu"]) for info in infos])
        loops = [actor.run_event_loop.remote() for actor in actors]
        print(len(ray.wait(loops, timeout=0.2)[0]))
        ray.kill(actors[1])
        print(raised(lambda: ray.get(loops), "RayActorError"))
        for actor in actors:
            ray.kill(actor)
        failing = _Scheduler.options(num_cpus=0, num_gpus=1, scheduling_strategy=_on(group, 0)).remote(0, 0, "", True)
        print(raised(lambda: ray.get([failing.get_info.remote()]), "RayActorError"))
        remove_placement_group(group)
        print(_gpus_are_free())


def sglang_in_a_group_of_the_user():
    """One device in each bundle; the indices are the user's. The engine is an actor in one of the bundles."""

    @ray.remote
    class Engine:
        def start(self, group, indices):
            current = ray.util.get_current_placement_group()
            self.actors = [
                _Scheduler.options(num_cpus=0, num_gpus=1, scheduling_strategy=_on(group, index)).remote(0, rank, "")
                for rank, index in enumerate(indices)
            ]
            infos = ray.get([actor.get_info.remote() for actor in self.actors])
            same = current is not None and current.id == group.id
            return same, ray.get_gpu_ids(), [info["rank"] for info in infos], len({info["gpu"] for info in infos})

    with _job():
        group = placement_group([{"CPU": 1, "GPU": 1}] * 4, strategy="PACK")
        ray.get(group.ready())
        print([bundle.get("GPU", 0) for bundle in group.bundle_specs])
        engine = Engine.options(num_cpus=0, num_gpus=0, scheduling_strategy=_on(group, 1)).remote()
        same, ids, ranks, gpus = ray.get(engine.start.remote(group, [2, 1, 0] if len(_hosts()) == 1 else [1, 0]))
        print(same, ids, ranks, gpus)
        ray.kill(engine)
        remove_placement_group(group)
        print(_gpus_are_free())


@ray.remote
class _Center:
    """The actor by which the workers of verl find the first of them."""

    def __init__(self, info):
        self.info, self.nodes = info, {}

    def get_rank_zero_info(self):
        return self.info

    def set_worker_info(self, rank, node):
        self.nodes[rank] = node

    def get_worker_info(self):
        return self.nodes


class _Worker:
    """A worker of verl: configured from its environment before its class runs `__init__`."""

    def __new__(cls, *args, **kwargs):
        self = super().__new__(cls)
        rank, prefix = os.environ.get("RANK"), os.environ.get("WG_PREFIX")
        if None not in (rank, prefix) and "ActorClass(" not in cls.__name__:
            name = f"{prefix}_register_center"
            if int(rank) == 0:
                info = {"MASTER_ADDR": ray._private.services.get_node_ip_address(), "MASTER_PORT": "1234"}
                self.center = _Center.options(name=name).remote(info)
                os.environ.update(info)
            else:
                self.center = ray.get_actor(name)
            ray.get(self.center.set_worker_info.remote(int(rank), ray.get_runtime_context().get_node_id()))
        return self

    def __init__(self, role="actor"):
        self.role = role

    def get_node_id(self):
        return ray.get_runtime_context().get_node_id()

    def get_cuda_visible_devices(self):
        return os.environ.get("CUDA_VISIBLE_DEVICES", "not set")

    def facts(self, number=0):
        names = ("WORLD_SIZE", "RANK", "RAY_LOCAL_WORLD_SIZE", "RAY_LOCAL_RANK", "MASTER_PORT")
        return self.role, [os.environ[name] for name in names], ray.get_gpu_ids(), number


def _verl_groups(per_host):
    """A pool of verl: a group for each host, all of whose bundles are on one host, ordered by address."""
    pool = [per_host] * (4 // per_host)
    groups = [
        placement_group([{"CPU": 2, "GPU": 1}] * count, strategy="STRICT_PACK", name=f"verl_group:{n}", lifetime=None)
        for n, count in enumerate(pool)
    ]
    ray.get([group.ready() for group in groups])
    ips = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    tables = {group.id: ray._private.state.state.placement_group_table(group.id) for group in groups}
    print([sorted(table["bundles_to_node_id"]) for table in tables.values()])
    return sorted(groups, key=lambda group: ips[tables[group.id]["bundles_to_node_id"][0]])


def _verl_workers(groups, prefix, cls, **more):
    """A group of workers of verl."""
    workers, names, master = [], [], {}
    world = sum(group.bundle_count for group in groups)
    for number, group in enumerate(groups):
        for local in range(group.bundle_count):
            variables = {
                "WORLD_SIZE": str(world), "RANK": str(len(workers)), "WG_PREFIX": prefix, "WG_BACKEND": "ray",
                "RAY_LOCAL_WORLD_SIZE": str(group.bundle_count), "RAY_LOCAL_RANK": str(local), **master,
            }  # fmt: skip
            found = re.search(r"ActorClass\(([^)]+)\)", type(cls).__name__)
            name = f"{prefix}{found[1] if found else type(cls).__name__}_{number}:{local}"
            options = {"scheduling_strategy": _on(group, local), "runtime_env": {"env_vars": variables}, "name": name}
            workers.append(cls.options(**options, num_gpus=1 / 2, **more).remote(role=prefix))
            names.append(name)
            if not master:
                center = f"{prefix}_register_center"
                print(eventually(lambda center=center: center in ray.util.list_named_actors(), 30))
                master = ray.get(ray.get_actor(center).get_rank_zero_info.remote())
    return workers, names


def verl_worker_groups():
    """Two groups of workers share the devices of a pool, by halves."""
    with _job():
        hosts = _hosts()
        groups = _verl_groups(4 // len(hosts))
        cls = ray.remote(_Worker)
        print(cls.__ray_actor_class__.__name__, cls.__ray_metadata__.modified_class.__name__, type(cls).__name__)
        actors, names = _verl_workers(groups, "actor", cls)
        critics, _ = _verl_workers(groups, "critic", cls)
        print(names)
        facts = ray.get([worker.facts.remote(n) for n, worker in enumerate(actors)])
        print([(role, variables, number) for role, variables, _, number in facts])
        of_critics = ray.get([worker.facts.remote() for worker in critics])
        where = ray.get([worker.get_node_id.remote() for worker in actors])
        print([ids == of_other for (*_, ids, _), (*_, of_other, _) in zip(facts, of_critics)])
        print(len({(node, *ids) for node, (*_, ids, _) in zip(where, facts)}))
        center = ray.get_actor("actor_register_center")
        print(ray.get(center.get_worker_info.remote()) == dict(enumerate(where)))
        shown = ray.get([worker.get_cuda_visible_devices.remote() for worker in actors])
        print([text == str(ids[0]) for text, (*_, ids, _) in zip(shown, facts)])
        again = [ray.get_actor(name) for name in names]
        print(ray.get([worker.facts.remote() for worker in again]) == [(*fact[:3], 0) for fact in facts])
        near = cls.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=where[-1], soft=False), num_cpus=0
        ).remote(role="shares")
        print(ray.get(near.get_node_id.remote()) == where[-1])
        print(ray.get(actors[0].__ray_call__.remote(lambda self, n: (self.role, n), 7)))
        from ray._private.state import actors as actors_by_id

        id = actors[1]._actor_id.hex()
        print(eventually(lambda: actors_by_id(id)["State"] == "ALIVE"))
        ray.kill(actors[1])
        print(eventually(lambda: actors_by_id(id)["State"] == "DEAD"))
        print(raised(lambda: ray.get_actor(names[1]), "ValueError"))
        print(raised(lambda: ray.get([worker.facts.remote() for worker in actors]), "RayActorError"))
        for worker in [*actors, *critics, near, center]:
            ray.kill(worker)
        for group in groups:
            remove_placement_group(group)
        print(_gpus_are_free())


def verl_detached_workers():
    """Detached groups and workers; others find them by name, and end them."""
    with _job(namespace="verl"):
        group = placement_group([{"CPU": 2, "GPU": 1}] * 2, strategy="STRICT_PACK", name="pool", lifetime="detached")
        ray.get(group.ready())
        workers, names = _verl_workers([group], "detached", ray.remote(_Worker), lifetime="detached")
        ray.get([worker.facts.remote() for worker in workers])
        del workers
        found = [ray.get_actor(name) for name in names]
        print([variables[1] for _, variables, _, _ in ray.get([worker.facts.remote() for worker in found])])
        print(ray.util.get_placement_group("pool").id == group.id)
        print(sorted(entry["name"] for entry in ray.util.list_named_actors(all_namespaces=True)))
        for worker in found:
            ray.kill(worker)
        remove_placement_group(group)
        print(_gpus_are_free())


class _Model:
    """A model of OpenRLHF."""

    def __init__(self, world_size, rank, master_addr, master_port):
        self.rank = rank
        self.master = master_addr or ray._private.services.get_node_ip_address().strip("[]"), master_port or 1234
        noset = any(os.environ.get(name) for name in (NOSET, "RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES"))
        os.environ["LOCAL_RANK"] = str(ray.get_gpu_ids()[0]) if noset else "0"

    def get_master_addr_port(self):
        return self.master

    def execute_batch(self, method, data, start, end):
        return [getattr(self, method)(one) for one in data["prompts"][start:end]]

    def double(self, number):
        return self.rank, 2 * number

    def facts(self):
        context = ray.get_runtime_context()
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        return context.get_node_id(), ray.get_gpu_ids(), shown, os.environ["LOCAL_RANK"], context.get_accelerator_ids()


def _openrlhf_group(world, share, group=None, resources=None, cls=None):
    cls = cls or ray.remote(num_gpus=1)(_Model)
    if group is None:
        group = placement_group([{"GPU": 1, "CPU": 1} for _ in range(world)], strategy="PACK")
        ray.get(group.ready())

    def one(rank, *master):
        return cls.options(
            num_cpus=share, num_gpus=share, resources=resources, scheduling_strategy=_on(group, rank)
        ).remote(world, rank, *master)

    first = one(0, None, None)
    master = ray.get(first.get_master_addr_port.remote())
    return group, [first, *(one(rank, *master) for rank in range(1, world))]


def openrlhf_actor_groups():
    """Models that share devices by fifths, in bundles that they share too; a batch goes to them in parts."""
    with _job():
        hosts = _hosts()
        group, actors = _openrlhf_group(4, 0.2)
        _, critics = _openrlhf_group(4, 0.2, group)
        facts = ray.get([actor.facts.remote() for actor in actors])
        print(sorted((hosts[node], *ids) for node, ids, *_ in facts))
        print([shown == str(ids[0]) for _, ids, shown, *_ in facts], [local for *_, local, _ in facts])
        print([{kind: ids for kind, ids in by_kind.items() if ids} for *_, by_kind in facts])
        print(
            [one[:2] == other[:2] for one, other in zip(facts, ray.get([critic.facts.remote() for critic in critics]))]
        )
        print(len(set(ray.get([actor.get_master_addr_port.remote() for actor in actors]))))
        refs = []
        for number, actor in enumerate(actors):
            refs.append(actor.execute_batch.remote("double", ray.put({"prompts": [number, number + 1]}), 0, 2))
        print(ray.get(refs))
        table = ray.util.placement_group_table(group)
        by_node = {}
        for bundle, node in table["bundles_to_node_id"].items():
            by_node.setdefault(node, []).append(bundle)
        print(sorted(chain.from_iterable(by_node.values())), sorted(map(len, by_node.values())))
        for actor in actors + critics:
            ray.kill(actor)
        remove_placement_group(group)
        print(_gpus_are_free())


def openrlhf_without_visible_devices():
    """With NOSET for the whole job the local rank is the number of the device."""
    with _job(runtime_env={"env_vars": {NOSET: "1"}}):
        group, actors = _openrlhf_group(2, 1)
        facts = ray.get([actor.facts.remote() for actor in actors])
        print([(local == str(ids[0]), shown) for _, ids, shown, local, _ in facts])
        remove_placement_group(group)


def openrlhf_vllm_engines():
    """An engine is an actor without a device, or with a fifth of one, whose children are put into its group."""

    @ray.remote
    def get_all_env_variables():
        return os.environ

    @ray.remote
    class LLMRayActor:
        def __init__(self, indices, **kwargs):
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
            self.indices = indices

        def start(self):
            group = ray.util.get_current_placement_group()
            placed_in = ray.get_runtime_context().get_placement_group_id()
            if self.indices is None:
                return ray.get_gpu_ids(), placed_in == group.id.hex()
            self.workers = [
                ray.remote(num_cpus=0, num_gpus=0.2, scheduling_strategy=_on(group, index))(_Proc).remote(index)
                for index in self.indices
            ]
            where = ray.get([worker.get_node_and_gpu_ids.remote() for worker in self.workers])
            return len({(node, *ids) for node, ids in where}), ray.get_gpu_ids(), placed_in == group.id.hex()

    with _job():
        print("PATH" in ray.get(get_all_env_variables.remote()))
        plain = LLMRayActor.options(num_cpus=0, num_gpus=1, scheduling_strategy=None, resources=None).remote(None)
        print(raised(lambda: ray.get(plain.start.remote()), "AttributeError"))
        ray.kill(plain)
        print(_gpus_are_free())
        group, actors = _openrlhf_group(4, 0.2)
        ray.get([actor.facts.remote() for actor in actors])
        wide = [
            LLMRayActor.options(
                num_cpus=0,
                num_gpus=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=group, placement_group_capture_child_tasks=True, placement_group_bundle_index=2 * n
                ),
            ).remote([2 * n, 2 * n + 1], model="x")
            for n in range(2)
        ]
        print(ray.get([engine.start.remote() for engine in wide]))
        narrow = LLMRayActor.options(
            num_cpus=0, num_gpus=0.2, scheduling_strategy=_on(group, 3, placement_group_capture_child_tasks=True)
        ).remote(None)
        ids, same = ray.get(narrow.start.remote())
        print(len(ids), same)
        for actor in [*actors, *wide, narrow]:
            ray.kill(actor)
        remove_placement_group(group)
        print(_gpus_are_free())
