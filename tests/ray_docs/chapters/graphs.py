"""Graphs of bound calls: their order, their arguments, what is shared."""

import ray

from tests.ray_docs.helpers import raised


@ray.remote
class Counter:
    def __init__(self, start):
        self.value = start

    def inc(self, by):
        self.value += by
        return self.value

    def get(self):
        return self.value


def calls_of_an_actor_run_in_the_order_of_bind():
    """Bound calls of one actor run in the order in which they were bound, also without a connection."""
    actor = Counter.bind(10)
    actor.inc.bind(2)
    actor.inc.bind(4)
    print(ray.get(actor.get.bind().execute()))


def calls_that_were_bound_later_do_not_run():
    """A call runs with those that were bound before it."""
    actor = Counter.bind(10)
    first = actor.inc.bind(1)
    actor.inc.bind(100)
    print(ray.get(first.execute()), ray.get(actor.get.bind().execute()))


def the_order_of_arguments_does_not_matter():
    """Calls of one actor keep their order, however they are used."""

    @ray.remote
    def both(a, b):
        return a, b

    actor = Counter.bind(0)
    first = actor.inc.bind(1)
    second = actor.inc.bind(10)
    print(ray.get(both.bind(second, first).execute()))


def each_execution_has_actors_of_its_own():
    """`execute` creates the actors of the graph."""
    actor = Counter.bind(0)
    call = actor.inc.bind(1)
    print(ray.get(call.execute()), ray.get(call.execute()))


def a_node_in_two_places_runs_once():
    """A node that two others use is one call."""

    @ray.remote
    def add(a, b):
        return a + b

    actor = Counter.bind(0)
    once = actor.inc.bind(5)
    print(ray.get(add.bind(add.bind(once, 1), once).execute()), ray.get(add.bind(once, actor.get.bind()).execute()))


def nodes_inside_containers():
    """Nodes in lists and dictionaries are references to their results."""

    @ray.remote
    def one(x):
        return x

    @ray.remote
    def total(values, named):
        return sum(ray.get(values)) + ray.get(named["a"][0])

    print(ray.get(total.bind([one.bind(1), one.bind(2)], {"a": (one.bind(4),)}).execute()))


def an_actor_as_an_argument():
    """A bound actor as an argument is its handle."""

    @ray.remote
    def use(actor):
        return ray.get(actor.inc.remote(3))

    print(ray.get(use.bind(Counter.bind(4)).execute()))


def methods_that_do_not_exist():
    """A wrong name of a method is found when it is bound."""
    print(raised(lambda: Counter.bind(1).nothing.bind(), "AttributeError"))


def calls_of_a_living_actor():
    """Methods of a handle can be bound too."""
    actor = Counter.remote(1)
    node = actor.inc.bind(1)
    print(ray.get(node.execute()), ray.get(actor.get.remote()))
