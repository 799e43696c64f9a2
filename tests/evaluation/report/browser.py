"""A real browser for tests: headless Chromium, driven through the pipe of its DevTools protocol.

Chromium reads commands from file descriptor 3 and writes answers and events to 4, each a JSON text ended by a zero
byte. Clicks and keys are real input events, not calls of the page's functions.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT = 60  # seconds, for any answer: the machine may be busy
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
)
LAUNCH = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find():
    """The path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in one browser. `errors` are the page's uncaught exceptions and what it logged as errors."""

    def __init__(self, executable):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._commands = os.pipe()
        self._answers, to_write = os.pipe()
        arguments = [executable, *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(to_read), str(to_write), *arguments],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._received, self._id, self._session = b"", 0, None
        self.errors, self.requests, self._events = [], [], []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        """Send a command and wait for its answer; events that come before it are kept."""
        self._id += 1
        command = {"id": self._id, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._id:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path):
        """Open a file and wait until it is loaded and has been drawn."""
        self._events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._receive()
        self.frames()

    def frames(self):
        """Wait until the page was laid out and painted twice: observers have then been called."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def run(self, expression):
        """The value of a JavaScript expression in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def point(self, selector):
        """Scroll an element into view; where its middle then is."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', inline: 'center'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        return dict(zip("xy", box, strict=True))

    def click(self, selector):
        """A real click into the middle of an element."""
        where = self.point(selector) | {"button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, **where)
        self.frames()

    def hover(self, selector):
        self.send("Input.dispatchMouseEvent", type="mouseMoved", **self.point(selector))
        self.frames()

    def press(self, key, text=None):
        """A real key, to whatever has the focus."""
        codes = {"Enter": 13, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}
        params = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]} | ({"text": text} if text else {})
        self.send("Input.dispatchKeyEvent", type="keyDown", **params)
        self.send("Input.dispatchKeyEvent", type="keyUp", **params)
        self.frames()

    def resize(self, width, height=900, scale=1):
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        self.frames()

    def close(self):
        try:
            self._session = None
            self.send("Browser.close")
        except (OSError, RuntimeError, TimeoutError):
            self._process.kill()
        for descriptor in (self._commands, self._answers):
            os.close(descriptor)
        self._process.wait(TIMEOUT)
        self.profile.cleanup()

    def _receive(self):
        deadline = time.monotonic() + TIMEOUT
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._answers, 1 << 16) if ready else b""
            if not part:
                raise TimeoutError("the browser did not answer" if not ready else "the browser ended")
            self._received += part
        text, self._received = self._received.split(b"\0", 1)
        message = json.loads(text)
        method, params = message.get("method"), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append([argument.get("value") for argument in params["args"]])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return message
