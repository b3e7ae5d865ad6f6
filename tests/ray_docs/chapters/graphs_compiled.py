"""Compiled graphs: many executions, coroutines, errors, and graphs that cannot be compiled."""

import asyncio
import time

import ray
from ray.dag import InputNode, MultiOutputNode

from tests.ray_docs.helpers import raised


@ray.remote(num_cpus=0)
class Stage:
    def __init__(self, start=0):
        self.value = start
        self.seen = []

    def echo(self, value):
        return value

    def inc(self, by):
        self.value += by
        return self.value

    def inc_two(self, one, two=0):
        self.value += one + two
        return self.value

    def append(self, values):
        return [*values, self.value]

    def collect(self, *values):
        self.seen += values
        return list(self.seen)

    @ray.method(num_returns=2)
    def two(self, value):
        return value, value + 1

    def pair(self, value):
        return value, value + 1

    def fails_if_even(self, value):
        if value % 2 == 0:
            raise ValueError("even")
        return value

    def sleep(self, seconds):
        time.sleep(seconds)
        return seconds


def _runs(graph, *inputs, **options):
    compiled = graph.experimental_compile(**options)
    found = [ray.get(compiled.execute(*(given if isinstance(given, tuple) else (given,)))) for given in inputs]
    compiled.teardown()
    return found


def results_are_got_in_any_order():
    """The second before the first."""
    stage = Stage.remote()
    with InputNode() as given:
        compiled = stage.collect.bind(given).experimental_compile()
    first, second = compiled.execute("a"), compiled.execute("b")
    print(ray.get(second), ray.get(first))
    compiled.teardown()


def several_results_are_got_together_or_not():
    """The list of an execution as a whole, or one by one."""
    one, two = Stage.remote(), Stage.remote()
    with InputNode() as given:
        low, high = one.two.bind(given)
        compiled = MultiOutputNode([two.echo.bind(low), two.echo.bind(high)]).experimental_compile()
    refs = compiled.execute(1)
    print(type(refs) is list, [ray.get(ref) for ref in refs], ray.get(compiled.execute(5)))
    compiled.teardown()


def a_pair_is_one_value():
    """Unless the method says that it has two."""
    stage = Stage.remote()
    with InputNode() as given:
        graph = stage.pair.bind(given)
    print(_runs(graph, 1, 2))


def chains():
    """Of one actor, of two in turns, of four."""
    stage, other = Stage.remote(), Stage.remote(100)
    with InputNode() as given:
        graph = stage.inc.bind(stage.inc.bind(stage.inc.bind(given)))
    print(_runs(graph, 1, 2, 3))
    stage = Stage.remote()
    with InputNode() as given:
        graph = stage.inc.bind(other.inc.bind(stage.inc.bind(given)))
    print(_runs(graph, 1, 2, 3))
    with InputNode() as given:
        graph = given
        for actor in [Stage.remote(number) for number in range(4)]:
            graph = actor.append.bind(graph)
    print(_runs(graph, [], []))


def the_same_input_twice():
    """For one actor, for two, as a whole or in part."""
    stage, other = Stage.remote(), Stage.remote()
    with InputNode() as given:
        graph = MultiOutputNode([stage.inc.bind(given), stage.inc.bind(given), other.inc.bind(given)])
    print(_runs(graph, 0, 1, 2))
    stage = Stage.remote()
    with InputNode() as given:
        graph = MultiOutputNode([stage.inc.bind(given[0]), stage.inc.bind(given[0]), stage.inc.bind(given[1])])
    print(_runs(graph, (0, 1), (1, 2)))
    stage = Stage.remote()
    with InputNode() as given:
        graph = stage.inc_two.bind(2, given)
    print(_runs(graph, 1, 1))
    with InputNode() as given:
        graph = stage.inc_two.bind(given, two=1)
    print(_runs(graph, 2))


def names_and_positions():
    """An execution takes those that the graph uses."""
    stage = Stage.remote()
    with InputNode() as given:
        compiled = stage.collect.bind(given.y, given[0], given.x).experimental_compile()
    print(ray.get(compiled.execute(2, x=3, y=4)))
    for args, kwargs in (((), {}), ((1, 2), {"x": 1, "y": 1}), ((1,), {"y": 3})):
        try:
            print(compiled.execute(*args, **kwargs))
        except ValueError as error:
            print("must be called with" in str(error))
    compiled.teardown()


def the_whole_input_and_a_part_of_it():
    """Are not both in one graph."""
    stage = Stage.remote()
    with InputNode() as given:
        graph = stage.collect.bind(given, stage.inc.bind(given[0]))
    print(raised(graph.experimental_compile, "ValueError"))


def executions_of_coroutines():
    """`execute_async` gives what can be awaited."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # Ray's graph is bound to the loop that there is when it is compiled
    one, two = Stage.remote(), Stage.remote()
    with InputNode() as given:
        graph = MultiOutputNode([one.echo.bind(given), two.inc.bind(given)])
    compiled = graph.experimental_compile(enable_asyncio=True)

    async def run(number):
        futures = await compiled.execute_async(number)
        return len(futures), await asyncio.gather(*futures)

    async def all_of_them():
        return await asyncio.gather(*map(run, range(4)))

    print(loop.run_until_complete(all_of_them()))
    compiled.teardown()


def errors_of_one_output():
    """The list raises, and the next execution does not."""
    one, two = Stage.remote(), Stage.remote()
    with InputNode() as given:
        compiled = MultiOutputNode([one.fails_if_even.bind(given), two.echo.bind(given)]).experimental_compile()
    print(raised(lambda: ray.get(compiled.execute(2)), "ValueError"), ray.get(compiled.execute(1)))
    compiled.teardown()


def a_value_beside_an_error():
    """Of two outputs one has failed.

    Differs: the other one has its value.
    """
    one, two = Stage.remote(), Stage.remote()
    with InputNode() as given:
        compiled = MultiOutputNode([one.echo.bind(given), two.fails_if_even.bind(given)]).experimental_compile()
    refs = compiled.execute(2)
    print([raised(lambda ref=ref: ray.get(ref), "ValueError") for ref in refs])
    compiled.teardown()


def texts_of_errors():
    """Have the line that raised."""
    stage = Stage.remote()
    with InputNode() as given:
        compiled = stage.inc.bind(stage.inc.bind(given)).experimental_compile()
    for _ in range(2):
        try:
            ray.get(compiled.execute("hello"))
        except TypeError as error:
            print("self.value += by" in str(error))
    print(ray.get(compiled.execute(1)))
    compiled.teardown()


def calls_that_nothing_uses():
    """Each call is needed by the output."""
    stage = Stage.remote()
    with InputNode() as given:
        first = stage.inc.bind(given)
        stage.inc.bind(first)
        graph = MultiOutputNode([stage.inc.bind(first)])
    try:
        graph.experimental_compile()
    except ValueError as error:
        print("leaf nodes" in str(error), "There are 1 leaf nodes" in str(error))
    with InputNode() as given:
        low, high = stage.two.bind(given)
        graph = stage.echo.bind(low)
    print(raised(graph.experimental_compile, "ValueError"))


def results_that_take_too_long():
    """A time limit raises; a limit of zero gives what is there."""
    stage = Stage.remote()
    with InputNode() as given:
        compiled = stage.sleep.bind(given).experimental_compile()
    ref = compiled.execute(3)
    print(raised(lambda: ray.get(ref, timeout=0.5), "TimeoutError", "RayChannelTimeoutError"))
    time.sleep(3.5)
    other = compiled.execute(0)
    time.sleep(0.5)
    print(raised(lambda: ray.get(other, timeout=0), "TimeoutError"))
    compiled.teardown()


def actors_after_the_end_of_the_graph():
    """They are free for calls, and for other graphs."""
    actors = [Stage.remote() for _ in range(2)]
    for _ in range(2):
        with InputNode() as given:
            graph = MultiOutputNode([actor.inc.bind(given) for actor in actors])
        print(_runs(graph, 1, 1))
        print(ray.get([actor.inc.remote(0) for actor in actors]))


def misuse():
    """A method is bound with arguments that it takes; a graph that has ended is not executed."""
    stage = Stage.remote()
    with InputNode() as given:
        for args, kwargs in (((given, 1), {}), ((given,), {"by": given}), ((), {}), ((given,), {})):
            print(raised(lambda args=args, kwargs=kwargs: stage.echo.bind(*args, **kwargs), "TypeError"))
        print(raised(lambda: stage.echo.options(name="one").bind(given, given), "TypeError"))
    with InputNode() as given:
        compiled = stage.inc.bind(given).experimental_compile()
    compiled.teardown()
    compiled.teardown()
    print(raised(lambda: compiled.execute(1), "RayChannelError", "RaySystemError"))


def actors_that_die_with_their_graph():
    """If the end says so."""
    stage = Stage.remote()
    with InputNode() as given:
        compiled = stage.echo.bind(given).experimental_compile()
    print(ray.get(compiled.execute(1)))
    compiled.teardown(kill_actors=True)
    print(raised(lambda: ray.get(stage.echo.remote(1)), "RayActorError"))


def hints_of_transports():
    """A tensor may go another way; the values are the same."""
    one, two = Stage.remote(), Stage.remote()
    with InputNode() as given:
        node = one.echo.bind(given)
        graph = two.echo.bind(node)
    print(_runs(graph, 5), hasattr(node, "with_tensor_transport"))
