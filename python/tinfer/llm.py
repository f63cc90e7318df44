# SPDX-License-Identifier: MIT
"""The floor for answers: one object that loads a file and answers prompts, batched by the engine."""

from __future__ import annotations

import asyncio
import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterator, Mapping, Sequence, Union, cast

import numpy as np

from ._answers import Output, SamplingParams, Score
from ._error import Error
from ._native import Adapter, ChatPrompt, Engine, Grammar, Model, Request, Vocab, plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

Prompt = Union[str, bytes, Sequence[int]]
Message = Mapping[str, Any]


class Stream:
    """An answer in the making: ``for`` and ``async for`` give its text piece by piece; ``output`` has what there is
    so far, and after the last piece the whole. ``close()`` ends it early, and so does the end of a ``with``."""

    def __init__(self, request: Request, output: Output, stops: list[str], chat: ChatPrompt | None) -> None:
        self.output = output
        self._request, self._stops = request, stops
        self._parser = chat._parser() if chat is not None else None
        self._raw = ""
        self._ended = False

    def _take(self, event: dict[str, Any] | None) -> str:
        """The text that an event adds for the reader."""
        output, parser = self.output, self._parser
        if event is None:
            self._ended = True
            return ""
        before = len(output.text)
        output._add(event, self._stops)
        self._ended = event["stop"] is not None
        if parser is None:
            return output.text[before:]
        pieces = [parser.push(event["text"])]
        if self._ended:
            pieces.append(parser.finish())
        more = ""
        for piece in pieces:
            more += piece["content"]
            output.reasoning += piece["reasoning"]
            output.tool_calls += piece["tool_calls"]
        output.text = output.text[:before] + more
        if self._ended and output.tool_calls and output.finish_reason == "stop":
            output.finish_reason = "tool_calls"
        return more

    def __iter__(self) -> Iterator[str]:
        try:
            while not self._ended:
                text = self._take(self._request.next())
                if text:
                    yield text
        finally:
            self.close()

    async def __aiter__(self) -> AsyncIterator[str]:
        try:
            while not self._ended:
                text = self._take(await _arrived(self._request))
                if text:
                    yield text
        finally:
            self.close()

    def close(self) -> None:
        """Ends the answer."""
        if not self._ended:
            self._ended = True
            self._request.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def result(self) -> Output:
        """Waits for the end; everything at once."""
        for _ in self:
            pass
        return self.output


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _arrived(request: Request) -> dict[str, Any] | None:
    """The next event, without a thread that waits."""
    loop = asyncio.get_running_loop()
    while True:
        event = request._poll()
        if isinstance(event, dict):
            return event
        if event:
            return None
        future: asyncio.Future[None] = loop.create_future()
        descriptor = request.fileno()
        loop.add_reader(descriptor, _wake, future)
        try:
            await future
        finally:
            loop.remove_reader(descriptor)


class LLM:
    """A model that answers. Prompts given together are computed together; an answer depends on its prompt, its
    parameters and its seed alone.

    n_ctx: tokens of all prompts and answers that run at once (0: what the model was trained for). n_parallel: how many
    run at once. ram: most bytes that loading and the context may take, or Error (limit_exceeded) before anything is
    loaded. lora: path of an adapter, or (path, scale), or a list of them. options: further keywords of Context and
    Engine. Raises Error (io_error, not_gguf, …).
    """

    def __init__(self, path: str | os.PathLike[str] | Model, *, n_ctx: int = 4096, n_parallel: int = 8,
                 n_threads: int = 0, ram: int | None = None, lora: Any = None, chat_template: str | None = None,
                 **options: Any) -> None:
        if isinstance(n_parallel, bool) or not isinstance(n_parallel, int) or not 1 <= n_parallel <= 256:
            raise ValueError(f"n_parallel is {n_parallel!r}: it has to be from 1 to 256")
        context: dict[str, Any] = {"n_ctx": n_ctx, "n_seq_max": n_parallel, "n_threads": n_threads}
        if ram is not None:
            engine_only = ("max_queue", "max_batch_tokens", "n_kept", "share_prefixes", "adapters", "store",
                           "store_bytes", "draft", "observers")
            wanted = plan(path, **context,
                          **{key: value for key, value in options.items() if key not in engine_only})["total"]
            if wanted > ram:
                raise Error("limit_exceeded", f"{path}: {wanted} bytes are needed, {ram} are allowed: a smaller "
                                              f"n_ctx or n_parallel needs less")
        self.model: Model = path if isinstance(path, Model) else Model.load(path)
        self.vocab: Vocab = self.model.vocab
        self.chat_template = chat_template
        self._options = {**context, **options}
        self._loras: dict[str, float] = {}
        adapters = dict(options.pop("adapters", {}))
        for i, (name, scale) in enumerate(_lora_list(lora)):
            adapters[f"lora{i}"] = Adapter.load(self.model, name)
            self._loras[f"lora{i}"] = scale
        self._options["adapters"] = adapters
        self._engine: Engine | None = None
        self._pooling: dict[str, Engine] = {}
        self._closed = False
        if self.model.has_output_head and self.model.pooling == "none":
            self._engine = Engine(self.model, **self._options)

    # ---- Text

    def generate(self, prompts: Prompt | Sequence[Prompt],
                 params: SamplingParams | Sequence[SamplingParams] | None = None, **keywords: Any) -> Any:
        """Goes on with each prompt (a text, or token ids): a list of Output in the order given, or one Output for one
        prompt. params: one for all, one each, or as keywords: ``generate("Once", max_tokens=20)``."""
        if _is_prompt(prompts):
            return self.generate(cast(Any, [prompts]), params, **keywords)[0]
        prompt_list = cast("list[Prompt]", list(prompts))
        streams = [self._start(self._tokens(prompt), prompt, each)
                   for prompt, each in zip(prompt_list, _params_list(params, keywords, len(prompt_list)))]
        return _collect(streams)

    def chat(self, messages: str | Sequence[Message] | Sequence[str | Sequence[Message]],
             params: SamplingParams | Sequence[SamplingParams] | None = None, *,
             tools: Sequence[Mapping[str, Any]] | None = None, tool_choice: str | None = None,
             schema: dict[str, Any] | str | None = None, thinking: bool = True,
             variables: dict[str, Any] | None = None, **keywords: Any) -> Any:
        """Answers a conversation: a list of messages ({"role", "content"}), or a text of the user's; a list of
        either gives a list of Output. tools: as the OpenAI interface describes them; calls parse, because a
        grammar sees to it. tool_choice: "auto", "none", "required" or the name of a function. schema: of the answer."""
        if not isinstance(messages, (str, list, tuple)):
            raise TypeError("a conversation is a text or a list of messages")
        is_one = isinstance(messages, str) or not messages or isinstance(messages[0], Mapping)
        conversations: list[Any] = [messages] if is_one else list(messages)
        how = {"tools": tools, "tool_choice": tool_choice, "thinking": thinking, "variables": variables}
        streams = [self._start_chat(conversation, each, schema, how) for conversation, each in
                   zip(conversations, _params_list(params, keywords, len(conversations)))]
        answers = _collect(streams)
        return answers[0] if is_one else answers

    def stream(self, prompt: Prompt | Sequence[Message], params: SamplingParams | None = None, *,
               tools: Sequence[Mapping[str, Any]] | None = None, tool_choice: str | None = None,
               schema: dict[str, Any] | str | None = None, thinking: bool = True,
               variables: dict[str, Any] | None = None, **keywords: Any) -> Stream:
        """One answer piece by piece: ``for text in llm.stream("Once")`` or ``async for``. A list of messages is a
        conversation, everything else a prompt."""
        [one] = _params_list(params, keywords, 1)
        if not _is_prompt(prompt) or (isinstance(prompt, (list, tuple)) and prompt and isinstance(prompt[0], Mapping)):
            how = {"tools": tools, "tool_choice": tool_choice, "thinking": thinking, "variables": variables}
            return self._start_chat(prompt, one, schema, how)
        if tools is not None or schema is not None and one.schema is not None:
            raise TypeError("tools belong to a list of messages")
        if schema is not None:
            one = _with(one, schema=schema)
        return self._start(self._tokens(cast(Prompt, prompt)), cast(Prompt, prompt), one)

    # ---- Numbers

    def embed(self, texts: str | Sequence[str], *, pooling: str | None = None,
              normalize: bool = True) -> NDArray[np.float32]:
        """The vectors of texts: float32 {n, n_embd}, {n_embd} for one text. pooling: "mean", "cls" or "last"; None: as
        the model says, the mean where it says nothing. normalize: to length 1."""
        if isinstance(texts, str):
            one: NDArray[np.float32] = self.embed([texts], pooling=pooling, normalize=normalize)[0]
            return one
        if pooling is None:
            pooling = self.model.pooling if self.model.pooling in ("mean", "cls", "last") else "mean"
        if pooling not in ("mean", "cls", "last"):
            raise ValueError(f"pooling is {pooling!r}, not one of: mean, cls, last")
        engine = self._vectors(pooling)
        requests = [engine.submit(self.vocab.encode(text), kind="embed", adapters=self._loras) for text in texts]
        rows = [_vector(request) for request in requests]
        result = np.stack(rows) if rows else np.empty((0, self.model.n_embd), np.float32)
        if normalize:
            length = np.linalg.norm(result.astype(np.float64), axis=1, keepdims=True)
            result = (result / np.where(length > 0, length, 1)).astype(np.float32)
        return result

    def rank(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """How well each text answers the query: a reranker's scores, float32 {n}. Raises Error
        (unsupported_operation) for models that are none."""
        if isinstance(texts, str):
            raise TypeError("texts is a sequence of texts")
        if self.model.n_class == 0 and self.model.pooling != "rank":
            raise Error("unsupported_operation", f"{self.model.paths[0]}: this model is no reranker")
        engine = self._vectors("rank")
        requests = [engine.submit(self._pair(query, text), kind="rank", adapters=self._loras) for text in texts]
        return np.array([_vector(request)[0] for request in requests], np.float32)

    def score(self, texts: Prompt | Sequence[Prompt]) -> Any:
        """How probable the model finds texts: a list of Score, or one for one text."""
        if _is_prompt(texts):
            return self.score(cast(Any, [texts]))[0]
        engine = self._text_engine()
        prompts = [self._tokens(text) for text in cast("list[Prompt]", texts)]
        requests = [engine.submit(tokens, kind="score", n_top=0, adapters=self._loras) for tokens in prompts]
        scores = []
        for tokens, request in zip(prompts, requests):
            event = request.result()
            assert event is not None
            values = [log_prob for _, log_prob, _ in event["prompt"]]
            scores.append(Score(self.vocab.decode(tokens), tokens, values,
                                math.fsum(value for value in values if value is not None)))
        return scores

    def tokenize(self, text: str, *, add_special: bool = True) -> list[int]:
        """The token ids of a text."""
        return self.vocab.encode(text, add_special=add_special)

    # ---- Its life

    @property
    def engine(self) -> Engine:
        """What computes the text."""
        return self._text_engine()

    def close(self) -> None:
        """Ends its threads and frees what it holds; answers that run end with "abort"."""
        self._closed = True
        for engine in [self._engine, *self._pooling.values()]:
            if engine is not None:
                engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tinfer.LLM {self.model.paths[0]}>"

    # ---- Inside

    def _text_engine(self) -> Engine:
        if self._closed:
            raise Error("bad_parameter", "the LLM is closed")
        if self._engine is None:
            if not self.model.has_output_head:
                raise Error("unsupported_operation", f"{self.model.paths[0]}: this model gives vectors and no text")
            self._engine = Engine(self.model, **{**self._options, "pooling": "none"})
        return self._engine

    def _vectors(self, pooling: str) -> Engine:
        if self._closed:
            raise Error("bad_parameter", "the LLM is closed")
        if pooling not in self._pooling:
            options = {key: value for key, value in self._options.items()
                       if key not in ("store", "store_bytes", "draft", "observers", "logits_all")}
            self._pooling[pooling] = Engine(self.model, **{**options, "pooling": pooling})
        return self._pooling[pooling]

    def _tokens(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, (str, bytes)):
            return self.vocab.encode(prompt)
        return [int(token) for token in prompt]

    def _pair(self, query: str, text: str) -> list[int]:
        """A query and a text as classifiers were trained: one separator between them in BERT, else an end and a begin
        token."""
        vocab = self.vocab
        separator, end = vocab.special("sep"), vocab.eos
        tokens = vocab.encode(query)
        if end is not None and not (tokens and tokens[-1] in (separator, end)):
            tokens.append(end)
        if vocab.algorithm != "bert" and separator is not None:
            tokens.append(separator)
        tokens += vocab.encode(text, add_special=False)
        last = end if end is not None else separator
        return tokens + ([last] if last is not None else [])

    def _grammar(self, params: SamplingParams) -> Grammar | str | None:
        return Grammar.schema(params.schema) if params.schema is not None else params.grammar

    def _start(self, tokens: list[int], prompt: Prompt, params: SamplingParams) -> Stream:
        request = self._text_engine().submit(tokens, grammar=self._grammar(params), adapters=self._loras,
                                             **params._request())
        shown = prompt if isinstance(prompt, str) else None
        return Stream(request, Output(shown, tokens), params._stops(), None)

    def _start_chat(self, messages: Any, params: SamplingParams, schema: Any, how: dict[str, Any]) -> Stream:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        if not isinstance(messages, (list, tuple)) or not all(isinstance(message, Mapping) for message in messages):
            raise TypeError("a conversation is a list of messages: [{'role': 'user', 'content': 'Hello'}]")
        prompt = ChatPrompt(self.model, [dict(message) for message in messages],
                            schema=schema if schema is not None else params.schema, chat_template=self.chat_template,
                            **how)
        request = self._text_engine().submit(prompt, grammar=params.grammar, adapters=self._loras, **params._request())
        return Stream(request, Output(prompt.text, prompt.token_ids), params._stops(), prompt)


def _is_prompt(value: Any) -> bool:
    """A text, or token ids."""
    if isinstance(value, (str, bytes)):
        return True
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "iu"
    return isinstance(value, (list, tuple)) and bool(value) and all(
        isinstance(item, (int, np.integer)) for item in value)


def _with(params: SamplingParams, **changes: Any) -> SamplingParams:
    return replace(params, **changes)


def _params_list(params: Any, keywords: dict[str, Any], n: int) -> list[SamplingParams]:
    if params is None:
        return [SamplingParams(**keywords)] * n
    if isinstance(params, SamplingParams):
        return [_with(params, **keywords) if keywords else params] * n
    if isinstance(params, (str, bytes, Mapping)):
        raise TypeError("params is a SamplingParams, or one for each prompt")
    each = list(params)
    if not all(isinstance(item, SamplingParams) for item in each):
        raise TypeError("params is a SamplingParams, or one for each prompt")
    if len(each) != n:
        raise ValueError(f"{len(each)} SamplingParams are given for {n} prompts")
    return [_with(item, **keywords) if keywords else item for item in each]


def _collect(streams: list[Stream]) -> list[Output]:
    """Waits for all; what ends one of them ends the others."""
    try:
        for stream in streams:
            stream._take(stream._request.result())
    except BaseException:
        for stream in streams:
            stream.close()
        raise
    return [stream.output for stream in streams]


def _vector(request: Request) -> NDArray[np.float32]:
    event = request.result()
    assert event is not None
    vector: NDArray[np.float32] = event["vector"]
    return vector


def _lora_list(lora: Any) -> list[tuple[Any, float]]:
    if lora is None:
        return []
    if isinstance(lora, (str, bytes, os.PathLike)):
        return [(lora, 1.0)]
    if isinstance(lora, tuple) and len(lora) == 2 and isinstance(lora[1], (int, float)):
        return [(lora[0], float(lora[1]))]
    return [pair for item in lora for pair in _lora_list(item)]


__all__ = ["LLM", "Output", "SamplingParams", "Score", "Stream"]
