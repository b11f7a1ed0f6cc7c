"""A headless Chromium that tests steer over the pipe of its debugging protocol, one JSON message after another."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_SWITCHES = (
    "--headless --no-sandbox --disable-dev-shm-usage --use-angle=swiftshader --enable-unsafe-swiftshader "
    "--remote-debugging-pipe"
)
_READS_AND_WRITES = 'exec "$0" "$@" 3<&0 4>&1 >&2'  # the pipe has these numbers


class Browser:
    """One window; it is closed at the end of the ``with`` block.

    Attributes:
        errors: what pages reported: exceptions of scripts, and errors and warnings of the console.
    """

    def __init__(self, profile: Path) -> None:
        command = ["sh", "-c", _READS_AND_WRITES, str(PROGRAM), *_SWITCHES.split(), f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._number, self._rest, self._session, self.errors = 0, b"", "", list[str]()
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._session = ""
        self._ask("Browser.close")  # which also ends its own processes
        self._process.communicate(timeout=60)

    def open(self, page: Path, width: int, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window of this size, as a reader with this color scheme sees it; clears ``errors``."""
        self.errors.clear()
        self._resize(width, height)
        self.emulate(dark)
        self._ask("Page.navigate", url=page.as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def emulate(self, dark: bool = False, medium: str = "screen") -> None:
        """Show the page in this color scheme, on ``screen`` or as it would be in ``print``."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", media=medium, features=[scheme])

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page, once it is settled if it is a promise."""
        answer = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key, such as ``Tab`` or ``ArrowRight``."""
        for kind in ("rawKeyDown", "keyUp"):
            code = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39}[key]
            self._ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, height: int | None = None) -> bytes:
        """Return a PNG of the page's first ``height`` pixels, of the whole page by default."""
        width, most = self.run("[innerWidth, document.documentElement.scrollHeight]")
        self._resize(width, min(height or most, 16_000))
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])

    def _resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._ask("Emulation.setDeviceMetricsOverride", **metrics)

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        self._process.stdin.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while b"\0" not in self._rest:
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            assert more, "the browser has ended"
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(text)
        values = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(values["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.errors.append(values["entry"]["text"])
        return message
