"""Print one value of r and the Lyapunov exponent of the logistic map there."""

import math
import sys

STEPS = 20_000

r = 3.2 + 0.8 * int(sys.argv[1]) / 40
x, total = 0.3, 0.0
for step in range(STEPS):
    x = r * x * (1 - x)
    if step >= STEPS // 10:  # by then it has come to where it stays
        total += math.log(max(abs(r * (1 - 2 * x)), 1e-12))
print(r, total / (STEPS - STEPS // 10))
