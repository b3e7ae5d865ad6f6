"""The hook that measures the contrast of the documentation: known ratios, and a style sheet that pales is noticed."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers import ROOT

HUE = ":root{--md-hue:225deg}"


@pytest.fixture
def contrast() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_contrast", ROOT / "docs/contrast.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "behind", "ratio"),
    [("#000", "#fff", 21.0), ("#767676", "#ffffff", 4.54), ("#0000008a", "#fff", 4.61), ("#ff0000", "#ffffff", 4.0)],
)
def test_ratios_of_the_standard(contrast: ModuleType, text: str, behind: str, ratio: float) -> None:
    found = contrast.contrast(contrast.colour(text, {}), contrast.colour(behind, {}))
    assert found == pytest.approx(ratio, abs=0.01)


def test_variables_follow_the_scheme_and_later_rules(contrast: ModuleType) -> None:
    css = (
        f"{HUE}:root,[data-md-color-scheme=default]{{--md-a:#fff}}"
        "[data-md-color-scheme=slate]{--md-a:hsla(var(--md-hue), 15%, 14%, 1)}"
        "[data-md-color-scheme=slate][data-md-color-primary=indigo]{--md-b:#111}"
        "[data-md-color-scheme=slate][data-md-color-primary=red]{--md-b:#222}"
        "[data-md-color-scheme=slate] p{--md-b:#333}"
    )
    assert contrast.variables(css, "default")["--md-a"] == "#fff"
    slate = contrast.variables(css, "slate")
    assert slate["--md-b"] == "#111"
    assert contrast.colour("--md-a", slate)[:3] == pytest.approx((0.119, 0.129, 0.161), abs=0.001)


def test_a_pale_text_ends_the_build(contrast: ModuleType, tmp_path: Path) -> None:
    names = {name for pair in contrast.PAIRS for name in pair}
    behind = {pair[1] for pair in contrast.PAIRS}
    body = ";".join(f"--md-{name}:{'#fff' if name in behind else '#000'}" for name in sorted(names))
    for scheme in contrast.SCHEMES:
        (tmp_path / f"{scheme}.css").write_text(f"[data-md-color-scheme={scheme}]{{{body}}}")
    links = "".join(f'<link rel="stylesheet" href="{scheme}.css">' for scheme in contrast.SCHEMES)
    (tmp_path / "index.html").write_text(links)

    class Config:
        site_dir = str(tmp_path)

    contrast.on_post_build(Config)
    with (tmp_path / "slate.css").open("a") as sheet:
        sheet.write("[data-md-color-scheme=slate]{--md-typeset-a-color:#999}")
    with pytest.raises(SystemExit, match=r"slate: typeset-a-color on default-bg-color: 2\.85, not 4\.5"):
        contrast.on_post_build(Config)
