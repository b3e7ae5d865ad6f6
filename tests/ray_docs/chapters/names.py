"""Names of actors: given once, in namespaces, found by others."""

import ray

from tests.ray_docs.helpers import raised


def a_named_actor():
    """`get_actor` finds it by its name."""

    @ray.remote
    class A:
        def f(self):
            return ray.get_runtime_context().get_actor_name()

    a = A.options(name="docs-named").remote()
    print(ray.get(ray.get_actor("docs-named").f.remote()), ray.get_actor("docs-named") == a)


def a_name_is_taken_once():
    """A second actor of the same name is refused."""

    @ray.remote
    class A:
        def f(self):
            return 1

    a = A.options(name="docs-taken").remote()
    ray.get(a.f.remote())
    print(raised(lambda: A.options(name="docs-taken").remote(), "ValueError"))
    del a


def a_name_that_nobody_has():
    """`get_actor` raises ValueError."""
    print(raised(lambda: ray.get_actor("docs-nobody"), "ValueError"))


def get_or_create():
    """`get_if_exists` gives the one that is there, else makes it."""

    @ray.remote
    class A:
        def __init__(self, x):
            self.x = x

        def get(self):
            return self.x

    a = A.options(name="docs-shared", get_if_exists=True).remote(1)
    b = A.options(name="docs-shared", get_if_exists=True).remote(2)
    print(ray.get([a.get.remote(), b.get.remote()]), a == b)


def names_live_in_namespaces():
    """The same name can be taken in another namespace."""

    @ray.remote
    class A:
        def f(self):
            return "here"

    a = A.options(name="docs-there", namespace="elsewhere").remote()
    print(ray.get(a.f.remote()), raised(lambda: ray.get_actor("docs-there"), "ValueError"))
    print(ray.get(ray.get_actor("docs-there", namespace="elsewhere").f.remote()))
    print({"name": "docs-there", "namespace": "elsewhere"} in ray.util.list_named_actors(all_namespaces=True))


def names_are_listed():
    """`list_named_actors` has the names of the namespace."""

    @ray.remote
    class A:
        def f(self):
            return 1

    a = A.options(name="docs-listed").remote()
    ray.get(a.f.remote())
    print("docs-listed" in ray.util.list_named_actors())


def name_of_one_call():
    """`.options(name=)` of a method names the call."""

    @ray.remote
    class A:
        def f(self):
            return ray.get_runtime_context().get_task_name()

    a = A.remote()
    print(ray.get(a.f.options(name="special").remote()), ray.get(a.f.remote()))
