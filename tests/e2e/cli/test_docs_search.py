"""The search of the documentation, in pages that are opened as files."""

from pathlib import Path

import pytest

from tests.browser import Browser, needs_browser
from tests.helpers import ROOT

BUILT = ROOT / "build" / "docs"


@needs_browser
@pytest.mark.skipif(not BUILT.exists(), reason="`make docs` was not run")
@pytest.mark.parametrize("page", ["index.html", "guides/start.html"])
def test_the_search_finds_pages_from_files(page: str, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open((BUILT / page).as_uri())
        browser.run("document.querySelector('.md-search__input').focus()")
        typed = """(() => {
            const box = document.querySelector('.md-search__input');
            box.value = 'quarantine';
            box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true, key: 'e'}));
        })()"""
        browser.run(typed)
        browser.wait_for("document.querySelector('.md-search-result').innerText.includes('matching document')")
        found = browser.run("[...document.querySelectorAll('.md-search-result__link')].map((one) => one.href)")
        assert any("gpus.html" in link or "failures.html" in link for link in found), found
        assert not browser.problems
