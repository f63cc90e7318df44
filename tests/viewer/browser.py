# SPDX-License-Identifier: MIT
"""Drives a headless Chromium over the DevTools protocol, by the two pipes it takes in place of a port: only the
standard library, and nothing listens on the network. """
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find():
    """The path of a browser, or None."""
    return os.environ.get("TINFER_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One window. Collects what pages should not do: errors on the console, uncaught exceptions, requests that
    leave."""

    def __init__(self, width=1440, height=900, dark=False):
        self.folder = tempfile.TemporaryDirectory(prefix="tinfer-browser-")
        command_read, self.command = os.pipe()
        self.answers, answer_write = os.pipe()

        def pipes():
            os.dup2(command_read, 200)   # out of the way first: either pipe may have the number of the other's place
            os.dup2(answer_write, 201)
            os.dup2(200, 3)
            os.dup2(201, 4)
            os.closerange(5, 202)

        self.process = subprocess.Popen(
            [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--mute-audio",
             "--hide-scrollbars", "--force-color-profile=srgb", f"--user-data-dir={self.folder.name}",
             "--remote-debugging-pipe", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=pipes,
            close_fds=False,
            start_new_session=True)
        os.close(command_read)
        os.close(answer_write)
        self.buffer, self.number, self.session = b"", 0, None
        self.errors, self.requests = [], []
        target = next(t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.attach(target["targetId"])
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.dark(dark)

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)   # a group of its own: this browser and its helpers
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.command)
        os.close(self.answers)
        for _ in range(20):   # its helpers may still be leaving the folder
            try:
                self.folder.cleanup()
                return
            except OSError:
                time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, method, timeout=60, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.command, data):]
        until = time.monotonic() + timeout
        while True:
            answer = self.receive(until - time.monotonic())
            if answer is None:
                raise TimeoutError(f"{method}: no answer in {timeout} s")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def receive(self, timeout):
        until = time.monotonic() + timeout
        while b"\0" not in self.buffer:
            if not select.select([self.answers], [], [], max(0, until - time.monotonic()))[0]:
                return None
            part = os.read(self.answers, 1 << 20)
            if not part:
                raise RuntimeError("the browser went away")
            self.buffer += part
        raw, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(raw)
        self.note(message.get("method"), message.get("params", {}))
        return message

    def note(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def tab(self, url):
        """Another tab of the same browser, which everything goes to from now on; returns what use() goes back by."""
        before, self.session = self.session, None
        target = self.send("Target.createTarget", url=url)["targetId"]
        self.attach(target)
        self.wait("document.readyState === 'complete'")
        return before

    def opened(self, part, timeout=60):
        """The same for a tab that the page has opened itself, by a part of its address."""
        before, self.session = self.session, None
        until = time.monotonic() + timeout
        while True:
            found = [t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page" and part in
                t["url"]]
            if found:
                break
            if time.monotonic() > until:
                raise TimeoutError(f"no tab of {part}")
            time.sleep(0.05)
        self.attach(found[0]["targetId"])
        return before

    def attach(self, target):
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.send(domain + ".enable")
        self.send("Page.bringToFront")

    def use(self, session):
        self.session = session
        self.send("Page.bringToFront")   # a tab in the background draws nothing

    def size(self, width, height, touch=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.send("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.frames()

    def tap(self, selector):
        """A finger on the middle of an element."""
        x, y = self.run("(b => [b.x + b.width / 2, b.y + b.height / 2])(document.querySelector(%r)"
                        ".getBoundingClientRect())" % selector)
        self.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.frames()

    def unnamed(self):
        """Controls in the accessibility tree that have no name."""
        controls = ("button", "textbox", "searchbox", "combobox", "checkbox", "spinbutton", "slider", "link", "tab",
                    "meter")
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [node["role"]["value"] for node in nodes if not node.get("ignored") and
                node.get("role", {}).get("value") in controls and not node.get("name", {}).get("value", "").strip()]

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, code, timeout=60):
        """The value of an expression, promises awaited."""
        result = self.send("Runtime.evaluate", timeout=timeout, expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "exception"))
        return result["result"].get("value")

    def wait(self, condition, timeout=60):
        until = time.monotonic() + timeout
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {condition}; errors: {self.errors}")
            time.sleep(0.03)

    def frames(self, n=2):
        """Lets the page draw."""
        self.run("new Promise(done => { let n = %d; const next = () => n-- ? requestAnimationFrame(next) : done(); "
                 "next(); })" % n)

    def choose_file(self, selector, path):
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    def key(self, key, **more):
        codes = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = codes.get(key, ord(key.upper()) if len(key) == 1 else 0)
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code, **more)
        self.frames()

    def type(self, text):
        self.send("Input.insertText", text=text)

    def mouse(self, kind, x, y, **more):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y, modifiers=0):
        self.drag([(x, y)], modifiers)

    def drag(self, points, modifiers=0):
        self.mouse("mouseMoved", *points[0], modifiers=modifiers)
        self.mouse("mousePressed", *points[0], button="left", buttons=1, clickCount=1, modifiers=modifiers)
        for point in points[1:]:
            self.mouse("mouseMoved", *point, button="left", buttons=1, modifiers=modifiers)
        self.mouse("mouseReleased", *points[-1], button="left", clickCount=1, modifiers=modifiers)
        self.frames()

    def dark(self, on):
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])

    def picture(self, path):
        with open(path, "wb") as out:
            out.write(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))


class PageTest(unittest.TestCase):
    """Cases in one window. After each, the page has said nothing on the console and no request has left."""
    inside = ("file:", "data:")

    @classmethod
    def setUpClass(cls):
        cls.page = Page()

    @classmethod
    def tearDownClass(cls):
        cls.page.close()

    def setUp(self):
        self.page.errors.clear()
        self.page.requests.clear()

    def tearDown(self):
        self.page.frames()
        self.assertEqual(self.page.errors, [])
        self.assertEqual([url for url in self.page.requests if not url.startswith(self.inside)], [])
