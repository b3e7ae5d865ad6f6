"""A browser without a window, in which tests look at pages that were written."""

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")


def words(page: Path, width: int = 1200, height: int = 1400) -> list[str]:
    """Return the command that opens a page and waits for its scripts; what to do with it comes behind."""
    assert CHROMIUM is not None, "there is no Chromium here"
    return [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-breakpad",
        f"--user-data-dir={page.parent}/profile", f"--window-size={width},{height}", "--virtual-time-budget=2000",
    ]  # fmt: skip


def shown(page: Path) -> str:
    """Return the HTML of a page after its scripts have run."""
    command = [*words(page), "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout
