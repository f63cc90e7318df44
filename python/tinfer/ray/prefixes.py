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

BLOCK = 64          # bytes of text, some sixteen tokens
MOST_BLOCKS = 4096  # of one prompt; what is behind is not looked at


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
        for block in reversed(blocks):   # the first ones are the most recent: they are of use to most prompts
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
        return list(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)


__all__ = ["BLOCK", "Known", "digests"]
