# SPDX-License-Identifier: MIT
"""A ``Llama`` of the shape that programs written for llama-cpp-python call::

    from tinfer.shims.llama_cpp import Llama
    llm = Llama(model_path="model.gguf", n_ctx=2048)
    print(llm("Once upon a time", max_tokens=32)["choices"][0]["text"])

Options about graphics processors are taken and do nothing. What is not here raises TypeError or AttributeError.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import Any, Iterator, Sequence

import numpy as np

from .._native import Context, Grammar, Sampler
from ..llm import LLM, Output, SamplingParams, Stream

#: They choose devices, or say how memory is used, and change no answer here.
WITHOUT_EFFECT = frozenset((
    "n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "vocab_only", "use_mmap", "use_mlock", "n_threads_batch",
    "mul_mat_q", "offload_kqv", "flash_attn", "op_offload", "swa_full", "no_perf", "last_n_tokens_size", "numa",
    "verbose", "n_batch", "n_ubatch", "low_vram", "f16_kv"))


class LlamaGrammar:
    """A grammar for ``grammar=``."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        """Of a text in GBNF."""
        return cls(Grammar.parse(grammar))

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        """Of a JSON schema."""
        return cls(Grammar.schema(json_schema))


class LlamaState:
    """What ``save_state`` gives and ``load_state`` takes."""

    def __init__(self, state: bytes, input_ids: list[int], scores: np.ndarray[Any, Any]) -> None:
        self.llama_state: bytes = state
        self.input_ids: list[int] = input_ids
        self.scores: np.ndarray[Any, Any] = scores
        self.n_tokens: int = len(input_ids)
        self.llama_state_size: int = len(state)


class Llama:
    """One model, with the methods under the names that programs call."""

    def __init__(self, model_path: str, *, n_ctx: int = 512, n_threads: int | None = None, seed: int = 0xFFFFFFFF,
                 logits_all: bool = False, embedding: bool = False, lora_path: str | None = None,
                 lora_scale: float = 1.0, chat_template: str | None = None, **options: Any) -> None:
        for name in options:
            if name not in WITHOUT_EFFECT:
                raise TypeError(f"Llama() got an unexpected keyword argument {name!r}")
        lora = None if lora_path is None else (lora_path, lora_scale)
        self.model_path: str = model_path
        self._llm = LLM(model_path, n_ctx=n_ctx, n_parallel=1, n_threads=n_threads or 0, lora=lora,
                        chat_template=chat_template)
        self._n_ctx = n_ctx or self._llm.model.n_ctx_train
        self._n_threads = n_threads or 0
        self._seed: int | None = None if seed == 0xFFFFFFFF else seed
        self._logits_all, self._embedding = logits_all, embedding
        self._context: Context | None = None
        self._input_ids: list[int] = []
        self._rows: np.ndarray[Any, Any] = np.zeros((0, self.n_vocab()), np.float32)   # room for more than are there
        self.metadata: dict[str, str] = self._llm.model.metadata()

    # ---- Texts

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """The token ids of bytes."""
        if not isinstance(text, bytes):
            raise TypeError("tokenize() takes bytes")
        return self._llm.vocab.encode(text, add_special=add_bos, parse_special=special)

    def detokenize(self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None,
                   special: bool = False) -> bytes:
        """The bytes of token ids; with prev_tokens as they follow those."""
        vocab = self._llm.vocab
        if prev_tokens:
            before = vocab.decode_bytes(prev_tokens, skip_special=not special)
            return vocab.decode_bytes([*prev_tokens, *tokens], skip_special=not special)[len(before):]
        return vocab.decode_bytes(tokens, skip_special=not special)

    def n_ctx(self) -> int:
        """Tokens of the context."""
        return self._n_ctx

    def n_vocab(self) -> int:
        """Tokens of the vocabulary."""
        return self._llm.model.n_vocab

    def n_embd(self) -> int:
        """Numbers of a vector."""
        return self._llm.model.n_embd

    def token_bos(self) -> int:
        """-1 where there is none."""
        bos = self._llm.vocab.bos
        return -1 if bos is None else bos

    def token_eos(self) -> int:
        """-1 where there is none."""
        eos = self._llm.vocab.eos
        return -1 if eos is None else eos

    def set_seed(self, seed: int) -> None:
        """For what is drawn without a seed of its own."""
        self._seed = seed

    # ---- Completions

    def __call__(self, prompt: str, **options: Any) -> Any:
        return self.create_completion(prompt, **options)

    def create_completion(self, prompt: str | list[int], suffix: str | None = None, max_tokens: int | None = 16,
                          temperature: float = 0.8, top_p: float = 0.95, min_p: float = 0.05,
                          logprobs: int | None = None, echo: bool = False, stop: str | list[str] | None = None,
                          frequency_penalty: float = 0.0, presence_penalty: float = 0.0, repeat_penalty: float = 1.0,
                          top_k: int = 40, stream: bool = False, seed: int | None = None,
                          grammar: LlamaGrammar | None = None, logit_bias: dict[int, float] | None = None,
                          model: str | None = None) -> Any:
        """A completion as the OpenAI interface has it, or with ``stream`` an iterator of its pieces."""
        params = self._params(max_tokens, temperature, top_p, min_p, top_k, stop, frequency_penalty, presence_penalty,
                              repeat_penalty, seed, grammar, logit_bias, logprobs)
        answer = self._llm.stream(prompt, params)
        shown = prompt if isinstance(prompt, str) else self._llm.vocab.decode(prompt)
        head = {"id": f"cmpl-{uuid.uuid4()}", "object": "text_completion", "created": int(time.time()),
                "model": model or self.model_path}
        if stream:
            return self._text_pieces(head, answer)
        output = answer.result()
        text = (shown if echo else "") + output.text + (suffix or "")
        return {**head, "choices": [{"text": text, "index": 0, "logprobs": self._logprobs(output),
                                     "finish_reason": output.finish_reason}], "usage": _usage(output)}

    def _text_pieces(self, head: dict[str, Any], answer: Stream) -> Iterator[dict[str, Any]]:
        for text in answer:
            yield {**head, "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": None}]}
        yield {**head, "choices": [{"text": "", "index": 0, "logprobs": None,
                                    "finish_reason": answer.output.finish_reason}]}

    def create_chat_completion(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None,
                               tool_choice: Any = None, temperature: float = 0.2, top_p: float = 0.95, top_k: int = 40,
                               min_p: float = 0.05, stream: bool = False, stop: str | list[str] | None = None,
                               seed: int | None = None, response_format: dict[str, Any] | None = None,
                               max_tokens: int | None = None, presence_penalty: float = 0.0,
                               frequency_penalty: float = 0.0, repeat_penalty: float = 1.0,
                               grammar: LlamaGrammar | None = None, logit_bias: dict[int, float] | None = None,
                               model: str | None = None) -> Any:
        """An answer to a conversation as the OpenAI interface has it, or with ``stream`` an iterator of its pieces."""
        params = self._params(max_tokens, temperature, top_p, min_p, top_k, stop, frequency_penalty, presence_penalty,
                              repeat_penalty, seed, grammar, logit_bias, None)
        if isinstance(tool_choice, dict):
            tool_choice = tool_choice["function"]["name"]
        answer = self._llm.stream(messages, params, tools=tools, tool_choice=tool_choice,
                                  schema=_schema_of(response_format))
        head = {"id": f"chatcmpl-{uuid.uuid4()}", "created": int(time.time()), "model": model or self.model_path}
        if stream:
            return self._chat_pieces({**head, "object": "chat.completion.chunk"}, answer)
        output = answer.result()
        message: dict[str, Any] = {"role": "assistant", "content": output.text}
        if output.reasoning:
            message["reasoning_content"] = output.reasoning
        if output.tool_calls:
            message["tool_calls"] = [_call(call) for call in output.tool_calls]
            message["content"] = output.text or None
        return {**head, "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": output.finish_reason}],
                "usage": _usage(output)}

    def _chat_pieces(self, head: dict[str, Any], answer: Stream) -> Iterator[dict[str, Any]]:
        def piece(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
            return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}

        yield piece({"role": "assistant"})
        for text in answer:
            yield piece({"content": text})
        for i, call in enumerate(answer.output.tool_calls):
            yield piece({"tool_calls": [{"index": i, **_call(call)}]})
        yield piece({}, answer.output.finish_reason)

    def _params(self, max_tokens: int | None, temperature: float, top_p: float, min_p: float, top_k: int, stop: Any,
                frequency: float, presence: float, repeat: float, seed: int | None, grammar: LlamaGrammar | None,
                bias: dict[int, float] | None, logprobs: int | None) -> SamplingParams:
        return SamplingParams(
            temperature=max(temperature, 0.0), top_p=top_p if top_p > 0 else 1e-6, min_p=min_p, top_k=max(top_k, 0),
            max_tokens=None if max_tokens is None or max_tokens <= 0 else max_tokens, stop=stop or None,
            seed=self._seed if seed is None else seed, grammar=None if grammar is None else grammar.grammar,
            logit_bias=bias, logprobs=logprobs, repetition_penalty=repeat, presence_penalty=presence,
            frequency_penalty=frequency)

    def _logprobs(self, output: Output) -> dict[str, Any] | None:
        if output.logprobs is None:
            return None
        vocab = self._llm.vocab
        texts = [vocab.decode([token]) for token in output.token_ids]
        offsets = [0]
        for text in texts:
            offsets.append(offsets[-1] + len(text))
        return {"tokens": texts, "text_offset": offsets[:-1],
                "token_logprobs": [entry[token] for entry, token in zip(output.logprobs, output.token_ids)],
                "top_logprobs": [{vocab.decode([token]): value for token, value in entry.items()}
                                 for entry in output.logprobs]}

    # ---- Vectors

    def embed(self, input: str | list[str], normalize: bool = False, truncate: bool = True) -> Any:
        """A list of floats, or one for each text."""
        if not self._embedding:
            raise RuntimeError("Llama model must be created with embedding=True to call this method")
        return self._llm.embed(input, normalize=normalize).tolist()

    def create_embedding(self, input: str | list[str], model: str | None = None) -> dict[str, Any]:
        """Vectors as the OpenAI interface has them."""
        texts = [input] if isinstance(input, str) else input
        n = sum(len(self._llm.vocab.encode(text)) for text in texts)
        data = [{"object": "embedding", "embedding": row, "index": i} for i, row in enumerate(self.embed(texts))]
        return {"object": "list", "data": data, "model": model or self.model_path,
                "usage": {"prompt_tokens": n, "total_tokens": n}}

    # ---- One sequence, token by token

    def _own_context(self) -> Context:
        if self._context is None:
            self._context = Context(self._llm.model, n_ctx=self._n_ctx, n_threads=self._n_threads,
                                    logits_all=self._logits_all)
        return self._context

    @property
    def n_tokens(self) -> int:
        """Tokens that eval() has computed."""
        return len(self._input_ids)

    @property
    def input_ids(self) -> np.ndarray[Any, Any]:
        """Those tokens."""
        return np.array(self._input_ids, np.intc)

    @property
    def scores(self) -> np.ndarray[Any, Any]:
        """Logits: a row for each token of eval(); without logits_all those of the last token of each call, and zeros
        for the others."""
        return self._rows[:self.n_tokens]

    @property
    def eval_logits(self) -> list[list[float]]:
        """The rows of ``scores`` as lists."""
        rows: list[list[float]] = (self.scores if self._logits_all else self.scores[-1:]).tolist()
        return rows

    def reset(self) -> None:
        """Forgets all tokens."""
        if self._context is not None:
            self._context.clear()
        self._input_ids = []
        self._rows = np.zeros((0, self.n_vocab()), np.float32)

    def eval(self, tokens: Sequence[int]) -> None:
        """Computes tokens behind those that are there."""
        context = self._own_context()
        ids = [int(token) for token in tokens]
        context.decode(ids)
        n = self.n_tokens + len(ids)
        if n > len(self._rows):   # memory of zeros costs nothing until it is written to: rows of zeros are not copied
            rows = np.zeros((max(n, min(2 * n, self._n_ctx)), self.n_vocab()), np.float32)
            written = self.scores.any(axis=1)
            rows[:self.n_tokens][written] = self.scores[written]
            self._rows = rows
        for i in range(context.n_outputs):
            self._rows[n - context.n_outputs + i] = context.logits(i)
        self._input_ids += ids

    def sample(self, top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, temp: float = 0.8,
               **options: Any) -> int:
        """A token drawn from the last row."""
        if options:
            raise TypeError(f"sample() got an unexpected keyword argument {next(iter(options))!r}")
        keywords: dict[str, Any] = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "temp": temp}
        if self._seed is not None:
            keywords["seed"] = (self._seed + self.n_tokens) % 2**32
        return Sampler(self._llm.vocab, **keywords).sample(self.scores[-1])

    def generate(self, tokens: Sequence[int], reset: bool = True, **options: Any) -> Iterator[int]:
        """Token ids for ever, behind ``tokens``; what is sent to the generator is computed, too."""
        if reset:
            self.reset()
        following = list(tokens)
        while True:
            self.eval(following)
            token = self.sample(**options)
            sent = yield token
            following = [token, *(sent or [])]

    def save_state(self) -> LlamaState:
        """What eval() has made."""
        state = self._own_context().save_state()
        assert state is not None
        return LlamaState(state, list(self._input_ids), self.scores.copy())

    def load_state(self, state: LlamaState) -> None:
        """Goes on from there."""
        self._own_context().load_state(state.llama_state)
        self._input_ids, self._rows = list(state.input_ids), state.scores.copy()

    def close(self) -> None:
        """Frees everything."""
        if self._context is not None:
            self._context.close()
        self._llm.close()


def _usage(output: Output) -> dict[str, int]:
    n_prompt, n = len(output.prompt_token_ids), len(output.token_ids)
    return {"prompt_tokens": n_prompt, "completion_tokens": n, "total_tokens": n_prompt + n}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    return {"id": call["id"] or f"call_{uuid.uuid4()}", "type": "function",
            "function": {"name": call["name"], "arguments": call["arguments"]}}


def _schema_of(response_format: dict[str, Any] | None) -> str | None:
    if response_format is None or response_format.get("type") in (None, "text"):
        return None
    if response_format["type"] == "json_object":
        return json.dumps(response_format.get("schema") or {"type": "object"})
    if response_format["type"] == "json_schema":
        return json.dumps(response_format["json_schema"]["schema"])
    raise ValueError(f"response_format is of type {response_format['type']!r}")
