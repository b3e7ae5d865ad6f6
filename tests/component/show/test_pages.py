"""What a browser's script draws of cancelled calls."""

from pathlib import Path

from mpi_runtime.show.job import document
from mpi_runtime.show.page import page
from tests.browser import needs_browser, shown
from tests.unit.show.test_pages import cancelled


@needs_browser
def test_bars_have_a_part_for_cancelled_calls(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page(document(cancelled())))
    text = shown(tmp_path / "page.html")
    assert text.count('aria-label="100 % ended"') == 2, "in the table and on the card"
    assert text.count('<i class="gone" style="width:50%"></i>') == 2
