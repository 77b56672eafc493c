"""A headless Chromium for tests of the page of doorbell prof, driven through the DevTools protocol over a pipe.
Messages are JSON and end with a zero byte. Source: https://chromedevtools.github.io/devtools-protocol/."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_chromium():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """Opens one page. Raises RuntimeError if the page reports an error."""

    def __init__(self, width=1440, height=900):
        self.profile = tempfile.mkdtemp(prefix="doorbell-page-")
        to_read, self.to = os.pipe()
        self.out, out_write = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
        high = [os.dup2(fd, 100 + i) for i, fd in enumerate((to_read, out_write))]
        self.process = subprocess.Popen(
            [find_chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             f"--window-size={width},{height}", f"--user-data-dir={self.profile}", "about:blank"],
            close_fds=False, preexec_fn=lambda: [os.dup2(fd, 3 + i) for i, fd in enumerate(high)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for fd in (to_read, out_write, *high):
            os.close(fd)
        self.number, self.buffer, self.session, self.errors, self.requests = 0, b"", None, [], []
        target = next(t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def read_message(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.out], [], [], max(0, deadline - time.monotonic()))[0]:
                raise RuntimeError("Chromium does not answer")
            more = os.read(self.out, 1 << 20)
            if not more:
                raise RuntimeError("Chromium ended")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def note(self, message):
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
        if message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def send(self, method, timeout=60, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self.read_message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.note(answer)

    def run(self, script):
        """The value of an expression, which may be a promise."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def wait(self, script, timeout=60):
        """Waits until an expression is true."""
        deadline = time.monotonic() + timeout
        while not self.run(script):
            if self.errors:
                raise RuntimeError("; ".join(self.errors))
            if time.monotonic() > deadline:
                raise RuntimeError(f"not true after {timeout} s: {script}")
            time.sleep(0.02)

    def open(self, path):
        """Opens a file and waits until the page has been made. Returns the seconds."""
        begin = time.monotonic()
        self.send("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait("Boolean(window.page)")
        self.frame()
        return time.monotonic() - begin

    def frame(self):
        """Waits until the page has been painted."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def key(self, key, modifiers=0):
        text = key if len(key) == 1 else {"Enter": "\r"}.get(key)
        extra = {"text": text} if text else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers, **extra)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers)
        self.frame()

    def type(self, text):
        for letter in text:
            self.key(letter)

    def mouse(self, kind, x, y, **extra):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **extra)

    def click(self, x, y, count=1):
        for n in range(1, count + 1):
            self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=n)
            self.mouse("mouseReleased", x, y, button="left", clickCount=n)
        self.frame()

    def drag(self, x, y, to_x, to_y, modifiers=0):
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1, modifiers=modifiers)
        for i in range(1, 6):
            self.mouse("mouseMoved", x + (to_x - x) * i / 5, y + (to_y - y) * i / 5, button="left", buttons=1,
                       modifiers=modifiers)
        self.mouse("mouseReleased", to_x, to_y, button="left", clickCount=1, modifiers=modifiers)
        self.frame()

    def wheel(self, x, y, delta):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta)
        self.frame()

    def center(self, selector):
        """Where the middle of an element is."""
        return self.run(f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                        " return [r.x + r.width / 2, r.y + r.height / 2]; })()")

    def press(self, selector):
        """Clicks at the middle of an element."""
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'nearest'}})")
        self.click(*self.center(selector))

    def theme(self, name):
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])
        self.frame()

    def screenshot(self, path):
        data = self.send("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.out)
        shutil.rmtree(self.profile, ignore_errors=True)
