"""Graphs of bound calls: their order, their arguments, what is shared."""

import ray
import ray.dag

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


@ray.remote
class Pair:
    @ray.method(num_returns=2)
    def two(self, x):
        return x, x + 1

    def one(self, x):
        return x


@ray.remote
def _add(a, b):
    return a + b


@ray.remote
def _same(x):
    return x


def methods_with_several_values():
    """A bound method of a handle with `num_returns=2` is two nodes, which submit one call."""
    actor = Pair.remote()
    a, b = actor.two.bind(1)
    print(ray.get(_add.bind(a, b).execute()), ray.get(a.execute()))
    with ray.dag.InputNode() as given:
        first, second = actor.two.bind(given)
        both = ray.dag.MultiOutputNode([second, first])
    print(ray.get(both.execute(5)), ray.get(both.execute(7)))
    print(ray.get(_add.bind(*actor.one.options(num_returns=2).bind((3, 4))).execute()))


def functions_with_several_values():
    """A bound function with `num_returns=2` is one node, and its result a list."""
    pair = ray.remote(num_returns=2)(lambda x: (x, x + 1))
    print(ray.get(pair.bind(1).execute()))


def the_input_is_used_in_its_context():
    """`InputNode` has no arguments, is used in `with`, and a graph has one."""
    InputNode = ray.dag.InputNode
    print(raised(lambda: InputNode(0), "ValueError"), raised(lambda: InputNode(key=1), "ValueError"))
    print(raised(lambda: InputNode().execute(), "AssertionError"))
    print(raised(lambda: _same.bind(InputNode()).execute(1), "AssertionError"))
    with InputNode() as one, InputNode() as two:
        graph = _add.bind(_same.bind(one), _same.bind(two))
    print(raised(lambda: graph.execute(1), "AssertionError"))


def the_input_has_no_place_in_constructors():
    """A constructor gets no input, and a part of the input is named by a number or a name."""
    with ray.dag.InputNode() as given:
        print(raised(lambda: Counter.bind(given), "ValueError"), raised(lambda: given[(1, 2)], "AssertionError"))
        print(raised(lambda: _same.bind(given.a.b), "AttributeError"))
    print(raised(lambda: ray.dag.MultiOutputNode(_same.bind(1)), "ValueError"))


def what_was_bound():
    """A node has the arguments and the options that were stated."""
    node = _same.options(num_cpus=2, name="n").bind(1, y=2)
    print(node.get_args(), node.get_kwargs(), sorted(node.get_options().items()), _same.bind(1).get_options())
    actor = Counter.options(name="counter", max_pending_calls=10).bind(0)
    actor.inc.options(name="first").bind(1)
    last = actor.get.options(name="last").bind()
    print(sorted(actor.get_options().items()), last.get_options())
    around = last.get_other_args_to_resolve()
    print(around[ray.dag.PARENT_CLASS_NODE_KEY] is actor)
    print(around[ray.dag.PREV_CLASS_METHOD_CALL_KEY].get_options())


def nodes_are_not_called():
    """Nodes have neither `remote` nor, once more, `bind`; wrong options are found."""
    for wrong in (
        lambda: _same.bind(1).remote(),
        lambda: _same.bind(1).bind(),
        lambda: Counter.bind(1).remote(),
        lambda: Counter.bind(1).bind(),
        lambda: Counter.bind(1).get.remote(),
    ):
        print(raised(wrong, "AttributeError"))
    print(raised(lambda: _same.options(num_cpus=-1).bind(1).execute(), "ValueError"))
    print(raised(lambda: Counter.options(num_cpus=-1).bind(1).get.bind().execute(), "ValueError"))
    print(isinstance(ray.dag.InputNode(), ray.dag.DAGNode), isinstance(_same.bind(1), ray.dag.DAGNode))


@ray.remote(num_cpus=0)
class Stage:
    def __init__(self):
        self.value = 0

    def same(self, x):
        return x

    def inc(self, x):
        self.value += x
        return self.value

    def double_and_inc(self, x):
        self.value = 2 * self.value + x
        return self.value

    @ray.method(num_returns=2)
    def two(self, x):
        return x, x + 1


def a_compiled_graph_runs_again_and_again():
    """A compiled graph keeps its actors; a method with two results has two nodes."""
    first, second = Stage.remote(), Stage.remote()
    with ray.dag.InputNode() as given:
        low, high = first.two.bind(given)
        graph = ray.dag.MultiOutputNode([second.inc.bind(low), second.same.bind(high)])
    compiled = graph.experimental_compile()
    print([ray.get(compiled.execute(number)) for number in range(3)])
    compiled.teardown()


def calls_of_a_compiled_graph_run_in_the_order_of_bind():
    """Methods of one actor run in the order in which they were bound, whatever the order of the outputs."""
    first, second = Stage.remote(), Stage.remote()
    with ray.dag.InputNode() as given:
        upper = second.double_and_inc.bind(first.inc.bind(given))
        lower = first.double_and_inc.bind(second.inc.bind(given))
        graph = ray.dag.MultiOutputNode([lower, upper])
    compiled = graph.experimental_compile()
    print(ray.get(compiled.execute(1)))
    compiled.teardown()


def parts_of_the_input_of_a_compiled_graph():
    """A part of the input is an argument, also of an only one."""
    stage = Stage.remote()
    with ray.dag.InputNode() as given:
        graph = stage.same.bind(given[0])
    compiled = graph.experimental_compile()
    print(ray.get(compiled.execute([1, 2])))
    compiled.teardown()


def graphs_that_cannot_be_compiled():
    """Each call needs an input, by position, and outside of containers."""
    stage = Stage.remote()
    print(raised(stage.inc.bind(1).experimental_compile, "ValueError"))
    with ray.dag.InputNode() as given:
        print(raised(stage.same.bind(x=given).experimental_compile, "ValueError"))
        print(raised(stage.same.bind([given]).experimental_compile, "ValueError"))
        graph = ray.dag.MultiOutputNode([stage.same.bind(given), stage.inc.bind(1)])
        print(raised(graph.experimental_compile, "ValueError"))


def parts_of_the_input_that_nothing_uses():
    """Each part that was named is needed by the output of a compiled graph."""
    stage = Stage.remote()
    with ray.dag.InputNode() as given:
        _ = given[1]
        graph = stage.same.bind(given[0])
    print(raised(graph.experimental_compile, "ValueError"))


def arguments_of_a_compiled_graph():
    """Are as many as the graph has a use for; names may be more."""
    stage = Stage.remote()
    with ray.dag.InputNode() as given:
        compiled = stage.same.bind(given).experimental_compile()
    for args, kwargs in (((), {}), ((1, 2), {}), ((), {"x": 1})):
        print(raised(lambda args=args, kwargs=kwargs: compiled.execute(*args, **kwargs), "ValueError"))
    compiled.teardown()
    with ray.dag.InputNode() as given:
        graph = ray.dag.MultiOutputNode([stage.same.bind(given[0]), stage.same.bind(given.by)])
    compiled = graph.experimental_compile()
    for args, kwargs in (((), {}), ((1,), {}), ((1, 2), {"by": 3}), ((), {"by": 3})):
        print(raised(lambda args=args, kwargs=kwargs: compiled.execute(*args, **kwargs), "ValueError"))
    print(ray.get(compiled.execute(1, by=3, other=4)))
    compiled.teardown()


def a_compiled_graph_goes_on_after_an_error():
    """The error of a call is that of the result, and the next execution is not touched by it."""
    stage = Stage.remote()
    with ray.dag.InputNode() as given:
        graph = stage.inc.bind(stage.same.bind(given))
    compiled = graph.experimental_compile()
    result = compiled.execute("text")
    print(raised(lambda: ray.get(result), "TypeError"))
    print(ray.get(compiled.execute(2)))
    compiled.teardown()


@ray.remote
def _any(*args, **kwargs):
    return len(args), len(kwargs)


def nodes_of_nodes():
    """The nodes in the arguments of a node, inside containers or not, and others in their places."""
    one, two, three, four, five = (_any.bind() for _ in range(5))
    node = _any.bind(1, one, x=two, y={"foo": three})
    print(node.get_kwargs() == {"x": two, "y": {"foo": three}}, tuple(node.get_args()) == (1, one))
    print(node._get_toplevel_child_nodes() == [one, two], node._get_all_child_nodes() == [one, two, three])
    places = {one: four, two: four, three: five}
    other = node._apply_and_replace_all_child_nodes(lambda child: places[child])
    print(other._get_all_child_nodes() == [four, five], node._get_all_child_nodes() == [one, two, three])
    print(ray.get(node.execute()) == ray.get(other.execute()))
    actor = Counter.bind(1)
    first, second = actor.inc.bind(2), actor.get.bind()
    print(second._get_toplevel_child_nodes() == [actor, first], second._get_all_child_nodes() == [actor, first])


def functions_of_nodes():
    """A function is applied to each node once, to what a node needs before the node."""
    seen = []

    def note(node):
        seen.append(node.get_stable_uuid())
        return node

    one = _any.bind()
    two = _any.bind(one, [one])
    copy = _any.bind(two, one, x=two).apply_recursive(note)
    print(len(seen), seen[:2] == [one.get_stable_uuid(), two.get_stable_uuid()], ray.get(copy.execute()))
    print(_any.bind(two, [one]).apply_recursive(lambda node: len(node.get_args())))
    actor = Counter.bind(10)
    actor.inc.bind(5)
    print(ray.get(actor.get.bind().apply_recursive(lambda node: node).execute()))


def functions_of_many_nodes():
    """A node that is needed in many places is visited from each, and what it needs is not visited again."""
    first = ray.dag.InputNode()
    one, two = first, _any.bind(first)
    for _ in range(10):
        one, two = _any.bind(one, two), _any.bind(one, two)
    kind, count = ray.dag.DAGNode, []
    plain = kind.apply_recursive

    def counted(self, fn):
        count.append(self)
        return plain(self, fn)

    kind.apply_recursive = counted
    try:
        one.apply_recursive(lambda node: node)
    finally:
        kind.apply_recursive = plain
    print(len(count))


def kinds_of_nodes():
    """A node shows by its class what it stands for."""
    from ray.dag import (
        ClassMethodNode,
        ClassNode,
        DAGNode,
        FunctionNode,
        InputAttributeNode,
        InputNode,
        MultiOutputNode,
    )

    kinds = (ClassMethodNode, ClassNode, FunctionNode, InputAttributeNode, InputNode, MultiOutputNode)
    actor, living = Counter.bind(1), Counter.remote(1)
    with InputNode() as given:
        nodes = [_any.bind(given), actor, actor.inc.bind(given), living.get.bind(), given, given[0], given.name]
        for node in [*nodes, MultiOutputNode([nodes[0]])]:
            name = type(node).__name__
            print(name, isinstance(node, DAGNode), [kind.__name__ for kind in kinds if isinstance(node, kind)])
            print(name in str(node) or isinstance(node, InputNode))


def settings_of_compiled_graphs():
    """Have defaults, one set for each process."""
    from ray.dag import DAGContext

    context = DAGContext.get_current()
    print(context is DAGContext.get_current(), sorted(vars(context).items()))


def texts_of_misuse():
    """What errors say."""
    for part, call in (
        (".bind() cannot be used again on", lambda: Counter.bind(1).bind()),
        (".remote() cannot be used on ClassMethodNodes", lambda: Counter.bind(1).get.remote()),
        ("'Counter' has no attribute 'remote'", lambda: Counter.bind(1).remote()),
        (".remote() cannot be used on", lambda: _any.bind().remote()),
    ):
        try:
            print(call())
        except AttributeError as error:
            print(part in str(error))
    try:
        print(Counter.bind(ray.dag.InputNode()))
    except ValueError as error:
        print("InputNode handles user dynamic input the DAG, and cannot be used as args, kwargs, or" in str(error))


def objects_inside_values():
    """They are found inside containers and objects, and replaced."""
    from ray.dag.py_obj_scanner import _instances, _PyObjScanner

    class Source:
        pass

    class Holder:
        def __init__(self, inside):
            self.inside = inside

    before = len(_instances)
    scanner, one = _PyObjScanner(source_type=Source), Source()
    found = scanner.find_nodes([one, [Source(), {"key": Source()}, one], Holder(Source())])
    made = scanner.replace_nodes(dict.fromkeys(found, 1))
    print(len(found), found[0] is one, made[:2], made[2].inside)
    scanner.clear()
    print(len(_instances) == before, id(scanner) in _instances)
