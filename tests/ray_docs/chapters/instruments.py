"""Metrics, graphs of calls and environments: what they take, what they refuse, and what they say of themselves."""

import os

import ray
from ray.dag import InputNode, MultiOutputNode
from ray.runtime_env import RuntimeEnv
from ray.util.metrics import Counter, Gauge, Histogram

from tests.ray_docs.helpers import raised

KINDS = ("ValueError", "TypeError")


def metrics_describe_themselves():
    """Each has a name, a description, keys of tags and defaults for them."""
    for metric in (
        Counter("of_mine_total", description="a counter", tag_keys=("a", "b")),
        Gauge("of_mine", tag_keys=("a",)),
        Histogram("of_mine_seconds", description="a histogram", boundaries=[0.1, 2], tag_keys=("b",)),
    ):
        metric.set_default_tags({metric.info["tag_keys"][0]: "x"})
        print({name: value for name, value in metric.info.items() if name != "boundaries"})


def metrics_return_themselves():
    """Default tags can be set where the metric is made."""
    counter = Counter("of_chain", tag_keys=("a",))
    made = counter.set_default_tags({"a": "1"})
    print(made is counter, counter.inc(), counter.inc(2.5), counter.inc(1, tags={"a": "2"}))


def keys_of_tags_are_strings():
    """In a tuple."""
    for keys in (("a",), "a", (1,), None, ()):
        print(repr(keys), raised(lambda keys=keys: Counter("of_keys", tag_keys=keys), *KINDS))


def default_tags_are_known():
    """They have keys of the metric, and strings as values."""
    for tags in ({"a": "x"}, {"b": "x"}, {"a": 1}, {}):
        print(tags, raised(lambda tags=tags: Counter("of_defaults", tag_keys=("a",)).set_default_tags(tags), *KINDS))


def tags_of_a_value():
    """All tags without a default are stated, and no others."""
    counter = Counter("of_values", tag_keys=("a", "b"))
    counter.set_default_tags({"b": "y"})
    for tags in (None, {}, {"a": "x"}, {"a": "x", "b": "z"}, {"b": "z"}, {"a": 1}):
        print(tags, raised(lambda tags=tags: counter.inc(1, tags=tags), *KINDS))


def unknown_tags_of_a_value():
    """A tag that the metric has not."""
    print(raised(lambda: Counter("of_unknown", tag_keys=("a",)).inc(1, tags={"a": "x", "c": "y"}), *KINDS))


def counters_only_rise():
    """By a number more than nothing."""
    for value in (1, 0.5, 0, -1, "1", None):
        print(repr(value), raised(lambda value=value: Counter("of_rises").inc(value), *KINDS))


def gauges_take_numbers():
    """Of any sign."""
    for value in (1, -0.5, 0, "1"):
        print(repr(value), raised(lambda value=value: Gauge("of_gauges").set(value), *KINDS))


def histograms_have_boundaries():
    """Which are numbers above zero."""
    for boundaries in ([1, 2, 3], [0.5], [0, 1], [-1, 1], [], None, 5):
        print(boundaries, raised(lambda given=boundaries: Histogram("of_boundaries", boundaries=given), *KINDS))
    print(raised(lambda: Histogram("of_observed", boundaries=[1]).observe("x"), *KINDS))
    print(Histogram("of_observed", boundaries=[1]).observe(5))


def names_of_metrics():
    """Are text, and not empty."""
    for name in ("", 1, None, "a:b_c"):
        print(repr(name), raised(lambda name=name: Counter(name), *KINDS))


def metrics_are_passed_on():
    """Tasks and actors may have a metric, as an argument or as an attribute."""

    @ray.remote
    class A:
        def __init__(self):
            self.count = Counter("of_actor", tag_keys=("a",))
            self.count.set_default_tags({"a": "x"})

        def inc(self):
            self.count.inc()
            return sorted(self.count.info["default_tags"].items())

    print(ray.get(A.remote().inc.remote()))


def inputs_by_position_and_name():
    """`execute` takes what the graph uses: one value, several, or names."""
    same = ray.remote(lambda x: x)
    with InputNode() as given:
        one = same.bind(given)
    with InputNode() as given:
        both = MultiOutputNode([same.bind(given[0]), same.bind(given["key"]), same.bind(given.other)])
    print(ray.get(one.execute(5)), ray.get(one.execute([1, 2])))
    print(ray.get(both.execute(1, key=2, other=3)))


def inputs_have_parts():
    """Attributes and items of one argument."""
    same = ray.remote(lambda x: x)
    with InputNode() as given:
        graph = MultiOutputNode([same.bind(given["a"]), same.bind(given["b"])])
    print(ray.get(graph.execute(a=1, b=2)), ray.get(graph.execute({"a": 3, "b": 4})))
    with InputNode() as given:
        graph = MultiOutputNode([same.bind(given[0]), same.bind(given[1])])
    print(ray.get(graph.execute(5, 6)), ray.get(graph.execute([7, 8])))


def graphs_without_an_input():
    """Take no arguments."""
    same = ray.remote(lambda x: x)
    graph = same.bind(same.bind(1))
    print(ray.get(graph.execute()), raised(lambda: ray.get(graph.execute(2)), "TypeError", "ValueError"))


def inputs_that_are_missing():
    """Are an error where the graph is executed."""
    same = ray.remote(lambda x: x)
    with InputNode() as given:
        pair = same.bind(given[1])
        named = same.bind(given.key)
    for call in (lambda: pair.execute(1), lambda: named.execute(other=1)):
        print(raised(lambda call=call: ray.get(call()), "TypeError", "ValueError", "IndexError", "KeyError",
                     "AssertionError", "AttributeError"))  # fmt: skip


def graphs_mix_functions_and_actors():
    """A function of the result of a method, inside of containers."""

    @ray.remote
    class Adds:
        def __init__(self, start):
            self.start = start

        def add(self, x, y=0):
            return self.start + x + y

    total = ray.remote(lambda values: sum(ray.get(values["all"][:2]), values["all"][2]))
    with InputNode() as given:
        actor = Adds.bind(10)
        graph = total.bind({"all": [actor.add.bind(given[0]), actor.add.bind(given[0], y=given[1]), 1]})
    print(ray.get(graph.execute(1, 2)))


def graphs_with_errors():
    """The error of a call is that of what depends on it."""

    @ray.remote
    def fails(x):
        raise KeyError(x)

    same = ray.remote(lambda x: x)
    print(raised(lambda: ray.get(same.bind(fails.bind(1)).execute()), "KeyError"))


def graphs_of_references():
    """References and values of `put` are arguments as elsewhere."""
    same = ray.remote(lambda x: x)
    ref = ray.put(5)
    print(ray.get(same.bind(ref).execute()), ray.get(ray.get(same.bind([ref]).execute())[0]))


def several_outputs():
    """One result for each output, also twice the same."""
    same = ray.remote(lambda x: x)
    with InputNode() as given:
        node = same.bind(given)
        graph = MultiOutputNode([node, node, same.bind(2)])
    refs = graph.execute(1)
    print(len(refs), ray.get(refs))


def environments_are_checked():
    """Their values have types."""
    for given in (
        {"env_vars": {"A": "1"}},
        {"env_vars": {"A": 1}},
        {"env_vars": {1: "A"}},
        {"env_vars": ["A"]},
        {"working_dir": 5},
        {"excludes": "x"},
        {"py_modules": "x"},
    ):
        print(given, raised(lambda given=given: RuntimeEnv(**given), *KINDS))


def environments_are_checked_at_their_use():
    """In options of calls and actors too."""
    function = ray.remote(lambda: os.environ.get("A"))
    print(ray.get(function.options(runtime_env={"env_vars": {"A": "1"}}).remote()))
    print(ray.get(function.options(runtime_env=RuntimeEnv(env_vars={"A": "2"})).remote()))
    for wrong in ({"env_vars": {"A": 1}}, {"env_vars": "A"}, "text", 5):
        print(raised(lambda wrong=wrong: function.options(runtime_env=wrong).remote(), *KINDS))


def environments_are_inherited():
    """Variables of the caller are there, unless the call states others."""

    @ray.remote(num_cpus=0)
    def inner():
        return os.environ.get("A"), os.environ.get("B")

    @ray.remote(num_cpus=0)
    def outer():
        return ray.get([inner.remote(), inner.options(runtime_env={"env_vars": {"B": "3"}}).remote()])

    print(ray.get(outer.options(runtime_env={"env_vars": {"A": "1", "B": "2"}}).remote()))


def environments_of_calls_are_known():
    """In the context of the call."""

    @ray.remote
    def seen():
        return ray.get_runtime_context().runtime_env.get("env_vars")

    print(ray.get(seen.options(runtime_env={"env_vars": {"A": "1"}}).remote()), ray.get(seen.remote()) or None)
