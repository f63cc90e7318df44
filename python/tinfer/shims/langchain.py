# SPDX-License-Identifier: MIT
# mypy: ignore-errors
"""LangChain: ``ChatTinfer(path="model.gguf")`` and ``TinferEmbeddings(path="model.gguf")``. Needs langchain-core."""

from __future__ import annotations

import json
from typing import Any, AsyncIterator, Iterator

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

from ..llm import LLM, Output, SamplingParams, Stream


class ChatTinfer(BaseChatModel):
    """A chat model. ``bind_tools`` and ``with_structured_output`` work as with others; ``schema=`` in a call keeps the
    answer to a JSON schema."""

    path: str
    n_ctx: int = 4096
    n_parallel: int = 4
    temperature: float = 0.8
    top_p: float = 0.95
    max_tokens: int | None = None
    seed: int | None = None
    options: dict[str, Any] = {}
    _llm: LLM | None = PrivateAttr(default=None)

    @property
    def _llm_type(self) -> str:
        return "tinfer"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"path": self.path, "n_ctx": self.n_ctx, "temperature": self.temperature, "seed": self.seed}

    @property
    def llm(self) -> LLM:
        """What answers, loaded at the first call."""
        if self._llm is None:
            self._llm = LLM(self.path, n_ctx=self.n_ctx, n_parallel=self.n_parallel, **self.options)
        return self._llm

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **keywords: Any) -> Any:
        """Tools as functions, models or dicts."""
        if isinstance(tool_choice, dict):
            tool_choice = tool_choice["function"]["name"]
        if tool_choice in (True, "any"):
            tool_choice = "required"
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], tool_choice=tool_choice or None,
                         **keywords)

    def _start(self, messages: Any, stop: Any, keywords: dict[str, Any]) -> Stream:
        named = {name: keywords.get(name, getattr(self, name))
                 for name in ("temperature", "top_p", "max_tokens", "seed")}
        return self.llm.stream(convert_to_openai_messages(messages), SamplingParams(stop=stop, **named),
                               tools=keywords.get("tools"), tool_choice=keywords.get("tool_choice"),
                               schema=keywords.get("schema"))

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **keywords: Any) -> ChatResult:
        output = self._start(messages, stop, keywords).result()
        calls, invalid = [], []
        for call in output.tool_calls:
            try:
                calls.append({"name": call["name"], "args": json.loads(call["arguments"]),
                              "id": call["id"] or call["name"]})
            except ValueError as error:
                invalid.append({"name": call["name"], "args": call["arguments"], "id": call["id"] or call["name"],
                                "error": str(error)})
        message = AIMessage(output.text, tool_calls=calls, invalid_tool_calls=invalid, usage_metadata=_usage(output),
                            additional_kwargs={"reasoning_content": output.reasoning} if output.reasoning else {},
                            response_metadata={"finish_reason": output.finish_reason, "model_name": self.path})
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _last(self, output: Output) -> ChatGenerationChunk:
        calls = [{"name": call["name"], "args": call["arguments"], "id": call["id"] or call["name"], "index": i}
                 for i, call in enumerate(output.tool_calls)]
        return ChatGenerationChunk(message=AIMessageChunk(
            "", tool_call_chunks=calls, usage_metadata=_usage(output),
            response_metadata={"finish_reason": output.finish_reason, "model_name": self.path}))

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None,
                **keywords: Any) -> Iterator[ChatGenerationChunk]:
        stream = self._start(messages, stop, keywords)
        for text in stream:
            chunk = ChatGenerationChunk(message=AIMessageChunk(text))
            if run_manager:
                run_manager.on_llm_new_token(text, chunk=chunk)
            yield chunk
        yield self._last(stream.output)

    async def _astream(self, messages: Any, stop: Any = None, run_manager: Any = None,
                       **keywords: Any) -> AsyncIterator[ChatGenerationChunk]:
        stream = self._start(messages, stop, keywords)
        async for text in stream:
            chunk = ChatGenerationChunk(message=AIMessageChunk(text))
            if run_manager:
                await run_manager.on_llm_new_token(text, chunk=chunk)
            yield chunk
        yield self._last(stream.output)


def _usage(output: Output) -> dict[str, int]:
    n_prompt, n = len(output.prompt_token_ids), len(output.token_ids)
    return {"input_tokens": n_prompt, "output_tokens": n, "total_tokens": n_prompt + n}


class TinferEmbeddings(Embeddings):
    """Vectors of texts, of length 1."""

    def __init__(self, path: str, *, pooling: str | None = None, **options: Any) -> None:
        self.llm, self.pooling = LLM(path, **options), pooling

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """A vector for each text."""
        return self.llm.embed(list(texts), pooling=self.pooling).tolist()

    def embed_query(self, text: str) -> list[float]:
        """The vector of a text."""
        return self.llm.embed(text, pooling=self.pooling).tolist()
