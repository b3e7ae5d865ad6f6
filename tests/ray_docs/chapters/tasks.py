"""Tasks: calling, arguments, results, waiting, options."""

import os
import time

import numpy as np
import ray

from tests.ray_docs.helpers import raised, tally


def call_returns_a_reference_at_once():
    """`.remote` does not wait for the function; `get` does."""

    @ray.remote
    def slow():
        time.sleep(0.2)
        return "value"

    begin = time.monotonic()
    ref = slow.remote()
    print(isinstance(ref, ray.ObjectRef), time.monotonic() - begin < 0.2, ray.get(ref))


def direct_call_is_refused():
    """A remote function cannot be called like a plain one."""

    @ray.remote
    def f():
        return 1

    print(raised(f, "TypeError"))


def arguments_of_all_kinds():
    """Positional, keyword, default and variadic arguments are those of the function."""

    @ray.remote
    def f(a, b=2, *rest, c, **more):
        return a, b, rest, c, sorted(more.items())

    print(ray.get([f.remote(1, c=3), f.remote(1, 2, 3, 4, c=5, d=6)]))


def wrong_arguments_are_found_when_submitting():
    """Missing, unknown and surplus arguments raise TypeError where the call is made."""

    @ray.remote
    def f(a, *, b=1):
        return a

    for call in (f.remote, lambda: f.remote(1, 2), lambda: f.remote(1, c=2), lambda: f.remote(a=1, b=2)):
        print(raised(call, "TypeError"))


def reference_as_an_argument_is_its_value():
    """A reference given as an argument arrives as the value, by position and by keyword."""

    @ray.remote
    def f(a, b=0):
        return a + b

    print(ray.get(f.remote(ray.put(1), b=f.remote(2))))


def reference_inside_a_container_stays_a_reference():
    """Only arguments themselves are resolved."""

    @ray.remote
    def f(items):
        return [isinstance(item, ray.ObjectRef) for item in items], ray.get(
            items["x"] if isinstance(items, dict) else items
        )

    print(ray.get(f.remote([ray.put(1), ray.put(2)])))


def task_starts_after_its_arguments_are_there():
    """A call waits for the values of its arguments."""

    @ray.remote
    def first():
        time.sleep(0.1)
        return time.time()

    @ray.remote
    def second(t):
        return time.time() >= t

    print(ray.get(second.remote(first.remote())))


def nested_tasks():
    """Tasks submit tasks and wait for them."""

    @ray.remote
    def fib(n):
        return n if n < 2 else sum(ray.get([fib.remote(n - 1), fib.remote(n - 2)]))

    print(ray.get(fib.remote(6)))


def nested_reference_can_be_returned():
    """What a task returns may hold a reference, which outlives the task."""

    @ray.remote
    def inner():
        return "inner"

    @ray.remote
    def outer():
        return [inner.remote()]

    print(ray.get(ray.get(outer.remote())[0]))


def returned_reference_is_not_resolved():
    """A task that returns a reference gives a reference to a reference."""

    @ray.remote
    def inner():
        return 7

    @ray.remote
    def outer():
        return inner.remote()

    value = ray.get(outer.remote())
    print(isinstance(value, ray.ObjectRef), ray.get(value))


def several_results():
    """`num_returns` makes a list of references."""

    @ray.remote(num_returns=3)
    def f():
        return 1, 2, 3

    refs = f.remote()
    print(type(refs).__name__, len(refs), ray.get(refs))


def no_result():
    """With `num_returns=0` a call returns None."""

    @ray.remote(num_returns=0)
    def f():
        return 1

    print(f.remote())


def wrong_number_of_results():
    """Too few or too many values are an error of the call."""

    @ray.remote(num_returns=2)
    def f(n):
        return tuple(range(n))

    print([raised(lambda n=n: ray.get(f.remote(n)), "ValueError", "RayTaskError") for n in (1, 3)])


def one_value_for_several_results():
    """What is no sequence cannot be several results."""

    @ray.remote(num_returns=2)
    def f():
        return 5

    print(raised(lambda: ray.get(f.remote()), "TypeError", "ValueError"))


def options_make_another_function():
    """`.options` changes what it returns, not the function itself."""

    @ray.remote
    def f():
        return 1, 2

    two = f.options(num_returns=2)
    print(ray.get(two.remote()), ray.get(f.remote()))


def options_go_on_from_those_of_the_decorator():
    """What `.options` does not name stays as the decorator said."""

    @ray.remote(num_returns=2, name="a")
    def f():
        return ray.get_runtime_context().get_task_name(), 1

    print(ray.get(f.options(name="b").remote()))


def name_of_a_task():
    """`name` is what the call is known by; without it the function's name."""

    @ray.remote
    def f():
        return ray.get_runtime_context().get_task_name()

    print(ray.get(f.options(name="special").remote()), "f" in ray.get(f.remote()))


def unknown_option_is_refused():
    """Options have fixed names."""

    @ray.remote
    def f():
        return 1

    print(
        raised(lambda: f.options(no_such=1), "ValueError"),
        raised(lambda: ray.remote(no_such=1)(lambda: 1), "ValueError"),
    )


def decorator_with_empty_parentheses_is_refused():
    """`@ray.remote()` is an error: either no parentheses or options.

    Differs: a TypeError, where Ray asserts.
    """
    print(raised(lambda: ray.remote()(lambda: 1), "TypeError", "AssertionError"))


def decorator_wants_a_function_or_class():
    """Other things cannot be remote.

    Differs: a TypeError, where Ray asserts.
    """
    print(raised(lambda: ray.remote(1), "TypeError", "AssertionError"))


def negative_amounts_are_refused():
    """Amounts of resources are zero or more."""

    @ray.remote
    def f():
        return 1

    for options in ({"num_cpus": -1}, {"num_gpus": -1}, {"memory": -1}, {"resources": {"special": -1}}):
        print(next(iter(options)), raised(lambda o=options: f.options(**o).remote(), "ValueError"))


def numbers_of_results_have_bounds():
    """`num_returns` is zero or more, or one of two words."""

    @ray.remote
    def f():
        return 1

    for count in (-1, "many", 1.5):
        print(count, raised(lambda n=count: f.options(num_returns=n), "ValueError", "TypeError"))


def numbers_of_retries_have_bounds():
    """-1 means without end; below there is nothing."""

    @ray.remote
    def f():
        return 1

    print(ray.get(f.options(max_retries=-1).remote()), raised(lambda: f.options(max_retries=-2), "ValueError"))


def lambdas_and_closures():
    """What a function closes over goes along."""
    by = 3
    print(ray.get(ray.remote(lambda x: x * by).remote(2)))


def value_of_a_closure_is_that_of_the_first_call():
    """The function is stored once: later changes of what it closes over are not seen."""
    by = [1]

    @ray.remote
    def f():
        return by[0]

    first = ray.get(f.remote())
    by[0] = 2
    print(first, ray.get(f.remote()))


def arguments_are_copies():
    """A task that changes its argument changes nothing for the caller."""
    values = [1, 2]

    @ray.remote
    def f(given):
        given.append(3)
        return given

    print(ray.get(f.remote(values)), values)


def task_runs_in_another_process():
    """Tasks run in processes of their own."""

    @ray.remote
    def f():
        return os.getpid()

    print(ray.get(f.remote()) != os.getpid())


def tasks_run_side_by_side():
    """Independent calls run at the same time."""

    @ray.remote
    def f(path):
        open(f"{path}{os.getpid()}", "w").close()
        directory, name = os.path.split(path)
        end = time.monotonic() + 20
        while sum(one.startswith(name) for one in os.listdir(directory)) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        return time.monotonic() < end

    with tally() as counts:
        print(ray.get([f.remote(counts.path) for _ in range(2)]))


def tasks_of_one_resource_do_not_overlap():
    """Two calls that each need all of a resource run one after the other."""

    @ray.remote(resources={"special": 2})
    def f():
        begin = time.time()
        time.sleep(0.1)
        return begin, time.time()

    (a, b), (c, d) = sorted(ray.get([f.remote(), f.remote()]))
    print(b <= c)


def fractions_of_a_resource():
    """Half a unit each: two calls fit beside each other."""

    @ray.remote(resources={"special": 0.5}, num_cpus=0)
    def f():
        return ray.get_runtime_context().get_assigned_resources()["special"]

    print(ray.get(f.remote()))


def default_resources_of_a_task():
    """A task takes one CPU unless told otherwise."""

    @ray.remote
    def f():
        return ray.get_runtime_context().get_assigned_resources()

    print(ray.get(f.remote()), ray.get(f.options(num_cpus=2).remote()), ray.get(f.options(num_cpus=0.5).remote()))


def tasks_without_cpu():
    """With `num_cpus=0` a call holds nothing."""

    @ray.remote(num_cpus=0)
    def f():
        return ray.get_runtime_context().get_assigned_resources().get("CPU")

    print(ray.get(f.remote()))


def environment_variables_of_a_call():
    """`runtime_env` gives a task variables, and only to it."""

    @ray.remote
    def f():
        return os.environ.get("DOCS_VARIABLE")

    print(ray.get(f.options(runtime_env={"env_vars": {"DOCS_VARIABLE": "x"}}).remote()), ray.get(f.remote()))


def children_inherit_the_environment():
    """Calls made in a task have its variables; own ones are added."""

    @ray.remote
    def inner():
        return os.environ.get("DOCS_A"), os.environ.get("DOCS_B")

    @ray.remote(runtime_env={"env_vars": {"DOCS_A": "a"}})
    def outer():
        return ray.get([inner.remote(), inner.options(runtime_env={"env_vars": {"DOCS_B": "b"}}).remote()])

    print(ray.get(outer.remote()))


def processes_are_used_again():
    """One call after the other may run in the same process; with `max_calls=1` none does."""

    @ray.remote(max_calls=1)
    def f():
        return os.getpid()

    print(len({ray.get(f.remote()) for _ in range(3)}))


def what_the_function_is_made_of():
    """The plain function can be had from the remote one."""

    @ray.remote
    def f(x):
        """Text."""
        return x + 1

    print(f._function(1))


def a_task_can_be_sent_to_a_task():
    """Remote functions are arguments like others."""

    @ray.remote
    def square(x):
        return x * x

    @ray.remote
    def apply(function, x):
        return ray.get(function.remote(x))

    print(ray.get(apply.remote(square, 4)))


def prints_of_tasks_do_not_disturb():
    """A task that prints returns all the same."""

    @ray.remote
    def f():
        return 1

    print(ray.get(f.remote()))


def big_arguments_by_value_and_by_reference():
    """A large array given many times by reference is stored once, and is the same."""
    array = np.arange(200_000)
    ref = ray.put(array)

    @ray.remote
    def total(values):
        return int(values.sum())

    print(ray.get([total.remote(array), total.remote(ref)]) == [int(array.sum())] * 2)


def old_form_of_a_call():
    """`_remote(args, kwargs, **options)` is how `.remote` and `.options` can be written in one."""

    @ray.remote
    def f(a, b=1):
        return a + b

    print(ray.get(f._remote(args=[1], kwargs={"b": 5})), ray.get(f._remote((1,), num_cpus=0)))
