# SPDX-License-Identifier: MIT
"""The program in a pseudo-terminal, and what it says from a pipe: for the tests of `tinfer chat`."""
import json
import os
import pathlib
import re
import select
import signal
import struct
import subprocess
import sys
import time
import unittest

try:
    import fcntl
    import pty
    import termios
except ImportError:   # no pseudo-terminals on this system
    sys.exit(77)

from cli_support import FOLDER, HERE, MODEL, NO_EOG, TINFER, environment, make_model, tinfer

TEMPLATE = str(FOLDER / "plain.jinja")
pathlib.Path(TEMPLATE).write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>")
CHAT = ["chat", MODEL, "--template", TEMPLATE, "--temp", "0", "-n", "6", *NO_EOG]


class Terminal:
    """The program in a pseudo-terminal; what it writes is collected in `text`."""

    def __init__(self, *args, env=None):
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen([TINFER, *map(str, args)], stdin=theirs, stdout=theirs, stderr=theirs,
                                        env=environment({"TERM": "xterm", **(env or {})}), start_new_session=True,
                                        preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        self.text = self.raw = ""

    def read(self, seconds):
        if not select.select([self.ours], [], [], seconds)[0]:
            return False
        try:
            block = os.read(self.ours, 65536)
        except OSError:   # the other side is closed
            return False
        self.raw += block.decode(errors="replace").replace("\r\n", "\n")
        self.text = re.sub(r"\x1b\[\?2004[hl]", "", self.raw)   # the marks of pastes being switched on and off
        return bool(block)

    def until(self, pattern, seconds=60):
        """Reads until the pattern appears behind what was read before; gives what stands up to its end."""
        begin, end = len(self.text), time.monotonic() + seconds
        while not (found := re.compile(pattern).search(self.text, self.mark)):
            if time.monotonic() > end or (not self.read(1) and self.process.poll() is not None):
                raise AssertionError(f"no {pattern!r} after {self.text[self.mark:]!r} ({begin})")
        text, self.mark = self.text[self.mark:found.end()], found.end()
        return text

    def prompt(self):
        """Waits for a prompt, and until keys are read one by one: libedit shows the prompt first, and in between an
        interrupt makes the terminal forget what was typed."""
        self.until("> ")
        end = time.monotonic() + 60
        while termios.tcgetattr(self.ours)[3] & termios.ICANON:
            assert time.monotonic() < end, "the terminal still reads lines"
            time.sleep(0.005)

    mark = 0

    def size(self, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def type(self, text):
        os.write(self.ours, text if isinstance(text, bytes) else text.encode())

    def leave(self, keys="\x15\x04", code=0):
        # What is typed before the editor reads goes to the terminal's own editor, so it may be asked twice.
        end = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < end:
            self.type(keys)
            for _ in range(20):
                self.read(0.05)
        if self.process.poll() is None:
            self.process.kill()
            raise AssertionError(f"still there after {self.text!r}")
        while self.read(0.1):
            pass
        os.close(self.ours)
        if self.process.returncode != code:
            raise AssertionError(f"exit {self.process.returncode}, expected {code}: {self.text!r}")


def screen(text):
    """What a terminal shows of a text whose words are taken back to begin the next line."""
    while found := re.search(r"\x1b\[(\d+)D\x1b\[K", text):
        text = text[:found.start() - int(found[1])] + text[found.end():]
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def answers(*lines, args=()):
    """What the program says to these turns from a pipe."""
    out = tinfer(*CHAT, "--json", *args, input="".join(line + "\n" for line in lines).encode())
    return [json.loads(line) for line in out.splitlines()]
