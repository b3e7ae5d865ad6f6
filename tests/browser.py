"""A browser without a window, in which tests look at pages that were written, or at the live page."""

import base64
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any

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


def loads_nothing(page: str) -> bool:
    """Whether a page in a file refers to nothing outside itself."""
    return not re.search(
        r"""src\s*=|href\s*=\s*["'][^"'#]|@import|url\([^#]|fetch\(|EventSource|https?:(?!//www\.w3\.org)""", page
    )


class Browser:
    """A page in Chromium, driven over its debugging pipe: https://chromedevtools.github.io/devtools-protocol."""

    def __init__(self, folder: Path, width: int = 1200, height: int = 1000) -> None:
        """Start it with a profile in this folder."""
        assert CHROMIUM is not None, "there is no Chromium here"
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        words = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-breakpad",
            f"--user-data-dir={folder}/profile", f"--window-size={width},{height}", "--remote-debugging-pipe",
            "about:blank",
        ]  # fmt: skip
        script = f"exec {shlex.join(words)} 3<&{theirs_in} 4>&{theirs_out}"
        self._process = subprocess.Popen(
            ["bash", "-c", script], pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL, start_new_session=True
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._out, self._in = os.fdopen(ours_out, "wb", 0), os.fdopen(ours_in, "rb", 0)
        self._data = b""
        self._number = 0
        self._session = ""
        self.problems: deque[str] = deque()
        """Errors on the console and uncaught exceptions."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._out.close()
        self._in.close()

    def send(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        self._out.write(
            json.dumps({"id": self._number, "method": method, "params": parameters, **session}).encode() + b"\0"
        )
        while True:
            message = self._read()
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                return message["result"]

    def _read(self) -> Any:
        while b"\0" not in self._data:
            block = self._in.read(1 << 16)
            assert block, "the browser has ended"
            self._data += block
        text, _, self._data = self._data.partition(b"\0")
        message = json.loads(text)
        more = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(more["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and more["entry"]["level"] == "error":
            self.problems.append(more["entry"]["text"])
        elif message.get("method") == "Runtime.consoleAPICalled" and more["type"] == "error":
            self.problems.append(str(more["args"]))
        return message

    def open(self, address: str) -> None:
        """Open a page, and wait until it is loaded."""
        self.send("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete' && !!document.body && location.href !== 'about:blank'")

    def years_later(self, years: float) -> None:
        """Put the clock of pages that are opened from now on forward."""
        later = f"now() + {round(years * 365.25 * 86400e3)}"
        source = (
            "{ const Then = Date, now = Then.now; window.Date = class extends Then { constructor(...given) "
            f"{{ given.length ? super(...given) : super({later}) }} static now() {{ return {later} }} }} }}"
        )
        self.send("Page.addScriptToEvaluateOnNewDocument", source=source)

    def run(self, script: str) -> Any:
        """Run an expression in the page and return its value."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, script: str, limit_s: float = 60.0) -> None:
        """Wait until an expression is true."""
        end_s = time.monotonic() + limit_s
        while not self.run(f"!!({script})"):
            assert time.monotonic() < end_s, (
                f"{script} did not become true: {self.run('document.body.innerText')[:3000]}"
            )
            time.sleep(0.05)

    def resize(self, width: int, height: int) -> None:
        """Give the page this size."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, path: Path, whole: bool = False) -> None:
        """Write what is seen as a PNG file; `whole`: the whole page."""
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
