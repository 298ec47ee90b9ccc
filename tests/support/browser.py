"""A headless Chromium for tests of pages: DevTools messages over a pipe, so that nothing listens anywhere.

Everything that the page says or asks for is kept: errors, requests, dialogs.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_S = 60.0
"""For any answer: a busy machine is slow to start a browser."""
_GRACE_S = 5.0
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-breakpad",
    "--disable-crash-reporter", "--no-first-run", "--no-zygote", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


def find_chromium() -> str | None:
    """Return the path of the browser; None if it is not installed."""
    return next((place for name in PROGRAMS if (place := shutil.which(name))), None)


class Pipe:
    """Messages to and from a browser; each ends with a zero byte."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number = 0
        self._buffer = b""
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events until then are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        waiting = memoryview(json.dumps(message).encode() + b"\0")
        while waiting:
            waiting = waiting[os.write(self._to, waiting) :]
        while True:
            found = self._next()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                return dict(found["result"])
            self.events.append(found)

    def wait_for(self, method: str) -> None:
        """Wait for an event, unless it has come already."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], PATIENCE_S)
            read = os.read(self._from, 1 << 20) if ready else b""
            if not read:
                raise RuntimeError("the browser has ended" if ready else "the browser does not answer")
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))


class Page:
    """One tab.

    Args:
        pipe: To its browser.
        home: The folder with everything that the browser writes.
    """

    def __init__(self, pipe: Pipe, home: Path) -> None:
        self._pipe, self.home = pipe, home
        target = pipe.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = pipe.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol."""
        return self._pipe.ask(method, self._session, **parameters)

    def open(self, path: Path, *, width: int = 1280, script: bool = True, fragment: str = "") -> None:
        """Open a file from disk and wait until it is loaded."""
        self.resize(width)
        self.ask("Emulation.setScriptExecutionDisabled", value=not script)
        self._pipe.events.clear()
        self.ask("Page.navigate", url=path.as_uri() + fragment)
        self._pipe.wait_for("Page.loadEventFired")

    def resize(self, width: int, height: int = 900) -> None:
        """Give the window another size."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def emulate(self, *, dark: bool = False, medium: str = "") -> None:
        """Take a reader who likes it dark, or a printer."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=medium, features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """Return what an expression of JavaScript gives, as plain values."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"])[:1000])
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """Click on the middle of the first element that fits, as a mouse does."""
        x, y = self.evaluate(
            "(e => { e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            f"return [r.x + r.width / 2, r.y + r.height / 2]; }})(document.querySelector({json.dumps(selector)}))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.ask("Input.insertText", text=text)

    def picture(self, height: int) -> bytes:
        """The page from its top, as wide as the window, as a PNG."""
        width = self.evaluate("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        taken = self.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(taken["data"])

    def pdf(self) -> bytes:
        """Return the page as printed."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    @property
    def errors(self) -> list[str]:
        """Return errors and warnings of the console, uncaught exceptions and dialogs since the page was opened."""
        found = []
        self.evaluate("0")  # events on their way have come before the answer
        for event in self._pipe.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(parameters["args"]))
            elif method in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening"):
                found.append(json.dumps(parameters))
        return found

    @property
    def requests(self) -> list[str]:
        """Return the requests since the page was opened, the page itself included."""
        sent = [event for event in self._pipe.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    @property
    def refused(self) -> int:
        """Return the number of requests that the page's policy stopped."""
        failed = [event["params"] for event in self._pipe.events if event.get("method") == "Network.loadingFailed"]
        return sum(one.get("blockedReason") == "csp" for one in failed)


@contextmanager
def open_browser(program: str) -> Iterator[Page]:
    """A browser with one tab; it is wholly gone at the end.

    Args:
        program: Where Chromium is.
    """
    with tempfile.TemporaryDirectory(prefix="page-test-", ignore_cleanup_errors=True) as home:
        pid, pipe, ends = _start(program, home)
        try:
            yield Page(pipe, Path(home))
        finally:
            _end(pid, pipe)
            for end in ends:
                os.close(end)


def _start(program: str, home: str) -> tuple[int, Pipe, tuple[int, int]]:
    its_in, to_browser = (_lift(end) for end in os.pipe())
    from_browser, its_out = (_lift(end) for end in os.pipe())
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        # Chromium takes commands from descriptor 3 and answers on 4.
        actions = [(os.POSIX_SPAWN_DUP2, its, number) for its, number in ((its_in, 3), (its_out, 4))]
        actions += [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
        environment = {"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home, "XDG_RUNTIME_DIR": home}
        arguments = [program, *_FLAGS, f"--user-data-dir={home}/profile", "about:blank"]
        pid = os.posix_spawn(program, arguments, environment, file_actions=actions, setsid=True)
    finally:
        for end in (its_in, its_out, null):
            os.close(end)
    return pid, Pipe(to_browser, from_browser), (to_browser, from_browser)


def _lift(descriptor: int) -> int:
    """Out of the way of the numbers that the browser uses."""
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return high


def _end(pid: int, pipe: Pipe) -> None:
    """Wait for the browser and all that it started, and end the rest of them."""
    helpers = psutil.Process(pid).children(recursive=True)
    with suppress(RuntimeError, OSError):
        pipe.ask("Browser.close")
    deadline = time.monotonic() + _GRACE_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
        time.sleep(0.01)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    psutil.wait_procs(helpers, _GRACE_S)
