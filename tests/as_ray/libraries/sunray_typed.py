"""sunray: typed tasks, an actor with a stream, and a bound call."""

import sunray
from sunray import ActorMixin, remote_method


@sunray.remote
def add(a: int, b: int) -> int:
    return a + b


class Shifted(ActorMixin, num_cpus=1):
    def __init__(self, by: int) -> None:
        self.by = by

    @remote_method
    def of(self, value: int) -> int:
        return self.by + value

    @remote_method
    def stream(self, count: int):
        yield from range(count)


sunray.init(num_cpus=2)
print(sunray.get(add.remote(add.remote(1, 2), 4)), sunray.get(add.bind(1, 2).execute()))
shifted = Shifted.new_actor().remote(5)
print(sunray.get(shifted.methods.of.remote(3)), [sunray.get(one) for one in shifted.methods.stream.remote(3)])
sunray.shutdown()
