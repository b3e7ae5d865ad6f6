"""ray-ease: a function that runs in parallel."""

import ray_ease


@ray_ease.parallelize
def double(number):
    return 2 * number


ray_ease.init(num_cpus=2)
print(sorted(ray_ease.retrieve([double(number) for number in range(4)])))
