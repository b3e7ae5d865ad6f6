"""A hook of mkdocs: the colours of text have the contrast that WCAG 2.1 asks for at level AA, in light and in dark.

It reads the built style sheets, so that a new version of the theme that pales ends the build.
"""

import colorsys
import re
from pathlib import Path
from typing import Any

LEAST = 4.5
"""Of text of normal size."""
SCHEMES = ("default", "slate")
CODE = (
    *("fg", "hl-number", "hl-special", "hl-function", "hl-constant", "hl-keyword", "hl-string", "hl-name"),
    *("hl-operator", "hl-punctuation", "hl-comment", "hl-generic", "hl-variable"),
)
PAIRS = (
    ("default-fg-color", "default-bg-color"),
    ("default-fg-color--light", "default-bg-color"),  # menus, the table of contents
    ("typeset-a-color", "default-bg-color"),
    ("primary-bg-color", "primary-fg-color"),  # the head of each page
    *((f"code-{name}-color", "code-bg-color") for name in CODE),
    ("typeset-a-color", "code-bg-color"),  # names in code that lead to a page
)
"""Text, and what is behind it."""
Colour = tuple[float, float, float, float]


def on_post_build(config: Any) -> None:
    """End the build if a text is hard to read."""
    pale = too_pale("\n".join(one.read_text() for one in sheets(Path(config.site_dir))))
    if pale:
        raise SystemExit("docs/contrast.css: these texts have too little contrast:\n" + "\n".join(pale))


def sheets(site: Path) -> list[Path]:
    """The style sheets of a site, in the order in which its pages load them."""
    names = re.findall(r'<link rel="stylesheet" href="([^"]+)"', (site / "index.html").read_text())
    return [site / name for name in names]


def too_pale(css: str) -> list[str]:
    """Pairs of colours with too little contrast, in words."""
    found = []
    for scheme in SCHEMES:
        known = variables(css, scheme)
        for text, behind in PAIRS:
            ratio = contrast(colour(f"--md-{text}", known), colour(f"--md-{behind}", known))
            if ratio < LEAST:
                found.append(f"{scheme}: {text} on {behind}: {ratio:.2f}, not {LEAST}")
    return found


def variables(css: str, scheme: str) -> dict[str, str]:
    """The variables of a colour scheme with the colours that mkdocs.yml chooses; later rules win."""
    other = next(one for one in SCHEMES if one != scheme)
    known: dict[str, str] = {}
    for selectors, body in re.findall(r"([^{}]*)\{([^{}]*)\}", re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)):
        for selector in selectors.strip().split(","):
            parts = re.findall(r"\[data-md-color-(\w+)=([\w-]+)\]", selector)
            wanted = all(value == {"scheme": scheme}.get(name, "indigo") for name, value in parts)
            if re.fullmatch(r"(:root|\[[^\]]*\])+", selector.strip()) and wanted and f":not({other})" not in selector:
                known |= dict(re.findall(r"(--md-[\w-]+):\s*([^;]+)", body))
    return known


def colour(text: str, known: dict[str, str]) -> Colour:
    """Red, green, blue and opacity, each from 0 to 1, of a variable or of a colour."""
    text = text.strip()
    if text.startswith("--"):
        return colour(known[text], known)
    if inner := re.fullmatch(r"var\((--[\w-]+)\)", text):
        return colour(inner[1], known)
    if text.startswith("#"):
        digits = text[1:] if len(text) > 5 else "".join(2 * one for one in text[1:])
        values = [int(digits[at : at + 2], 16) / 255 for at in range(0, len(digits), 2)]
        return (values[0], values[1], values[2], values[3] if len(values) > 3 else 1.0)
    inside = re.fullmatch(r"hsla\(([^,]+(?:\([^)]*\))?),\s*([\d.]+)%,\s*([\d.]+)%,\s*([\d.]+)\)", text)
    if inside is None:
        raise ValueError(f"a colour that is not understood: {text!r}")
    hue = re.sub(r"var\((--[\w-]+)\)", lambda name: known[name[1]], inside[1])
    red, green, blue = colorsys.hls_to_rgb(
        float(hue.removesuffix("deg")) / 360, float(inside[3]) / 100, float(inside[2]) / 100
    )
    return (red, green, blue, float(inside[4]))


def contrast(text: Colour, behind: Colour) -> float:
    """The ratio of luminances of a text and what is behind it: 1 to 21."""
    mixed = [text[3] * one + (1 - text[3]) * other for one, other in zip(text[:3], behind[:3], strict=True)]
    low, high = sorted((luminance(*mixed), luminance(*behind[:3])))
    return (high + 0.05) / (low + 0.05)


def luminance(red: float, green: float, blue: float) -> float:
    """The relative luminance of WCAG 2.1."""
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
