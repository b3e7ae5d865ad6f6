"""unidist: tasks, actors and `wait` with the backend Ray."""

from unidist.config import Backend

Backend.put("Ray")
import unidist  # noqa: E402

unidist.init()


@unidist.remote
def square(x):
    return x * x


@unidist.remote
class Counter:
    def __init__(self, start):
        self.count = start

    def add(self, n):
        self.count += n
        return self.count


refs = [square.remote(n) for n in range(5)]
print(unidist.get(refs))
counter = Counter.remote(10)
print(unidist.get([counter.add.remote(n) for n in (1, 2)]), unidist.num_cpus() > 0)
ready, rest = unidist.wait(refs, num_returns=5)
print(len(ready), len(rest), unidist.is_object_ref(refs[0]))
unidist.shutdown()
