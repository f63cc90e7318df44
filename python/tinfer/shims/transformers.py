# SPDX-License-Identifier: MIT
"""The tokenizer of a GGUF file in the shape of those of transformers, for libraries that want one::

    from tinfer.shims.transformers import Tokenizer
    tokenizer = Tokenizer("model.gguf")
    tokenizer(["a", "longer text"], padding=True)["input_ids"]

It needs no other package. Text of control tokens becomes their ids, as it does there: ``split_special_tokens=True``
keeps it text. What messages say never does (``apply_chat_template``).
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence, Union, cast

import numpy as np

from .._error import Error
from .._native import Chat, ChatPrompt, Model, Vocab

#: What "no limit" is there.
NO_LIMIT: int = int(1e30)
NAMES: tuple[str, ...] = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
Ids = Union[Sequence[int], "np.ndarray[Any, Any]"]


class Encoding(dict[str, Any]):
    """``input_ids`` and ``attention_mask``, as items and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def data(self) -> dict[str, Any]:
        """Itself."""
        return self


class Tokenizer:
    """Text to ids and back.

    model: a path, of which the vocabulary alone is read, or a Model or Vocab; conversations need a Model. Raises Error
    (io_error, not_gguf, …).
    """

    is_fast: bool = False
    model_input_names: list[str] = ["input_ids", "attention_mask"]
    padding_side: str = "right"
    truncation_side: str = "right"

    def __init__(self, model: str | os.PathLike[str] | Model | Vocab, *, model_max_length: int | None = None,
                 chat_template: str | None = None) -> None:
        if isinstance(model, Vocab):
            self._model, vocab = None, model
        else:
            self._model = model if isinstance(model, Model) else Model.load(model)
            vocab = self._model.vocab
        self.backend: Vocab = vocab
        self.chat_template: str | None = chat_template
        self.name_or_path: str = self._model.paths[0] if self._model is not None else ""
        limit = self._model.n_ctx_train if self._model is not None else NO_LIMIT
        self.model_max_length: int = limit if model_max_length is None else model_max_length

    def __repr__(self) -> str:
        return f"<tinfer tokenizer {self.name_or_path}, {len(self)} tokens>"

    # ---- What it has

    def __len__(self) -> int:
        return len(self.backend)

    @property
    def vocab_size(self) -> int:
        """Tokens of the vocabulary."""
        return len(self.backend)

    def get_vocab(self) -> dict[str, int]:
        """Tokens as they are stored, and their ids."""
        return {self.backend.text(token): token for token in range(len(self))}

    @property
    def vocab(self) -> dict[str, int]:
        """The same."""
        return self.get_vocab()

    def _special(self, name: str) -> int | None:
        try:
            token = self.backend.special(name)
        except ValueError:
            return None
        return self.eos_token_id if token is None and name == "pad" else token

    def __getattr__(self, name: str) -> Any:
        """``eos_token``, ``eos_token_id`` and so on; None where the vocabulary has none. Without a token for padding
        it is that of the end."""
        kind, _, rest = name.partition("_")
        if kind not in NAMES or rest not in ("token", "token_id"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        token = self._special(kind)
        return token if rest == "token_id" or token is None else self.backend.text(token)

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """Names as "eos_token", and tokens."""
        return {f"{kind}_token": getattr(self, f"{kind}_token") for kind in NAMES if self._special(kind) is not None}

    @property
    def all_special_tokens(self) -> list[str]:
        """Those of special_tokens_map, each once."""
        return list(dict.fromkeys(self.special_tokens_map.values()))

    @property
    def all_special_ids(self) -> list[int]:
        """Their ids."""
        return [cast(int, self.backend.find(token)) for token in self.all_special_tokens]

    # ---- To ids

    def tokenize(self, text: str, add_special_tokens: bool = False, **options: Any) -> list[str]:
        """The tokens as they are stored."""
        return [self.backend.text(token) for token in self.encode(text, add_special_tokens=add_special_tokens,
                                                                  **options)]

    def encode(self, text: str, text_pair: str | None = None, add_special_tokens: bool = True,
               **options: Any) -> Any:
        """The ids of a text."""
        return self(text, text_pair, add_special_tokens=add_special_tokens, **options)["input_ids"]

    def __call__(self, text: str | Sequence[str], text_pair: str | Sequence[str] | None = None, *,
                 add_special_tokens: bool = True, padding: bool | str = False, truncation: bool | str = False,
                 max_length: int | None = None, pad_to_multiple_of: int | None = None,
                 split_special_tokens: bool = False, return_attention_mask: bool = True,
                 return_tensors: str | None = None) -> Encoding:
        """``input_ids`` and ``attention_mask`` of a text, or lists of them. padding: True or "longest", "max_length".
        truncation: True cuts to max_length. return_tensors: "np", or "pt" where torch is installed."""
        is_one = isinstance(text, str)
        texts = [text] if isinstance(text, str) else list(text)
        pairs: list[str | None] = [None] * len(texts) if text_pair is None else [text_pair] \
            if isinstance(text_pair, str) else list(text_pair)
        if len(pairs) != len(texts):
            raise ValueError(f"{len(pairs)} second texts are given for {len(texts)} texts")
        limit = self.model_max_length if max_length is None else max_length
        cuts = truncation not in (False, None, "do_not_truncate")
        rows = []
        for one, two in zip(texts, pairs):
            if not isinstance(one, str) or not (two is None or isinstance(two, str)):
                raise TypeError("a text is a str")
            ids = self.backend.encode(one, add_special=add_special_tokens, parse_special=not split_special_tokens)
            if two is not None:
                ids += self.backend.encode(two, add_special=False, parse_special=not split_special_tokens)
            if cuts and len(ids) > limit:
                ids = ids[:limit] if self.truncation_side == "right" else ids[len(ids) - limit:]
            rows.append(ids)
        found = self.pad({"input_ids": rows}, padding=padding, max_length=max_length,
                         pad_to_multiple_of=pad_to_multiple_of)
        if is_one and return_tensors is None:
            found = Encoding({name: values[0] for name, values in found.items()})
        if not return_attention_mask:
            del found["attention_mask"]
        return _tensors(found, return_tensors)

    def pad(self, encoded_inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]], padding: bool | str = True,
            max_length: int | None = None, pad_to_multiple_of: int | None = None,
            return_attention_mask: bool | None = None, return_tensors: str | None = None,
            **options: Any) -> Encoding:
        """Rows of one length, made of lists of ids or of what the call gives for single texts."""
        if not isinstance(encoded_inputs, Mapping):
            items = list(encoded_inputs)
            encoded_inputs = {name: [item[name] for item in items] for name in (items[0] if items else ())}
        ids = [[int(token) for token in row] for row in encoded_inputs["input_ids"]]
        masks = [list(map(int, row)) for row in encoded_inputs.get("attention_mask", [[1] * len(row) for row in ids])]
        length = 0
        if padding in (True, "longest"):
            length = max(map(len, ids), default=0)
        elif padding == "max_length":
            length = self.model_max_length if max_length is None else max_length
        elif padding not in (False, None, "do_not_pad"):
            raise ValueError(f"padding is {padding!r}, not one of: longest, max_length, do_not_pad")
        if length and pad_to_multiple_of:
            length = -(-length // pad_to_multiple_of) * pad_to_multiple_of
        filler = self._special("pad")
        if filler is None and any(len(row) < length for row in ids):
            raise ValueError("this vocabulary has no token to pad with")
        for row, mask in zip(ids, masks):
            more = max(0, length - len(row))
            at = len(row) if self.padding_side == "right" else 0
            row[at:at] = [cast(int, filler)] * more
            mask[at:at] = [0] * more
        others = {name: value for name, value in encoded_inputs.items() if name not in ("input_ids", "attention_mask")}
        return _tensors(Encoding({"input_ids": ids, "attention_mask": masks, **others}), return_tensors)

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """The ids of tokens as they are stored; that of the unknown token, or None, for others."""
        if isinstance(tokens, str):
            found = self.backend.find(tokens)
            return self._special("unk") if found is None else found
        return [self.convert_tokens_to_ids(token) for token in tokens]

    # ---- And back

    def convert_ids_to_tokens(self, ids: int | Ids, skip_special_tokens: bool = False) -> Any:
        """Tokens as they are stored."""
        if isinstance(ids, (int, np.integer)):
            return self.backend.text(int(ids))
        return [self.backend.text(int(token)) for token in ids
                if not (skip_special_tokens and self.backend.is_control(int(token)))]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """The text of tokens as they are stored."""
        text: str = self.decode([token for token in self.convert_tokens_to_ids(tokens) if token is not None])
        return text

    def decode(self, token_ids: int | Ids, skip_special_tokens: bool = False, **options: Any) -> Any:
        """The text of ids; of several rows a list of texts."""
        if isinstance(token_ids, (int, np.integer)):
            token_ids = [int(token_ids)]
        rows = token_ids.tolist() if hasattr(token_ids, "tolist") else list(token_ids)
        if rows and isinstance(rows[0], (list, tuple, np.ndarray)):
            return [self.decode(row, skip_special_tokens) for row in rows]
        return self.backend.decode(rows, skip_special=skip_special_tokens)

    def batch_decode(self, sequences: Sequence[Ids], skip_special_tokens: bool = False, **options: Any) -> list[str]:
        """A text for each row of ids."""
        return [self.decode(row, skip_special_tokens) for row in sequences]

    # ---- Conversations

    def apply_chat_template(self, conversation: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None, *,
                            add_generation_prompt: bool = False, tokenize: bool = True, return_dict: bool = True,
                            return_tensors: str | None = None, **variables: Any) -> Any:
        """A conversation as the file's template writes it: a text, or ids and their mask. Text of messages never
        becomes a control token. variables: further ones of the template."""
        if self._model is None:
            raise TypeError("conversations need a model: Tokenizer(path) or Tokenizer(model)")
        messages = [dict(message) for message in conversation]
        tools = list(tools) if tools else None
        known: dict[str, Any] = {"tools": tools, "variables": variables or None, "chat_template": self.chat_template}
        whole = ChatPrompt(self._model, messages, **known)
        text, ids = whole.text, list(whole.token_ids)
        if not add_generation_prompt:
            chat = Chat(self._model, **known)
            chat.messages = messages
            text = chat.render(answer_follows=False)
            ids = self._without_end(whole, text)
        if not tokenize:
            return text
        found = _tensors(Encoding({"input_ids": ids, "attention_mask": [1] * len(ids)}), return_tensors,
                         is_one=True)
        return found if return_dict else found["input_ids"]

    def _without_end(self, whole: ChatPrompt, text: str) -> list[int]:
        """The ids of the prompt but for what begins the answer."""
        end = self.backend.encode(whole.text[len(text):], add_special=False, parse_special=True)
        ids = list(whole.token_ids)
        if not whole.text.startswith(text) or (end and ids[-len(end):] != end):
            raise Error("unsupported_operation", "this template writes a conversation in another way where no answer "
                                                 "follows: its text can be had (tokenize=False), its ids cannot")
        return ids[:len(ids) - len(end)]


def _tensors(found: Encoding, kind: str | None, is_one: bool = False) -> Encoding:
    """The values as arrays of int64."""
    if kind is None:
        return found
    if kind not in ("np", "pt"):
        raise ValueError(f"return_tensors is {kind!r}, not one of: np, pt")
    arrays = Encoding({name: np.array([value] if is_one else value, np.int64) for name, value in found.items()})
    if kind == "pt":
        import torch  # type: ignore[import-not-found,unused-ignore]

        arrays = Encoding({name: torch.from_numpy(value) for name, value in arrays.items()})
    return arrays
