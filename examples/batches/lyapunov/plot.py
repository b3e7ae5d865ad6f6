"""Read pairs of numbers, and write them as a line in a picture."""

import sys

WIDTH, HEIGHT = 640, 360

points = [tuple(map(float, line.split())) for line in sys.stdin]
low, high = min(y for _, y in points), max(y for _, y in points)
left, right = points[0][0], points[-1][0]


def place(x: float, y: float) -> str:
    """Where a point is in the picture."""
    return f"{WIDTH * (x - left) / (right - left):.1f},{HEIGHT * (high - y) / (high - low):.1f}"


line = " ".join(place(x, y) for x, y in points)
zero = place(left, 0.0).split(",")[1]
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" fill="none" stroke="black">')
print(f'<path d="M0 {zero}H{WIDTH}" stroke="grey"/><polyline points="{line}"/></svg>')
