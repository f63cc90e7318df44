# SPDX-License-Identifier: MIT
# mypy: ignore-errors
"""The model class of EleutherAI's evaluation harness: ``TinferLM(path="model.gguf")``, registered as "tinfer" once this
module is imported. Needs lm-eval. Results do not depend on how many requests run at once."""

from __future__ import annotations

import math
from typing import Any

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from .._native import ChatPrompt
from ..llm import LLM, SamplingParams


@register_model("tinfer")
class TinferLM(LM):
    """max_length: tokens of one request, context and continuation together; None: what the model was trained for, at
    most n_ctx. batch_size: how many run at once."""

    def __init__(self, path: str, n_ctx: int = 4096, batch_size: int = 8, max_length: int | None = None,
                 max_gen_toks: int = 256, **options: Any) -> None:
        super().__init__()
        known = {name: value for name, value in options.items() if name not in ("device", "max_batch_size")}
        self.llm = LLM(path, n_ctx=int(n_ctx), n_parallel=int(batch_size), **known)
        self.path, self.max_gen_toks = path, int(max_gen_toks)
        self.max_length = int(max_length or min(self.llm.model.n_ctx_train or n_ctx, self.llm.engine.max_tokens))
        vocab = self.llm.vocab
        self.prefix_token_id = next(token for token in (vocab.bos, vocab.eos, 0) if token is not None)

    @property
    def tokenizer_name(self) -> str:
        """What caches of requests are named by."""
        return self.llm.model.fingerprint

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The prompt that a conversation is to the model."""
        return ChatPrompt(self.llm.model, chat_history).text

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Both encoded as one text; spaces at the end of the context belong to the continuation."""
        encode = self.llm.vocab.encode
        n_spaces = len(context) - len(context.rstrip())
        if n_spaces:
            context, continuation = context[:-n_spaces], context[-n_spaces:] + continuation
        if not context:
            return [self.prefix_token_id], encode(continuation, add_special=False)
        before = encode(context)
        return before, encode(context + continuation)[len(before):]

    def _score(self, pairs: list[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
        requests = []
        for before, tokens in pairs:
            ids = (before + tokens)[-self.max_length:]
            requests.append((min(len(tokens), len(ids) - 1), self.llm.engine.submit(ids, kind="score", n_top=1)))
        results = []
        for n, request in requests:
            scored = request.result()["prompt"][-n:] if n else []
            results.append((math.fsum(log_prob for _, log_prob, _ in scored),
                            all(top[0][0] == token for token, _, top in scored)))
        return results

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        """(log-probability of the continuation, whether it is the greedy one) for each."""
        return self._score([self._pair(*request.args) for request in requests])

    def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
        """Log-probability of each whole text, in windows of max_length."""
        totals = []
        for request in requests:
            tokens = self.llm.vocab.encode(request.args[0], add_special=False)
            windows = [make_disjoint_window(window) for window in get_rolling_token_windows(
                token_list=tokens, prefix_token=self.prefix_token_id, max_seq_len=self.max_length - 1, context_len=1)]
            totals.append(math.fsum(value for value, _ in self._score(windows)))
        return totals

    def generate_until(self, requests: list[Any]) -> list[str]:
        """The text behind each context, up to one of its stop texts."""
        prompts, params = [], []
        for request in requests:
            context, options = request.args
            until = options.get("until") or []
            n = int(options.get("max_gen_toks", options.get("max_tokens", self.max_gen_toks)))
            temperature = float(options.get("temperature", 0.0)) if options.get("do_sample", True) else 0.0
            prompts.append(self.llm.vocab.encode(context)[-(self.max_length - n):])
            params.append(SamplingParams(temperature=temperature, top_p=float(options.get("top_p", 1.0)), seed=0,
                                         top_k=int(options.get("top_k", 0)), max_tokens=n,
                                         stop=[until] if isinstance(until, str) else list(until)))
        return [output.text for output in self.llm.generate(prompts, params)]
