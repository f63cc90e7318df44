# SPDX-License-Identifier: MIT
# mypy: ignore-errors
"""The plugin of Simon Willison's ``llm``: ``llm tinfer add NAME model.gguf``, then ``llm -m NAME "Hello"``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterator, Optional

import click
import llm
from pydantic import Field

from ..llm import LLM, SamplingParams

_loaded: dict[str, LLM] = {}


def _list() -> Path:
    """Names and paths of models that were added."""
    return llm.user_dir() / "tinfer-models.json"


def _models() -> dict[str, str]:
    path = _list()
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _load(path: str) -> LLM:
    if path not in _loaded:
        _loaded[path] = LLM(path)
    return _loaded[path]


class Tinfer(llm.Model):
    """A file that was added, as a chat model."""

    can_stream = True
    supports_schema = True

    class Options(llm.Options):
        """Of one prompt."""

        temperature: Optional[float] = Field(description="0: the best token each time", default=0.8)
        top_p: Optional[float] = Field(description="Share of probability that is drawn from", default=0.95)
        max_tokens: Optional[int] = Field(description="Most tokens of the answer", default=None)
        seed: Optional[int] = Field(description="Same seed, same answer", default=None)

    def __init__(self, name: str, path: str) -> None:
        self.model_id, self.path = name, path

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any = None) -> Iterator[str]:
        """The answer piece by piece."""
        messages = []
        for earlier in conversation.responses if conversation else []:
            if earlier.prompt.system and not messages:
                messages.append({"role": "system", "content": earlier.prompt.system})
            messages.append({"role": "user", "content": earlier.prompt.prompt})
            messages.append({"role": "assistant", "content": earlier.text()})
        if prompt.system:
            messages = [message for message in messages if message["role"] != "system"]
            messages.insert(0, {"role": "system", "content": prompt.system})
        messages.append({"role": "user", "content": prompt.prompt or ""})
        options = prompt.options
        params = SamplingParams(temperature=options.temperature, top_p=options.top_p, max_tokens=options.max_tokens,
                                seed=options.seed)
        answer = _load(self.path).stream(messages, params, schema=getattr(prompt, "schema", None))
        yield from answer
        output = answer.output
        response.set_usage(input=len(output.prompt_token_ids), output=len(output.token_ids))


class TinferEmbedding(llm.EmbeddingModel):
    """A file that was added, as an embedding model."""

    batch_size = 64

    def __init__(self, name: str, path: str) -> None:
        self.model_id, self.path = f"{name}-embed", path

    def embed_batch(self, items: Any) -> Iterator[list[float]]:
        """A vector for each text."""
        yield from _load(self.path).embed([str(item) for item in items]).tolist()


@llm.hookimpl
def register_models(register: Any) -> None:
    for name, path in _models().items():
        register(Tinfer(name, path))


@llm.hookimpl
def register_embedding_models(register: Any) -> None:
    for name, path in _models().items():
        register(TinferEmbedding(name, path))


@llm.hookimpl
def register_commands(cli: Any) -> None:
    @cli.group(name="tinfer")
    def group() -> None:
        "Models of tinfer"

    @group.command(name="add")
    @click.argument("name")
    @click.argument("path", type=click.Path(exists=True, dir_okay=False, resolve_path=True))
    def add(name: str, path: str) -> None:
        "Adds a GGUF file under a name"
        _list().parent.mkdir(parents=True, exist_ok=True)
        _list().write_text(json.dumps({**_models(), name: path}, indent=1) + "\n", encoding="utf-8")

    @group.command(name="list")
    def show() -> None:
        "Lists the files that were added"
        for name, path in _models().items():
            click.echo(f"{name}: {path}")
