"""Classes of actors: what of a class can be used through its actors, and what not."""

import ray

from tests.ray_docs.helpers import eventually, raised, tally


def a_class_cannot_be_called():
    """Instances are made by `.remote`."""

    @ray.remote
    class A:
        pass

    print(raised(A, "TypeError"))


def a_method_cannot_be_called():
    """Methods are called by `.remote`."""

    @ray.remote
    class A:
        def f(self):
            return 1

    a = A.remote()
    print(raised(a.f, "TypeError"))


def attributes_are_not_to_be_read():
    """A handle has methods only."""

    @ray.remote
    class A:
        def __init__(self):
            self.x = 1

    a = A.remote()
    print(raised(lambda: a.x, "AttributeError"), raised(lambda: a.nothing, "AttributeError"))


def static_and_class_methods():
    """They can be called by the handle like others."""

    @ray.remote
    class A:
        base = 10

        @staticmethod
        def double(x):
            return 2 * x

        @classmethod
        def plus(cls, x):
            return cls.base + x

    a = A.remote()
    print(ray.get([a.double.remote(2), a.plus.remote(1)]))


def attributes_of_the_class():
    """Constants and static methods can be read at the actor class itself."""

    @ray.remote
    class A:
        LIMIT = 10

        @staticmethod
        def double(x):
            return 2 * x

    print(A.LIMIT, A.double(4), raised(lambda: A.nothing, "AttributeError"))


def inherited_methods():
    """An actor of a derived class has the methods of its base, with `super()`."""

    class Base:
        def f(self):
            return "base"

    @ray.remote
    class Derived(Base):
        def f(self):
            return super().f() + " derived"

        def g(self):
            return "g"

    a = Derived.remote()
    print(ray.get([a.f.remote(), a.g.remote()]))


def remote_by_function_call():
    """`ray.remote(Class)` and `ray.remote(num_cpus=1)(Class)` are the decorator."""

    class A:
        def f(self):
            return 1

    print(ray.get(ray.remote(A).remote().f.remote()), ray.get(ray.remote(num_cpus=1)(A).remote().f.remote()))


def classes_of_actors_cannot_be_derived_from():
    """Deriving from what the decorator made is refused."""

    @ray.remote
    class A:
        pass

    def derive():
        class B(A):
            pass

    print(raised(derive, "TypeError"))


def bound_methods_are_arguments():
    """A method of a handle can be given to a task, which calls it."""

    @ray.remote
    class A:
        def f(self, x):
            return x + 1

    @ray.remote
    def call(method):
        return ray.get(method.remote(1))

    a = A.remote()
    ray.get(a.f.remote(0))
    print(ray.get(call.remote(a.f)))


def a_method_named_like_an_attribute():
    """An instance attribute that hides a method is the user's affair: the attribute is called."""

    @ray.remote
    class A:
        def __init__(self):
            self.value = 5

        def get(self):
            return self.value

        def value(self):
            return "method"

    a = A.remote()
    print(ray.get(a.get.remote()))
    print(raised(lambda: ray.get(a.value.remote()), "TypeError", "RayTaskError"))


def dunder_del_and_shutdown():
    """`__ray_shutdown__` is called when an actor ends because its last handle is gone."""

    @ray.remote
    class A:
        def __init__(self, path):
            self.path = path

        def f(self):
            return 1

        def __ray_shutdown__(self):
            open(self.path, "ab").write(b"x")

    with tally() as counts:
        a = A.remote(counts.path)
        ray.get(a.f.remote())
        del a
        print(eventually(lambda: counts.count == 1, timeout=10))


def repr_names_the_class():
    """`repr` of a handle tells the class and the id."""

    @ray.remote
    class Special:
        pass

    a = Special.remote()
    print("Special" in repr(a), a._actor_id.hex() in repr(a))


def names_of_methods_in_dir():
    """`dir(handle)` has the methods."""

    @ray.remote
    class A:
        def first(self):
            pass

        def second(self):
            pass

    print([name for name in dir(A.remote()) if name in ("first", "second")])


def options_that_actors_do_not_have():
    """Unknown ones are refused."""

    @ray.remote
    class A:
        pass

    print(
        raised(lambda: A.options(num_returns=2).remote(), "ValueError"),
        raised(lambda: A.options(nothing=2).remote(), "ValueError"),
    )
