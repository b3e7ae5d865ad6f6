"""Objects: put, get, references, serialisation."""

import gc
import pickle

import numpy as np
import ray

from tests.ray_docs.helpers import eventually, raised


def put_and_get():
    """`put` stores a value, `get` reads it."""
    ref = ray.put({"a": [1, 2]})
    print(isinstance(ref, ray.ObjectRef), ray.get(ref))


def values_are_immutable_copies():
    """What changes after `put` changes nothing in the store; each `get` gives a copy of its own."""
    value = [1]
    ref = ray.put(value)
    value.append(2)
    got = ray.get(ref)
    got.append(3)
    print(ray.get(ref))


def put_of_a_reference_is_refused():
    """A reference is stored inside something."""
    ref = ray.put(1)
    print(raised(lambda: ray.put(ref), "TypeError"), ray.get(ray.get(ray.put([ref]))[0]))


def arrays_are_read_only():
    """Arrays come without a copy, and so cannot be written to."""
    array = ray.get(ray.put(np.zeros(200_000)))

    def write():
        array[0] = 1

    print(array.flags.writeable, raised(write, "ValueError"), float(array.copy().sum()))


def small_arrays_are_read_only_too():
    """Also those that are small."""
    array = ray.get(ray.put(np.zeros(3)))
    print(array.flags.writeable)


def arrays_in_arguments_are_read_only():
    """What a task gets."""

    @ray.remote
    def f(array):
        return array.flags.writeable

    print(ray.get(f.remote(ray.put(np.zeros(200_000)))))


def arrays_within_other_values():
    """Arrays inside dictionaries and tuples come out as they were."""
    value = {"x": np.arange(100_000), "y": (np.float32(1.5), np.array([[1, 2]]))}
    got = ray.get(ray.put(value))
    print(bool((got["x"] == value["x"]).all()), got["y"][0].dtype, got["y"][1].tolist())


def references_are_values():
    """They are hashable, equal by what they name, and have a text."""
    a, b = ray.put(1), ray.put(1)
    print(a == a, a == b, len({a, b, a}), repr(a) == f"ObjectRef({a.hex()})", len(a.binary()) == len(a.hex()) // 2)


def references_know_their_call():
    """`task_id` names the call that makes the value; a reference is not nil."""

    @ray.remote
    def f():
        return ray.get_runtime_context().get_task_id()

    ref = f.remote()
    print(ref.task_id().hex() == ray.get(ref), ref.is_nil(), ray.ObjectRef.nil().is_nil())


def references_in_containers():
    """They are passed on inside of values, and read where they arrive."""

    @ray.remote
    def f(table):
        return {name: ray.get(ref) for name, ref in table.items()}

    print(ray.get(f.remote({"a": ray.put(1), "b": ray.put(2)})))


def references_keep_values_alive():
    """A value lives as long as any process has a reference, also one inside of another value."""

    @ray.remote
    class Holder:
        def keep(self, refs):
            self.refs = refs

        def read(self):
            return ray.get(self.refs[0])

    holder = Holder.remote()
    ref = ray.put("kept")
    ray.get(holder.keep.remote([ref]))
    del ref
    gc.collect()
    print(ray.get(holder.read.remote()))


def results_can_be_read_many_times():
    """`get` does not take a value away."""
    ref = ray.remote(lambda: [1]).remote()
    print([ray.get(ref) for _ in range(3)])


def functions_and_classes_are_values():
    """Also those of the main program, and lambdas."""

    class Point:
        def __init__(self, x):
            self.x = x

        def __eq__(self, other):
            return type(other) is type(self) and other.x == self.x

    got = ray.get(ray.put([Point(1), lambda x: x + 1]))
    print(got[0].x, got[1](1))


def locks_cannot_be_serialised():
    """What belongs to one process raises TypeError."""
    import threading

    print(raised(lambda: ray.put(threading.Lock()), "TypeError"))

    @ray.remote
    def f(x):
        return x

    print(raised(lambda: f.remote(threading.Lock()), "TypeError"))


def results_that_cannot_be_serialised():
    """They are an error of the call."""

    @ray.remote
    def f():
        import threading

        return threading.Lock()

    print(raised(lambda: ray.get(f.remote()), "TypeError", "RayTaskError"))


def own_serialisation_by_reduce():
    """A class may say how it is pickled."""

    class Connection:
        def __init__(self, name):
            self.name, self.open = name, object()

        def __reduce__(self):
            return Connection, (self.name,)

    print(ray.get(ray.put(Connection("db"))).name)


def registered_serialisers():
    """`register_serializer` says it for a class from outside; `deregister_serializer` ends that."""
    import threading

    class Held:
        def __init__(self, x):
            self.x, self.lock = x, threading.Lock()

    print(raised(lambda: ray.put(Held(1)), "TypeError"))
    ray.util.register_serializer(Held, serializer=lambda held: held.x, deserializer=lambda x: Held(x + 1))
    print(ray.get(ray.put(Held(1))).x)
    ray.util.deregister_serializer(Held)
    print(raised(lambda: ray.put(Held(1)), "TypeError"))


def serializability_can_be_looked_into():
    """`inspect_serializability` tells what in a value cannot be serialised."""
    import contextlib
    import io
    import threading

    lock = threading.Lock()

    def f():
        return lock

    with contextlib.redirect_stdout(io.StringIO()):
        fine, none = ray.util.inspect_serializability(1)
        bad, failures = ray.util.inspect_serializability(f, name="f")
    print(fine, len(none), bad, len(failures) > 0)


def bytes_and_text():
    """Plain values come as they were."""
    values = [None, True, -1, 2**70, 1.5, 1j, b"\x00\xff", "tëxt", (), frozenset({1}), range(3)]
    print(ray.get([ray.put(value) for value in values]) == values)


def large_bytes():
    """Large values are the same afterwards."""
    value = bytes(range(256)) * 40_000
    print(ray.get(ray.put(value)) == value, len(ray.get(ray.remote(lambda: bytes(3_000_000)).remote())))


def memory_of_the_store_is_given_back():
    """Values that nobody refers to make room for others."""
    for _ in range(30):
        ref = ray.put(np.zeros(4_000_000))
        del ref
    print("fits")


def references_by_pickle():
    """`ray.cloudpickle` carries a reference outside of values; who reads it needs the job."""
    ref = ray.put("x")
    print(ray.get(ray.cloudpickle.loads(ray.cloudpickle.dumps(ref))))


def plain_pickle_of_functions():
    """`ray.cloudpickle` carries functions as plain pickle cannot."""
    print(pickle.loads(ray.cloudpickle.dumps(lambda x: x + 1))(1))


def refs_of_generators_of_dicts():
    """References may be keys."""
    table = {ray.put(n): n for n in range(3)}
    print(sorted(ray.get(ref) == n for ref, n in table.items()))


def put_inside_of_tasks():
    """What a task puts can be read by others after it has ended."""

    @ray.remote
    def f():
        return [ray.put("inside")]

    print(ray.get(ray.get(f.remote())[0]))


def get_in_threads():
    """Several threads may read the same reference."""
    import threading

    ref, found = ray.put(5), []
    threads = [threading.Thread(target=lambda: found.append(ray.get(ref))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(found)


def object_store_memory_is_a_resource():
    """The store's room stands among the resources of the cluster."""
    print("object_store_memory" in ray.cluster_resources(), "object_store_memory" in ray.available_resources())


def alignment_of_arrays():
    """Arrays of the store begin at multiples of 64 bytes, large and small."""
    print([ray.get(ray.put(np.arange(n, dtype="f8"))).ctypes.data % 64 for n in (10, 100_000)])


def freed_references_wait():
    """A reference to a value whose owner is alive can be waited for again and again."""
    ref = ray.put(1)
    print([len(ray.wait([ref])[0]) for _ in range(2)], eventually(lambda: ray.get(ref) == 1))
