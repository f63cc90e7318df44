# SPDX-License-Identifier: MIT
"""What goes into an LLM beside a prompt, and what comes out."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

import numpy as np

from ._native import Grammar

FINISH_REASONS = {"eog": "stop", "string": "stop", "limit": "length", "context": "length", "interrupt": "abort"}


@dataclass
class SamplingParams:
    """How an answer is drawn, under the names that the field's batch engines use.

    temperature 0 is the best token each time. top_k 0: all. max_tokens None: until the text ends or the context is
    full. seed None: one from the hardware. stop: texts before which the answer ends. logprobs: for each token that of
    itself and of so many others. schema: a JSON schema (dict or text) that the answer keeps to; grammar: GBNF or a
    Grammar. logit_bias: token ids and what is added to their logits. extra: further keywords of Sampler.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int | None = 256
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    logprobs: int | None = None
    schema: dict[str, Any] | str | None = None
    grammar: Grammar | str | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
                raise TypeError(f"{name} is a number, not {value!r}")
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}: it has to be finite")
        for name in ("top_k", "max_tokens", "seed", "logprobs"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer))):
                raise TypeError(f"{name} is an int, not {value!r}")
        if self.top_k is None:
            raise TypeError("top_k is an int; 0: all tokens")
        if self.temperature < 0:
            raise ValueError(f"temperature is {self.temperature}: it has to be at least 0")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}: it has to be above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p is {self.min_p}: it has to be from 0 to 1")
        if self.max_tokens is not None and self.max_tokens < 0:
            raise ValueError(f"max_tokens is {self.max_tokens}: it has to be at least 0")
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed}: it has to fit 32 bits")
        if self.logprobs is not None and not 0 <= self.logprobs <= 100:
            raise ValueError(f"logprobs is {self.logprobs}: it has to be from 0 to 100")
        if self.schema is not None and self.grammar is not None:
            raise ValueError("schema and grammar exclude each other")
        self._stops()

    def _stops(self) -> list[str]:
        if self.stop is None:
            return []
        stops = [self.stop] if isinstance(self.stop, str) else list(self.stop)
        if not all(isinstance(item, str) for item in stops):
            raise TypeError("stop is a text or a sequence of texts")
        return stops

    def _sampler(self) -> dict[str, Any]:
        """Keywords of Sampler."""
        options: dict[str, Any] = {
            "temp": float(self.temperature), "top_p": float(self.top_p), "top_k": max(0, int(self.top_k)),
            "min_p": float(self.min_p), "penalty_repeat": float(self.repetition_penalty),
            "penalty_present": float(self.presence_penalty), "penalty_freq": float(self.frequency_penalty)}
        if self.seed is not None:
            options["seed"] = int(self.seed)
        if self.logit_bias:
            options["logit_bias"] = dict(self.logit_bias)
        options.update(self.extra)
        return options

    def _request(self) -> dict[str, Any]:
        """Keywords of Engine.submit()."""
        return {"sampler": self._sampler(), "max_tokens": -1 if self.max_tokens is None else int(self.max_tokens),
                "stop": self._stops(), "n_top": -1 if self.logprobs is None else int(self.logprobs)}


@dataclass
class Output:
    """An answer.

    finish_reason: "stop" (the model ended it, or a stop text), "length" (max_tokens, or the context is full),
    "tool_calls", "abort". logprobs: for each token a dict of token ids and log-probabilities, the token's own first;
    None where nobody asked. Of a chat also reasoning and tool_calls ({"id", "name", "arguments"}).
    """

    prompt: str | None
    prompt_token_ids: list[int]
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, float]] | None = None
    finish_reason: str | None = None
    stop_reason: str | None = None
    seed: int | None = None
    n_cached: int = 0
    index: int = 0
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def outputs(self) -> list[Output]:
        """Itself: as engines that draw several answers have it."""
        return [self]

    @property
    def cumulative_logprob(self) -> float | None:
        """The sum of the tokens' log-probabilities."""
        if self.logprobs is None:
            return None
        return sum(entry[token] for entry, token in zip(self.logprobs, self.token_ids))

    def json(self) -> Any:
        """The text, parsed as JSON."""
        return json.loads(self.text)

    def _add(self, event: dict[str, Any], stops: Sequence[str]) -> None:
        self.text += event["text"]
        for token, log_prob, top in event["tokens"]:
            self.token_ids.append(token)
            if log_prob is not None:
                if self.logprobs is None:
                    self.logprobs = []
                self.logprobs.append({token: log_prob, **{t: p for t, p in top if t != token}})
        self.seed, self.n_cached = event["seed"], event["n_cached"]
        if event["stop"] is not None:
            self.finish_reason = FINISH_REASONS[event["stop"]]
            if event["stop_string"] is not None:
                self.stop_reason = stops[event["stop_string"]]


@dataclass
class Score:
    """How probable a model finds a text. logprobs has None for a token with nothing before it."""

    text: str
    token_ids: list[int]
    logprobs: list[float | None]
    log_prob: float

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability."""
        n = sum(value is not None for value in self.logprobs)
        return math.exp(-self.log_prob / n) if n else math.nan
