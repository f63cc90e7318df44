# SPDX-License-Identifier: MIT
"""How a stream goes on behind the last event that a client got, when the replica that made it is lost.

The same request with the same seed gives the same answer on every replica, so another one makes the whole stream again,
and what was sent is left out. What differs between two makings of one answer is its names (``id``), its times, and what
was in a cache: names and dates are those of the first making throughout, the rest is not compared. Every other byte of
what is left out has to be what was sent, or the stream ends with ``CannotResume`` instead of a wrong answer.

Where an answer has several choices, how their events mix depends on what else a replica does; the events of one choice
have one order. So each choice is a lane of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Iterator

# Names of an answer and its parts, the same throughout; dates, those of the first making; and what is not compared:
# durations and numbers of tokens found in a cache.
_NAMES = re.compile(rb'"(?:id|item_id|response_id|file)":"([^"\\]*)"')
_DATES = re.compile(rb'"(created|created_at|completed_at)":(\d+|"[^"\\]*")')
_LOOSE = re.compile(rb'"(?:created_at|created|completed_at|\w+_duration|\w+_s|\w+_ms|\w+_tps|\w+_per_second|gain|cached_n|'
                    rb'prompt_n|\w*cached_tokens|cache_read_input_tokens|cache_creation_input_tokens|input_tokens|'
                    rb'drafted_n|accepted_n|bytes)":(?:-?[\d.eE+-]+|null|"[^"\\]*")')


class CannotResume(Exception):
    """Another replica makes another stream: the answer has no seed of its own, or the replicas differ."""


class Frames:
    """Cuts the body of a stream into events, each with the bytes that end it."""

    def __init__(self, content_type: str) -> None:
        self._end = b"\n" if "ndjson" in content_type else b"\n\n"
        self._rest = b""

    def push(self, data: bytes) -> Iterator[bytes]:
        *whole, self._rest = (self._rest + data).split(self._end)
        for frame in whole:
            yield frame + self._end

    @property
    def rest(self) -> bytes:
        """What came behind the last whole event."""
        return self._rest


class Resume:
    """Takes the events of a stream, of as many makings as it needs, and gives those that go to the client."""

    def __init__(self) -> None:
        self._sent: dict[int | None, list[bytes]] = {}   # of each lane the digests of its events
        self._names: list[bytes] = []                    # of the first making, in order of appearance
        self._dates: dict[bytes, bytes] = {}
        self._is_first = True
        self.begin()

    @property
    def n_sent(self) -> int:
        return sum(len(lane) for lane in self._sent.values())

    def begin(self) -> None:
        """Another making begins."""
        self._at: dict[int | None, int] = {}
        self._own: dict[bytes, int] = {}   # names of this making: the how-many-th each is
        if self._sent:
            self._is_first = False

    def take(self, frame: bytes) -> bytes:
        """What the client gets for an event: itself, with the names of the first making, or nothing where it was sent.
        Raises CannotResume."""
        if frame.startswith(b":"):
            return frame   # a comment keeps a connection alive and is no part of an answer
        lane = _lane(frame)
        if lane == "progress":   # how far a prompt is: as often as it takes
            return frame if self._is_first else b""
        digest = self._digest(frame)
        sent, at = self._sent.setdefault(lane, []), self._at.get(lane, 0)
        self._at[lane] = at + 1
        if at < len(sent):
            if sent[at] != digest:
                raise CannotResume(f"event {at} of the stream is another one on another replica")
            return b""
        sent.append(digest)
        return self._renamed(frame)

    def _digest(self, frame: bytes) -> bytes:
        def number(found: re.Match[bytes]) -> bytes:
            name = found.group(1)
            if name not in self._own:
                self._own[name] = len(self._own)
                if self._own[name] >= len(self._names):
                    self._names.append(name)
            return b"#%d" % self._own[name]

        plain = _NAMES.sub(number, frame)
        for key, value in _DATES.findall(frame):
            self._dates.setdefault(key, value)
        return hashlib.blake2b(_LOOSE.sub(b"", plain), digest_size=8).digest()

    def _renamed(self, frame: bytes) -> bytes:
        if self._is_first:
            return frame
        for name, number in self._own.items():
            if name and self._names[number] != name:
                frame = frame.replace(b'"' + name + b'"', b'"' + self._names[number] + b'"')
        return _DATES.sub(lambda found: b'"%s":%s' % (found.group(1), self._dates.get(found.group(1), found.group(2))),
                          frame)


def _lane(frame: bytes) -> Any:
    """The choice that an event belongs to; None for those of the whole answer, "progress" for those of the prompt."""
    begin = frame.find(b"{")
    if begin < 0:
        return None
    try:
        event = json.loads(frame[begin:])
    except ValueError:
        return None
    if "prompt_progress" in event:
        return "progress"
    choices = event.get("choices")
    return choices[0].get("index") if isinstance(choices, list) and choices else None


__all__ = ["CannotResume", "Frames", "Resume"]
