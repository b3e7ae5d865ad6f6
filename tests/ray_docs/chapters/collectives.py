"""Collective operations of actors. On Ray they need torch, and here they do not: numpy alone is used."""

import numpy as np
import ray
import ray.util.collective as collective
from ray.util.collective.types import Backend, ReduceOp

from tests.ray_docs.helpers import raised

KINDS = ("ValueError", "RuntimeError", "TypeError", "AssertionError")


@ray.remote(num_cpus=0)
class Member:
    def __init__(self):
        self.array = np.ones(10, dtype=np.float32)
        self.arrays = [np.ones(10, dtype=np.float32) for _ in range(2)]

    def join(self, size, rank, name="default"):
        collective.init_collective_group(size, rank, "gloo", name)
        return True

    def set(self, array):
        self.array = array

    def set_list(self, arrays):
        self.arrays = [one.copy() for one in arrays]

    def call(self, name, *args, **kwargs):
        getattr(collective, name)(self.array, *args, **kwargs)
        return self.array

    def gather(self):
        collective.allgather(self.arrays, self.array)
        return self.arrays

    def scatter(self):
        collective.reducescatter(self.array, self.arrays)
        return self.array

    def ask(self, name, *args):
        return getattr(collective, name)(*args)


def _members(name="default"):
    members = [Member.remote() for _ in range(2)]
    ray.get([member.join.remote(2, rank, name) for rank, member in enumerate(members)])
    return members


def _all(members, name, *args, **kwargs):
    return [one.tolist() for one in ray.get([member.call.remote(name, *args, **kwargs) for member in members])]


def members_know_their_group():
    """Their rank and the size; -1 of a group that they are not in."""
    for name in ("default", "a b!"):
        members = _members(name)
        for question in ("get_rank", "get_collective_group_size", "is_group_initialized"):
            print(ray.get([member.ask.remote(question, name) for member in members]))
            print(ray.get(members[0].ask.remote(question, "another")))


def groups_may_overlap():
    """An actor is in several groups, with another rank in each."""
    members = _members()
    ray.get([member.join.remote(2, 1 - rank, "reversed") for rank, member in enumerate(members)])
    print(ray.get([member.ask.remote("get_rank", "reversed") for member in members]))
    print([one[0] for one in _all(members, "allreduce")], [one[0] for one in _all(members, "allreduce", "reversed")])


def arrays_that_actors_have_made():
    """They are changed in place."""
    print([set(one) for one in _all(_members(), "allreduce")])


def arrays_from_arguments():
    """They are changed in place too, of any size, dtype and shape."""
    members = _members()
    for shape, dtype in (((3,), "float32"), ((2, 2), "float64"), ((5,), "uint8"), ((1 << 18,), "float32")):
        ray.get([member.set.remote(np.ones(shape, dtype) * (rank + 1)) for rank, member in enumerate(members)])
        found = ray.get([member.call.remote("allreduce") for member in members])
        print([(one.shape, str(one.dtype), float(one.min()), float(one.max())) for one in found])


def operations():
    """Sums, products, least and greatest values."""
    members = _members()
    for op in (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX):
        ray.get([member.set.remote(np.full(2, rank + 2.0)) for rank, member in enumerate(members)])
        print(op.name, _all(members, "allreduce", op=op))


def one_rank_gets_the_result():
    """`reduce` leaves the arrays of the others as they are."""
    members = _members()
    for rank in (0, 1):
        ray.get([member.set.remote(np.full(2, number + 1.0)) for number, member in enumerate(members)])
        print(_all(members, "reduce", rank))


def one_rank_has_the_value():
    """`broadcast`."""
    members = _members()
    for rank in (0, 1):
        ray.get([member.set.remote(np.full(2, number + 1.0)) for number, member in enumerate(members)])
        print(_all(members, "broadcast", rank))


def arrays_are_gathered():
    """In a list of as many arrays as there are ranks."""
    members = _members()
    ray.get([member.set.remote(np.full(10, rank + 1, np.float32)) for rank, member in enumerate(members)])
    print([[float(one[0]) for one in found] for found in ray.get([member.gather.remote() for member in members])])


def lists_that_do_not_fit():
    """A list of another length, or arrays of another size."""
    members = _members()
    for shapes in ((), ((10,),), ((10,),) * 3, ((20,),) * 2):
        ray.get([member.set_list.remote([np.ones(shape, np.float32) for shape in shapes]) for member in members])
        print(shapes, raised(lambda: ray.get([member.gather.remote() for member in members]), "RuntimeError"))


def arrays_are_combined_and_scattered():
    """Each rank gets its part."""
    members = _members()
    for rank, member in enumerate(members):
        ray.get(member.set_list.remote([np.full(10, 10.0 * rank + part, np.float32) for part in range(2)]))
    print([float(one[0]) for one in ray.get([member.scatter.remote() for member in members])])


def arrays_are_sent():
    """From one rank to another."""
    members = _members()
    ray.get([member.set.remote(np.full(2, rank + 1.0)) for rank, member in enumerate(members)])
    got = ray.get([members[0].call.remote("send", 1), members[1].call.remote("recv", 0)])
    print([one.tolist() for one in got])


def ranks_that_are_not_there():
    """They are refused."""
    members = _members()
    for call in ("broadcast", "reduce", "send", "recv"):
        print(call, raised(lambda call=call: ray.get([one.call.remote(call, 3) for one in members]), "ValueError"))


def groups_end():
    """Then there is no rank, operations fail, and the name can be taken again. A group that is not there ends too."""
    members = _members()
    ray.get([member.ask.remote("destroy_collective_group") for member in members])
    print(ray.get([member.ask.remote("is_group_initialized", "default") for member in members]))
    print(raised(lambda: ray.get([one.call.remote("allreduce") for one in members]), "RuntimeError"))
    print(raised(lambda: ray.get(members[0].ask.remote("destroy_collective_group", "never")), *KINDS))
    ray.get([member.join.remote(2, rank) for rank, member in enumerate(members)])
    print([one[0] for one in _all(members, "allreduce")])


def one_leaves_its_group():
    """The other one is in it still."""
    members = _members()
    ray.get(members[0].ask.remote("destroy_collective_group"))
    print(ray.get([member.ask.remote("is_group_initialized", "default") for member in members]))


def groups_made_by_the_driver():
    """The members need not join."""
    members = [Member.remote() for _ in range(2)]
    collective.create_collective_group(members, 2, [0, 1], backend="gloo", group_name="made")
    print([one[0] for one in _all(members, "allreduce", "made")])
    print(ray.get([member.ask.remote("get_rank", "made") for member in members]))


def groups_that_cannot_be():
    """Ranks and actors are as many, and each once."""
    members = [Member.remote() for _ in range(2)]

    def made(size, ranks, name="never"):
        return raised(lambda: collective.create_collective_group(members, size, ranks, "gloo", name), "RuntimeError")

    print(made(2, [0]), made(2, [0, 0]), made(2, [0, 2]))


def a_group_twice():
    """A process joins a group once."""
    members = _members()
    print(raised(lambda: ray.get(members[0].join.remote(2, 0)), "RuntimeError"))


def names_of_backends():
    """In any case."""
    print(Backend("nccl") == Backend.NCCL, Backend("gloo") == Backend.GLOO, Backend("torch_gloo") == Backend.GLOO)
    print(raised(lambda: Backend("mine"), "ValueError"), collective.gloo_available())
    print(collective.is_backend_available("GLOO"), collective.is_backend_available("mine"))


def how_long_a_member_waits():
    """In milliseconds, by the name of Ray's library."""

    @ray.remote(num_cpus=0)
    class Alone:
        def join(self):
            collective.init_collective_group(1, 0, "gloo", "alone", 40000)
            array = np.ones(2)
            collective.allreduce(array, "alone")
            collective.barrier("alone")
            return array.tolist()

        def again(self):
            collective.init_collective_group(1, 0, "gloo", "again", gloo_timeout=40000)
            return collective.get_rank("again")

    print(ray.get(Alone.remote().join.remote()), ray.get(Alone.remote().again.remote()))
