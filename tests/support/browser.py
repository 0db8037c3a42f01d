"""A real browser for tests: headless Chromium over its debugging pipe, without any package for it.

`find` says whether there is one. Messages are the Chrome DevTools Protocol's, JSON between NUL bytes on descriptors 3
and 4 of the browser.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE_S = 240.0
LOOK_S = 0.05


def find() -> str:
    """The browser's program; nothing where there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), "")


class Browser:
    """One browser with a profile of its own."""

    def __init__(self, folder: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        silent = [(os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_RDWR, 0) for n in range(3)]
        # Moved out of the way first: 3 and 4 may be the very descriptors that are to become 3 and 4.
        moved = [(os.POSIX_SPAWN_DUP2, to_browser, 103), (os.POSIX_SPAWN_DUP2, from_browser, 104)]
        placed = [(os.POSIX_SPAWN_DUP2, 103, 3), (os.POSIX_SPAWN_DUP2, 104, 4)]
        argv = [find(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[*moved, *silent, *placed], setsid=True)
        os.close(to_browser)
        os.close(from_browser)
        self._number = 0
        self._buffer = b""

    def page(self, url: str, scheme: str = "light", width: int = 1440, height: int = 900) -> Page:
        """A page that is asked to load."""
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session)
        page.send("Page.enable")
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        page.send("Emulation.setEmulatedMedia", media)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        page.send("Emulation.setDeviceMetricsOverride", size)
        page.send("Page.navigate", {"url": url})
        return page

    def send(self, method: str, given: dict[str, Any] | None = None, session: str = "") -> dict[str, Any]:
        """One command, and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": given or {}}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 20)
            if not part:
                raise AssertionError("the browser is gone")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def close(self) -> None:
        """End it, with all its processes."""
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._write)
        os.close(self._read)


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def send(self, method: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
        """One command to this tab."""
        return self._browser.send(method, given, self._session)

    def ask(self, script: str) -> Any:
        """The value of an expression, promises awaited."""
        wish = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", wish)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait until the expression is true, and tell its value."""
        end = time.monotonic() + PATIENCE_S
        while not (value := self.ask(script)):
            assert time.monotonic() < end, f"never true: {script}; the page says: {self.ask('document.body.innerText')}"
            time.sleep(LOOK_S)
        return value

    def screenshot(self, path: Path) -> None:
        """What is to be seen, as a picture."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", {"format": "png"})["data"]))
