"""A browser without a window, in which tests look at pages that were written."""

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")


def shown(page: Path) -> str:
    """What the browser has of a page when its scripts have run, as HTML."""
    words = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-breakpad",
        f"--user-data-dir={page.parent}/profile", "--window-size=1200,1400", "--virtual-time-budget=2000",
    ]  # fmt: skip
    return subprocess.run(
        [*filter(None, words), "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=100, check=True
    ).stdout
