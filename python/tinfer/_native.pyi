# SPDX-License-Identifier: MIT
# Made by nanobind.stubgen from the extension module: python/tests/types_test.py says how, and compares.
from collections.abc import Callable, Iterable, Mapping, Sequence
import os
from typing import Any, Iterator

import numpy
from numpy.typing import NDArray


version: str = '0.1.0'

class View(numpy.lib.mixins.NDArrayOperatorsMixin):
    """
    A read-only array over memory of the library, without a copy. It does what a numpy array does as long as the memory is what it was; afterwards it raises Error (`no_output`). `.copy()` gives an array that stays; so do np.array(), np.asarray() and memoryview().
    """
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> numpy.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def _array(self) -> NDArray[Any]: ...
    def _enter(self) -> _Reading: ...
    def _derive(self, array: NDArray[Any]) -> View: ...
    def copy(self, order: Any = 'C') -> NDArray[Any]:
        """An array of its own, which stays."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __array_ufunc__(self, ufunc: numpy.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __contains__(self, item: object) -> bool: ...
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...
    def __bool__(self) -> bool: ...

class _Reading:
    def leave(self) -> None: ...

class TensorInfo:
    """A tensor as the file describes it."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str:
        """'q4_1', 'f32', …"""

    @property
    def role(self) -> str:
        """'attn_q' for blk.3.attn_q.weight"""

    @property
    def shape(self) -> tuple[int, ...]:
        """As numpy counts: rows first, {n_embd} last."""

    @property
    def layer(self) -> int:
        """-1 for a tensor of no block"""

    @property
    def nbytes(self) -> int: ...

    @property
    def file_offset(self) -> int: ...

    def __repr__(self) -> str: ...

class Vocab:
    """Text to tokens and back. Immutable, for any thread."""

    @staticmethod
    def load(path: str | bytes | os.PathLike[str]) -> Vocab:
        """Only the text part of a file; its weights are not touched."""

    def encode(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """
        The tokens of a text. `add_special`: with BOS and EOS as the vocabulary says. `parse_special`: text of control tokens becomes their ids; keep it off for text from outside. Raises Error (no_tokenizer).
        """

    def decode(self, tokens: Iterable[int], *, skip_special: bool = True) -> str:
        """
        The text of tokens; U+FFFD where they end inside a character. Raises Error (index_out_of_range).
        """

    def decode_bytes(self, tokens: Iterable[int], *, skip_special: bool = True) -> bytes:
        """The same as bytes."""

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """
        The bytes of one token, maybe a part of a character; control tokens are empty unless `special`.
        """

    def text(self, token: int) -> str:
        """As stored in the file."""

    def score(self, token: int) -> float:
        """As stored in the file; 0 where it holds none."""

    def find(self, text: str) -> int | None:
        """The token stored as this text."""

    def is_eog(self, token: int) -> bool:
        """Whether the token ends a generation."""

    def is_control(self, token: int) -> bool:
        """Whether it stands for no text: <s>, <|im_end|>, …"""

    def special(self, which: str) -> int | None:
        """
        'bos', 'eos', 'eot', 'sep', 'pad', 'fim_pre', …; None where the vocabulary has none.
        """

    @property
    def bos(self) -> int | None: ...

    @property
    def eos(self) -> int | None: ...

    @property
    def eot(self) -> int | None: ...

    @property
    def eog_tokens(self) -> list[int]: ...

    @property
    def add_bos(self) -> bool: ...

    @property
    def add_eos(self) -> bool: ...

    @property
    def algorithm(self) -> str: ...

    def __len__(self) -> int: ...

    def __repr__(self) -> str: ...

class Model:
    """
    A loaded model: weights in place in the mapped file, hyper-parameters, vocabulary. Immutable; any number of threads and contexts share one.
    """

    @staticmethod
    def load(path: str | bytes | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, use_mmap: bool = True, mlock: bool = False, populate: bool = False, check_tensors: bool = False, allow_unused_tensors: bool = False, allow_unknown_keys: bool = False, overrides: dict[str, bool | int | float | str] = {}, pretokenizer: str = '', layers: tuple[int, int] | None = None, memory_limit: int = 0, progress: Callable[[float], bool | None] | None = None, log: Callable[[str, str], object] | None = None) -> Model:
        """
        Loads a GGUF file, or a list of shards. Milliseconds: nothing is copied. `overrides` replaces values of the file's metadata. `layers`: these alone, (first, last), both included, the last one -1 for the model's, as one of several parts that run a model together (Context.decode, Context.hidden). `memory_limit`: bytes of memory for weights; a larger model is read as it is needed, and gives the same bits (paging). Raises Error: io_error, and the codes of files and models.
        """

    @property
    def paging(self) -> dict[str, float] | None:
        """
        How a model that is larger than its memory limit has fared since it was loaded: units (experts, or streamed tensors) that steps found in memory or had to wait for, bytes read, seconds waited. None where everything is in memory.
        """

    @property
    def vocab(self) -> Vocab: ...

    @property
    def tensors(self) -> list[TensorInfo]:
        """Every tensor of the file, in its order."""

    def blocks(self, name: str) -> View:
        """
        The bytes of a tensor where the file is mapped, read-only and without a copy: float32, float16 and integer tensors as such, bfloat16 as uint16, quantized ones as uint8 with a row of blocks per row. Raises KeyError, and io_error when what is read has vanished from the file.
        """

    def dequantize(self, name: str) -> NDArray[numpy.float32]:
        """
        A tensor as a new float32 array, its rows first. Exact for every type of weights.
        """

    def metadata(self) -> dict[str, str]:
        """
        Keys and values of the file as text; arrays are cut after eight elements.
        """

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that name the file."""

    @property
    def paths(self) -> list[str]: ...

    @property
    def architecture(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def n_layer(self) -> int: ...

    @property
    def n_embd(self) -> int: ...

    @property
    def n_head(self) -> int: ...

    @property
    def n_head_kv(self) -> int: ...

    @property
    def n_ff(self) -> int: ...

    @property
    def n_vocab(self) -> int: ...

    @property
    def n_ctx_train(self) -> int: ...

    @property
    def n_expert(self) -> int: ...

    @property
    def n_class(self) -> int:
        """scores of a reranker's classifier"""

    @property
    def n_params(self) -> int: ...

    @property
    def weight_bytes(self) -> int: ...

    @property
    def layers(self) -> tuple[int, int]:
        """First and last layer that are loaded."""

    @property
    def n_hidden_in(self) -> int:
        """
        float32 of a token that a part takes from the layers before it; 0: it begins with the first
        """

    @property
    def n_hidden_out(self) -> int:
        """
        float32 of a token that it leaves for those behind it; 0: it ends with the last
        """

    @property
    def causal(self) -> bool: ...

    @property
    def has_encoder(self) -> bool: ...

    @property
    def has_output_head(self) -> bool:
        """gives logits"""

    @property
    def pooling(self) -> str: ...

    def __repr__(self) -> str: ...

class Adapter:
    """A LoRA adapter of one model. Context.attach_adapter() switches it on."""

    @staticmethod
    def load(model: Model, path: str | bytes | os.PathLike[str]) -> Adapter:
        """Raises Error: not_adapter, arch_mismatch, bad_adapter_tensor, …"""

    @property
    def name(self) -> str: ...

    @property
    def alpha(self) -> float: ...

    @property
    def n_pairs(self) -> int:
        """weights that it changes"""

    @property
    def nbytes(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

class _Observer:
    """What Context.attach() takes."""

class _Rows:
    """Records that a numpy array reads and keeps."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

class _Recorder(_Observer):
    def __init__(self, level: str, ops: Sequence[str], layers: Sequence[int], parts: Sequence[str], phases: Sequence[str], tensors: Sequence[str], every_nth_run: int, values: Sequence[str], keep: bool, calls: bool, accesses: bool, runs_per_call: int, detach_on_error: bool) -> None: ...

    def _events(self) -> bytes: ...

    def _accesses(self) -> bytes: ...

    def _ranges(self) -> bytes: ...

    def _runs(self) -> bytes: ...

    def _tensors(self) -> bytes: ...

    def _steps(self) -> bytes: ...

    def _samples(self) -> bytes: ...

    def _marks(self) -> list[tuple[int, str]]: ...

    def _names(self) -> list[str]: ...

    def _forget(self) -> None: ...

    def _flush(self) -> None: ...

class TraceFile(_Observer):
    """
    An observer that writes what it sees into a .tntrace file. A context manager.
    """

    def __init__(self, path: str | os.PathLike[str], *, level: str = 'steps', overwrite: bool = False, token_ids: bool = False, value_hash: bool = False, router: bool = False, ops: list[str] = [], layers: list[int] = [], max_bytes: int = 0) -> None:
        """
        Raises Error (io_error) where the file cannot be made, or is there and `overwrite` is not set.
        """

    def close(self) -> None:
        """Writes what is left. Raises the first error since the beginning."""

    @property
    def events(self) -> int:
        """Seen so far."""

    @property
    def dropped(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def __enter__(self) -> TraceFile: ...

    def __exit__(self, *args: object) -> None: ...

class _TraceReader:
    @staticmethod
    def open(path: object) -> _TraceReader: ...

    @staticmethod
    def from_bytes(data: bytes, name: str) -> _TraceReader: ...

    def replay(self, observer: object) -> None: ...

    def session(self) -> dict[str, str]: ...

    def damage(self) -> int: ...

    def is_closed(self) -> bool: ...

    def content_hash(self) -> str: ...

    def name(self) -> str: ...

    def file_bytes(self) -> int: ...

class CoverageCheck(_Observer):
    """
    Proves by separate arithmetic that every event reports every byte it touches.
    """

    def __init__(self) -> None: ...

    @property
    def steps(self) -> int: ...

    @property
    def differences(self) -> list[str]:
        """Differences found so far, a line each."""

class Roofline(_Observer):
    """Where the time goes, by role of weights, beside the machine's peaks."""

    def __init__(self, *, bytes: float = 0.0, int8_macs: float = 0.0, f32_macs: float = 0.0) -> None: ...

    def report(self) -> str:
        """A table as text: bytes, time and share of the peaks by role."""

OPS: tuple[str, ...]

PARTS: tuple[str, ...]

PHASES: tuple[str, ...]

TENSOR_CLASSES: tuple[str, ...]

EVENT_STATUS: tuple[str, ...]

_RECORD_BYTES: tuple[int, ...]

class Batch:
    """
    What one decode computes: tokens, or rows of embeddings, with positions, sequences and output flags. Without flags the last token is the one output.
    """

    def __init__(self) -> None: ...

    def add(self, token: int, *, pos: int | None = None, seq: int | Iterable[int] = 0, output: bool = False) -> None:
        """
        Without a position: after the last one of the sequence. Several sequences share one row of the cache.
        """

    def add_sequence(self, tokens: Iterable[int], seq: int = 0, *, output_last: bool = True) -> None:
        """Tokens that continue the sequence."""

    def add_embedding(self, row: numpy.ndarray, *, pos: int | None = None, seq: int | Iterable[int] = 0, output: bool = False) -> None:
        """A row of n_embd float32 in place of a token; copied."""

    def clear(self) -> None:
        """Empties it; nothing of a context changes."""

    def __len__(self) -> int: ...

class Context:
    """
    Runs a model: token ids in, logits and vectors out, with the cache in between. One thread at a time (a second one gets Error, busy). The keyword arguments are the fields of ContextOptions; 0 leaves a number to the model or the machine.
    """

    def __init__(self, model: Model, *, cancel: Callable[[], bool] | None = None, n_ctx: int = 512, n_seq_max: int = 1, n_batch: int = 0, n_ubatch: int = 512, n_outputs: int = 0, n_threads: int = 0, n_threads_batch: int = 0, isa: str = 'automatic', fuse: bool = True, type_k: str = 'f16', type_v: str = 'f16', kv_rotation: str = 'automatic', rope_freq_base: float | None = None, rope_freq_scale: float | None = None, rope_scaling: str = 'from_model', yarn_ext_factor: float | None = None, yarn_attn_factor: float | None = None, yarn_beta_fast: float | None = None, yarn_beta_slow: float | None = None, yarn_orig_ctx: int | None = None, embeddings: bool = False, pooling: str = 'from_model', attention: str = 'from_model', swa_full: bool = False, logits_all: bool = False, allow_position_gaps: bool = False, check_finite: bool = False, memory_limit: int = 0, keep: list[str] = [], log: Callable[[str, str], object] | None = None) -> None: ...

    def decode(self, tokens: Iterable[int] | Batch, hidden: View | numpy.ndarray | None = None) -> None:
        """
        Appends token ids to sequence 0, or computes a Batch: all of it or nothing. The last token's logits are the output (all of them with logits_all). Ctrl-C, or `cancel`, stops it; the context is as before then. `hidden`: in a part that begins behind the first layer, what hidden() of the part before has given for the same tokens. Raises Error: no_room, cancelled, invalid_batch, compute_failed, io_error, busy.
        """

    def compute(self, tokens: Iterable[int] | Batch, hidden: View | numpy.ndarray | None = None) -> None:
        """
        decode() as the first half of a transaction over several contexts: outputs can be read, and the context is busy for everything else, until commit() keeps the tokens or abandon() leaves it as before.
        """

    def commit(self) -> None:
        """
        Keeps what compute() has computed. Raises Error: bad_parameter where there is nothing.
        """

    def abandon(self) -> None:
        """
        Leaves the context as before compute(). Nothing happens where nothing is computed.
        """

    def hidden(self) -> View:
        """
        What the last decode has left for the layers behind a part of a model: float32 {n_tokens, n_hidden_out}. A view. Raises Error: no_output.
        """

    def encode(self, tokens: Iterable[int] | Batch) -> None:
        """
        Runs what attends to a whole text at once: bidirectional models, and the encoder before a decoder.
        """

    def logits(self, index: int = -1) -> View:
        """
        A row of n_vocab float32, of the last decode; negative from the end. A view: it raises after the next decode. Raises Error: no_output, index_out_of_range.
        """

    def embedding(self, index: int = -1) -> View:
        """A row of n_embd float32, after the final norm. A view."""

    def pooled(self, seq: int = 0) -> View:
        """
        The vector of a sequence: n_embd float32, or a reranker's scores. A view.
        """

    def result(self, name: str) -> View:
        """
        A value by the name that `keep` asked for, flat: a row for each token. A view.
        """

    def output_index(self, token_index: int) -> int:
        """
        Which output the batch's token i has become. Raises Error: no_output where it was not flagged, index_out_of_range.
        """

    @property
    def n_outputs(self) -> int: ...

    def seq_rm(self, seq: int, begin: int = 0, end: int | None = None) -> None:
        """
        Removes the positions begin ≤ p < end of a sequence. Raises Error (bad_sequence, unsupported_operation); nothing has changed then.
        """

    def seq_cp(self, source: int, target: int, begin: int = 0, end: int | None = None) -> None:
        """
        Tokens of one sequence belong to another, too: pages are shared, nothing is copied.
        """

    def seq_keep(self, seq: int) -> None:
        """Removes all other sequences."""

    def seq_add(self, seq: int, begin: int, end: int | None, delta: int) -> None:
        """Moves tokens by `delta` positions."""

    def seq_div(self, seq: int, begin: int, end: int | None, divisor: int) -> None:
        """Divides positions, rounded down."""

    def seq_shift(self, seq: int, keep: int, n: int) -> None:
        """Forgets n positions from `keep` on; what follows takes their place."""

    def seq_pos_min(self, seq: int = 0) -> int | None:
        """None where the sequence is empty."""

    def seq_pos_max(self, seq: int = 0) -> int | None:
        """None where the sequence is empty."""

    def count(self, seq: int = 0) -> int:
        """Tokens of a sequence."""

    def room(self, seq: int = 0) -> int:
        """Tokens that decode() will take of this sequence now."""

    def clear(self, *, zero_data: bool = False) -> None:
        """Empties all sequences and discards the outputs."""

    def save_state(self, path: str | os.PathLike[str] | None = None, *, seq: int | None = None, tokens: Iterable[int] | None = None) -> bytes | None:
        """
        What the context remembers, or one sequence of it, as bytes or into a file. `tokens` are stored with it.
        """

    def load_state(self, state: bytes | str | os.PathLike[str], *, seq: int | None = None) -> list[int]:
        """
        Goes on from a state, with the same bits; gives the tokens that were stored with it. Raises Error: not_state_file, damaged, model_mismatch, param_mismatch, no_room; nothing has changed then.
        """

    def attach(self, observer: _Observer) -> Attachment:
        """
        The observer sees every kernel call until it is detached: by the attachment (also `with context.attach(observer):`), or with the context's end.
        """

    def mark(self, text: str) -> None:
        """An annotation into the trace of every attached observer."""

    def attach_adapter(self, adapter: Adapter, scale: float = 1.0, *, seq: int | None = None) -> None:
        """
        From the next decode on, for all sequences or one. Raises Error: model_mismatch, busy, …
        """

    def detach_adapter(self, adapter: Adapter, *, seq: int | None = None) -> None:
        """
        From the next decode on, for all sequences or one; what is cached stays as it was computed.
        """

    @property
    def model(self) -> Model: ...

    @property
    def n_ctx(self) -> int: ...

    @property
    def n_batch(self) -> int: ...

    @property
    def n_seq_max(self) -> int: ...

    @property
    def n_threads(self) -> int: ...

    @property
    def isa(self) -> str:
        """Name of the kernel table in use."""

    @property
    def used(self) -> int:
        """Tokens in the cache."""

    @property
    def can_shift(self) -> bool: ...

    def memory(self) -> dict[str, int]:
        """Bytes by class, counted: equal to plan()."""

    def timings(self) -> dict[str, float]:
        """Seconds and tokens since the context was made."""

    def set_threads(self, n_threads: int, n_threads_batch: int = 0) -> None:
        """
        Threads of the next decodes, at most as many as the context was made for (0: as n_threads). Raises Error: bad_parameter.
        """

    def close(self) -> None:
        """Frees cache and scratch; views end."""

    @property
    def closed(self) -> bool: ...

    def __enter__(self) -> Context: ...

    def __exit__(self, *args: object) -> None: ...

class Attachment:
    """Keeps an observer attached; a context manager that detaches it."""

    def detach(self) -> None:
        """The observer sees nothing any more; twice is as once."""

    @property
    def attached(self) -> bool: ...

    def __enter__(self) -> Attachment: ...

    def __exit__(self, *args: object) -> None: ...

def plan(model: Model | str | os.PathLike[str], *, layers: tuple[int, int] | None = None, **options: Any) -> dict[str, int]:
    """
    Bytes that loading a file, or some layers of it, and a context of these options take, by class, without touching tensor data.
    """

class Grammar:
    """Texts that are allowed: a grammar in GBNF, or what a JSON schema says."""

    @staticmethod
    def parse(gbnf: str, vocab: Vocab | None = None) -> Grammar:
        """
        A text in GBNF, whose rule `root` is the start; the vocabulary is needed for token items. Raises Error (bad_grammar) with line and column.
        """

    @staticmethod
    def schema(schema: str | dict[str, Any] | bool, *, lenient: bool = False, space: str = 'flexible') -> Grammar:
        """
        Of a JSON schema: enforced, or refused by Error (bad_schema); with `lenient` what cannot be enforced is left out. `space`: 'flexible', 'compact' or 'spaced'.
        """

    def matches(self, text: str | bytes) -> bool:
        """Whether the whole text is allowed."""

    @property
    def text(self) -> str: ...

    @property
    def warnings(self) -> list[str]: ...

    @property
    def n_rules(self) -> int: ...

class Sampler:
    """
    From a row of logits to a token: a chain of links, with the state that they have. The keyword arguments are the fields of SamplerOptions: temp (0: the best), top_k, top_p, min_p, seed, penalty_repeat, …
    """

    def __init__(self, vocab: Vocab, grammar: Grammar | str | None = None, **options: Any) -> None:
        """
        `grammar`: only what it allows is drawn. Raises Error (bad_parameter, bad_grammar).
        """

    def sample(self, logits: Context | View | numpy.ndarray, index: int = -1) -> int:
        """
        Draws a token from an output row of a context, whose observers see it, or from a row of float32, and accepts it. Raises Error: no_output, non_finite_logits, no_candidates.
        """

    def accept(self, token: int) -> None:
        """A token of the prompt, or one that was chosen elsewhere."""

    def reset(self) -> None:
        """Windows empty, generators as after construction."""

    def copy(self) -> Sampler:
        """With its state."""

    def __copy__(self) -> Sampler: ...

    @property
    def seed(self) -> int:
        """In use: as given, or from the hardware."""

    def describe(self) -> str:
        """The chain as text, with its seed."""

    def names(self) -> list[str]:
        """The links of its chain, in their order."""

    def probs(self, k: int) -> list[tuple[int, float]]:
        """
        Token ids and probabilities after the chain, of the last sample, descending.
        """

class Generation:
    """
    One text in the making: a prompt, and what came of it. It holds neither context nor sampler; copies go on independently.
    """

    def __init__(self, vocab: Vocab, prompt: Iterable[int], *, max_tokens: int = -1, stop: str | Iterable[str] | None = None, seq: int = 0, speculate: bool = False) -> None:
        """
        `speculate`: tokens that repeat earlier text are drafted and verified together; the text stays the same.
        """

    def next(self, context: Context, sampler: Sampler) -> str | None:
        """
        Decodes a piece of the prompt, or draws a token; gives the text that can be shown now (maybe none yet), None at the end. Raises Error.
        """

    def end(self) -> str:
        """Ends it from outside; gives the text that was held back."""

    def prompt(self, tokens: Iterable[int]) -> None:
        """Goes on with more tokens: the next turn."""

    def copy(self) -> Generation:
        """With its state: both go on by themselves."""

    @property
    def token_ids(self) -> list[int]:
        """Generated, without one that ended it."""

    @property
    def text(self) -> str:
        """Given so far."""

    @property
    def pending(self) -> list[int]:
        """What the context has not decoded yet."""

    @property
    def stop(self) -> str | None:
        """
        'eog', 'limit', 'string', 'interrupt', 'context'; None while it goes on.
        """

class _AnswerParser:
    def push(self, text: str) -> dict[str, Any]: ...

    def finish(self) -> dict[str, Any]: ...

    def whole(self) -> dict[str, Any]: ...

class ChatPrompt:
    """The prompt of one turn, and how its answer is read."""

    def __init__(self, model: Model, messages: Sequence[Mapping[str, Any]] | str, *, tools: Sequence[Mapping[str, Any]] | str | None = None, tool_choice: str | None = None, parallel_calls: bool = True, schema: dict[str, Any] | str | None = None, variables: dict[str, Any] | None = None, thinking: bool = True, chat_template: str | None = None) -> None:
        """
        `tool_choice`: 'auto', 'none', 'required', or the name of a function. Text of messages never becomes a control token. Raises Error: bad_parameter, template_error, bad_schema, …
        """

    @property
    def text(self) -> str: ...

    @property
    def token_ids(self) -> list[int]: ...

    def _parser(self) -> _AnswerParser: ...

class Chat:
    """
    A conversation as a value: its messages, and which tokens of it a context holds. Every turn decodes only what is new.
    """

    def __init__(self, model: Model, *, system: str | None = None, tools: Sequence[Mapping[str, Any]] | str | None = None, max_tokens: int = -1, stop: list[str] = [], variables: dict[str, Any] | None = None, thinking: bool = True, chat_template: str | None = None) -> None: ...

    def add(self, role: str | dict[str, Any], content: str | None = None) -> None:
        """A message: add('user', 'Hello'), or a dict as templates take them."""

    def add_tool_result(self, call: dict[str, Any], result: str) -> None:
        """
        What a call of the last answer ('id', 'name', 'arguments') has given, as a message. Raises KeyError.
        """

    def next(self, context: Context, sampler: Sampler) -> dict[str, Any] | None:
        """
        The next piece of the answer: 'content', 'reasoning', 'tool_calls', any of them maybe empty; None at the end. Raises Error; nothing is lost then.
        """

    def end(self) -> dict[str, Any]:
        """Ends the answer from outside."""

    def take_back(self) -> bool:
        """
        Removes the last answer and what follows it; False where there is none.
        """

    def reset(self) -> None:
        """Forgets all messages but the one that `system` has made."""

    @property
    def messages(self) -> list[dict[str, Any]]: ...

    @messages.setter
    def messages(self, messages: Any, /) -> None: ...

    def render(self, *, answer_follows: bool = True) -> str:
        """The prompt of the next answer."""

    @property
    def answer(self) -> dict[str, Any]: ...

    @property
    def answer_ids(self) -> list[int]: ...

    @property
    def stop(self) -> str | None: ...

    @property
    def is_answering(self) -> bool: ...

    @property
    def family(self) -> str: ...

class Request:
    """A request to an engine: fetch what it gives by next() or result()."""

    def next(self, timeout: float | None = None) -> dict[str, Any] | None:
        """
        What has come since the last call: 'text', 'tokens' [(id, log_prob, top)], 'stop', …; None at the end. Raises Error of the request, TimeoutError.
        """

    def result(self, timeout: float | None = None) -> dict[str, Any] | None:
        """
        Waits for the end; what was not fetched yet, as one. None: all of it was.
        """

    def fileno(self) -> int:
        """Readable when something has come: for event loops."""

    def _poll(self) -> dict[str, Any] | bool:
        """A dict, True at the end, False otherwise."""

    def cancel(self) -> None:
        """Ends it soon; its last event says 'interrupt'."""

    @property
    def id(self) -> int: ...

class Engine:
    """
    Answers many requests at once in one batch, on a thread of its own. What a request gives never depends on what else runs. Any thread may use it. Keyword arguments besides those named are those of Context (n_seq_max: requests that run at once).
    """

    def __init__(self, model: Model, *, max_queue: int = 100000, max_batch_tokens: int = 0, n_kept: int = 8, share_prefixes: bool = True, adapters: dict[str, Adapter] = {}, store: str | os.PathLike[str] | None = None, store_bytes: int = 0, draft: Model | None = None, observers: Sequence[_Observer] = (), **options: Any) -> None: ...

    def submit(self, prompt: Iterable[int] | ChatPrompt, *, kind: str = 'generate', sampler: dict[str, Any] = {}, grammar: Grammar | str | None = None, max_tokens: int = -1, stop: list[str] = [], n_top: int = -1, score_prompt: bool = False, share_prefix: bool = True, time_limit: float | None = None, speculate: str = 'none', adapters: dict[str, float] = {}) -> Request:
        """
        Takes a request of a kind: 'generate', 'score', 'embed', 'rank'. `sampler`: keywords of Sampler. `n_top`: log-probabilities, -1 none. `speculate`: 'none', 'ngram', 'draft'. Raises Error: limit_exceeded, no_room, bad_parameter, …
        """

    def drain(self, timeout: float = 100000000.0) -> bool:
        """Refuses requests and waits for those that run; False: some still do."""

    def stats(self) -> dict[str, float]:
        """
        Requests that wait and run, requests and tokens since the engine was made, seconds in rounds.
        """

    @property
    def max_tokens(self) -> int:
        """Most tokens of one request, prompt and answer together."""

    @property
    def model(self) -> Model: ...

    @property
    def fingerprint(self) -> str:
        """Engines with the same one give the same answers to the same requests."""

    def memory(self) -> dict[str, int]:
        """Bytes by class."""

    def close(self) -> None:
        """Cancels what runs and ends the thread."""

    @property
    def closed(self) -> bool: ...

    def __enter__(self) -> Engine: ...

    def __exit__(self, *args: object) -> None: ...

class Receipt:
    """
    What a generation was made of, so that it can be made again to the bit.
    """

    @staticmethod
    def parse(json: str) -> Receipt:
        """Raises Error (damaged)."""

    def json(self) -> str:
        """One line, which parse() takes."""

    def add_hashes(self, model: Model) -> None:
        """Of weights and of each node's values: what locates a difference."""

    def replay(self, context: Context) -> dict[str, Any]:
        """
        Makes it again in an empty context and compares: 'equal', 'text', 'n_rows', 'node'.
        """

    @property
    def prompt(self) -> list[int]: ...

    @property
    def token_ids(self) -> list[int]:
        """As drawn, one that ended it included."""

    @property
    def logits_sha256(self) -> str:
        """SHA-256 of the rows that tokens were drawn from, as float32."""

    @property
    def sampler(self) -> str: ...

    @property
    def isa(self) -> str: ...

class ReceiptRecorder(_Observer):
    """
    An observer that notes each token drawn by Sampler.sample(context) with its row.
    """

    def __init__(self, context: Context) -> None: ...

    def receipt(self, prompt: Iterable[int], sampler: Sampler) -> Receipt:
        """
        What was drawn since it was attached, for a prompt and the sampler that drew.
        """
