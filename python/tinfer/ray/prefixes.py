# SPDX-License-Identifier: MIT
"""Which beginnings of prompts a replica has seen. A prompt is cut into blocks, and each block is known by a digest of
everything up to its end, so two prompts have the same digests as far as they begin alike.

It is text that is compared, in the order in which templates put it, and not tokens: who routes has no model. Equal text
gives equal tokens; where a template mixes the parts in another order, less is recognised, and nothing else changes.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import Any, Iterable, Sequence

BLOCK = 64           # bytes of text, some sixteen tokens
MOST_BLOCKS = 4096   # of one prompt; what is behind is not looked at
MOST_BRANCHES = 4    # ways in which one text goes on before it counts as one that many texts begin with


def digests(body: Any) -> list[int]:
    """The blocks of a request's prompt, from its beginning. ``body`` is the JSON document of any of the server's routes
    that make text; what has no prompt has no blocks."""
    if not isinstance(body, dict):
        return []
    texts: list[str] = []
    for key in ("model", "lora", "tools", "system", "instructions", "input_extra", "input_prefix", "prompt", "input",
                "messages"):
        value = body.get(key)
        for part in value if isinstance(value, list) else [] if value is None else [value]:
            texts.append(json.dumps(part, separators=(",", ":"), ensure_ascii=False))
    if not any(key in body for key in ("prompt", "input", "messages", "input_prefix")):
        return []
    data = "\n".join(texts).encode("utf-8", "surrogatepass")
    found, running = [], hashlib.blake2b(digest_size=8)
    for begin in range(0, min(len(data), BLOCK * MOST_BLOCKS) // BLOCK * BLOCK, BLOCK):
        running.update(data[begin:begin + BLOCK])
        found.append(int.from_bytes(running.digest(), "little"))
    return found


class Known:
    """The blocks that a replica has seen last; the least recent go when there are too many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def add(self, blocks: Sequence[int]) -> None:
        """The blocks of a prompt, from its beginning."""
        self.add_all(reversed(blocks))   # the first ones are the most recent: they are of use to most prompts

    def add_all(self, blocks: Iterable[int]) -> None:
        """Blocks, the most recent last."""
        for block in blocks:
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)

    def covers(self, blocks: Iterable[int]) -> int:
        """How many blocks of a prompt are known from its beginning on."""
        n = 0
        for block in blocks:
            if block not in self._blocks:
                break
            n += 1
        return n

    def blocks(self) -> list[int]:
        """All of them, the most recent last."""
        return list(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)


class Branches:
    """In how many ways a beginning has gone on. One that has gone on in many, as a system's text does before each
    conversation, is no reason to prefer the replica that knows it: all conversations would end up there. Each replica
    computes it once, and then all know it."""

    def __init__(self, most: int = 1 << 16) -> None:
        self._most = most
        self._after: OrderedDict[int, set[int]] = OrderedDict()

    def add(self, blocks: Sequence[int]) -> None:
        for block, after in zip(blocks, blocks[1:]):
            found = self._after.setdefault(block, set())
            self._after.move_to_end(block)
            if len(found) <= MOST_BRANCHES:
                found.add(after)
        while len(self._after) > self._most:
            self._after.popitem(last=False)

    def is_shared(self, blocks: Sequence[int], n: int) -> bool:
        """Whether the first n blocks of a prompt, which goes on behind them, are what many texts begin with."""
        return 0 < n < len(blocks) and len(self._after.get(blocks[n - 1], ())) > MOST_BRANCHES


__all__ = ["BLOCK", "Branches", "Known", "digests"]
