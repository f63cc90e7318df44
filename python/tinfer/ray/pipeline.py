# SPDX-License-Identifier: MIT
# mypy: disable-error-code="import-not-found,untyped-decorator"
"""One model over several processes: every actor has some of its layers, and hidden states go from one to the next."""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, NoReturn, Sequence, cast

import numpy as np
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from .._error import Error
from .._native import Grammar, Model, Sampler, plan
from ..llm import Output, Prompt, SamplingParams, _is_prompt, _params_list
from .stage import Failure, Stage

_LOGITS_ROWS = 32   # of one step: rows of n_vocab floats cost memory in the last stage
_POLL = 0.1         # seconds between two looks at a request to cancel


def balanced_parts(model: Model, n: int) -> list[tuple[int, int]]:
    """(first, last) layer of n parts whose largest has as few bytes of weights as can be; the head counts as what the
    last part reads, too. Raises ValueError unless n is from 1 to the number of layers."""
    if not 1 <= n <= model.n_layer:
        raise ValueError(f"stages is {n}: it has to be from 1 to {model.n_layer}, the number of layers")
    cost = [0] * model.n_layer
    outside = {}
    for tensor in model.tensors:
        if 0 <= tensor.layer < model.n_layer:
            cost[tensor.layer] += tensor.nbytes
        else:
            outside[tensor.name] = tensor.nbytes
    if not any(cost):   # blocks that run several times have fewer numbers than layers
        cost = [1] * model.n_layer
    cost[-1] += outside.get("output.weight", outside.get("token_embd.weight", 0))
    low, high = max(cost), sum(cost)
    while low < high:   # the least bound within which n parts suffice
        bound = (low + high) // 2
        low, high = (low, bound) if len(_filled(cost, bound)) <= n else (bound + 1, high)
    lasts = _filled(cost, low)
    while len(lasts) < n:   # fewer would do: the longest are cut
        begins = [0] + [last + 1 for last in lasts[:-1]]
        i = max(range(len(lasts)), key=lambda k: lasts[k] - begins[k])
        lasts.insert(i, (begins[i] + lasts[i]) // 2)
    return list(zip([0] + [last + 1 for last in lasts[:-1]], lasts))


def given_parts(model: Model, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same, with a last layer of -1 by its number. Raises ValueError unless they are all layers, in order."""
    ends = [(first, model.n_layer - 1 if last == -1 else last) for first, last in parts]
    begins = [0] + [last + 1 for _, last in ends]
    if [first for first, _ in ends] != begins[:-1] or begins[-1] != model.n_layer:
        raise ValueError(f"stages is {list(parts)}: together they have to be the layers 0 to {model.n_layer - 1}")
    return ends


def _filled(cost: Sequence[int], bound: int) -> list[int]:
    """The last layers of parts of at most `bound` each."""
    lasts, used = [], 0
    for layer, one in enumerate(cost):
        if used and used + one > bound:
            lasts.append(layer - 1)
            used = 0
        used += one
    return [*lasts, len(cost) - 1]


@dataclass
class _Answer:
    """A prompt and what has come of it. Tokens before n_kept are in the memory of every stage."""

    output: Output
    tokens: list[int]
    limit: int                        # tokens that may be drawn
    sampler: Sampler | None = None    # None: logits are wanted
    stops: list[str] = field(default_factory=list)
    raw: bytes = b""
    rows: list[Any] = field(default_factory=list)
    n_kept: int = 0
    lane: int = -1
    seq: int = -1
    room: int = 0                     # tokens of its lane that are its own
    ended: bool = False

    def start_anew(self) -> None:
        """What the stages had of it is gone."""
        self.n_kept, self.lane, self.seq, self.rows = 0, -1, -1, []


@dataclass
class _Lane:
    """Sequences that are computed together, in a context of their own in every stage."""

    n_seq: int
    n_ctx: int
    answers: list[_Answer] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)   # sequences that have ended, and whose memory is freed next
    step: int = 0                                      # of the last batch that was sent
    done: int = 0                                      # of the last batch that every stage computed

    def free_seq(self) -> int | None:
        taken = {answer.seq for answer in self.answers}
        return next((seq for seq in range(self.n_seq) if seq not in taken), None)


class Pipeline:
    """A model whose layers are spread over actors of Ray, for answers and for logits::

        pipeline = tinfer.ray.Pipeline("model.gguf", stages=2)
        outputs = pipeline.generate(["Once upon a time", "The end"], max_tokens=20, seed=1)

    The bits are those of one process, however many stages there are and whatever is computed at once. Hidden states go
    through Ray's object store from stage to stage, and each stage keeps the memory of its layers. Sequences are spread
    over `lanes`; while one lane is in one stage, others are in the others. A batch is a transaction over all stages:
    where one cannot compute it, none keeps it. Where an actor is lost, it is made anew and what runs is computed
    again, with the same bits, at most `max_restarts` times in a call.

    stages: how many, of about equal size, or the layers of each: [(0, 11), (12, -1)]. n_parallel: sequences that run at
    once. n_ctx: tokens of all of them. lanes: 0 for two per stage. in_flight: lanes that are computed at once; 0: all.
    n_threads: of each stage. actor_options: of Ray (num_cpus is n_threads unless they say otherwise). options: further
    keywords of Context. The file has this path on every node. Raises Error (io_error, unsupported_operation, …).
    """

    def __init__(self, path: str | os.PathLike[str], stages: int | Sequence[tuple[int, int]] = 2, *, lanes: int = 0,
                 in_flight: int = 0, n_parallel: int = 8, n_ctx: int = 4096, n_threads: int = 1, max_restarts: int = 3,
                 actor_options: dict[str, Any] | None = None, **options: Any) -> None:
        model = Model.load(path)
        self.vocab = model.vocab
        self.parts = balanced_parts(model, stages) if isinstance(stages, int) else given_parts(model, stages)
        n_lanes = lanes or min(n_parallel, 2 * len(self.parts))
        if not 1 <= n_lanes <= n_parallel:
            raise ValueError(f"lanes is {lanes}: it has to be from 1 to n_parallel = {n_parallel}")
        n_seq = -(-n_parallel // n_lanes)
        context = {"n_ctx": max(64, -(-n_ctx // n_lanes) // 64 * 64), "n_seq_max": n_seq, "n_threads": n_threads,
                   "n_outputs": max(n_seq, _LOGITS_ROWS), **options}
        self.planned = [plan(path, layers=part, **context) for part in self.parts]
        self._arguments = (os.fspath(path), n_lanes, context)
        self._actor_options = {"num_cpus": n_threads, "scheduling_strategy": "SPREAD", **(actor_options or {})}
        self._lanes = [_Lane(n_seq, context["n_ctx"]) for _ in range(n_lanes)]
        self.set_in_flight(in_flight)
        self._max_restarts = max_restarts
        self._n_restarts = 0
        self._epoch = 0
        self._cancelled = threading.Event()
        self._busy = threading.Lock()
        self._stages = [self._make(i) for i in range(len(self.parts))]
        try:
            ray.get([stage.ping.remote() for stage in self._stages])
        except RayError as error:
            self.close()
            raise Error("not_available", f"a stage of the pipeline did not start: {error}") from None

    # ---- What one asks of it

    def generate(self, prompts: Prompt | Sequence[Prompt],
                 params: SamplingParams | Sequence[SamplingParams] | None = None, **keywords: Any) -> Any:
        """LLM.generate: a list of Output in the order given, or one Output for one prompt. Raises Error: no_room where
        a prompt is longer than its lane, cancelled, and what a stage says; all stages are as before then."""
        if _is_prompt(prompts):
            return self.generate(cast(Any, [prompts]), params, **keywords)[0]
        listed = cast("list[Prompt]", list(prompts))
        answers = [self._answer(prompt, each) for prompt, each in
                   zip(listed, _params_list(params, keywords, len(listed)))]
        self._run(answers)
        return [answer.output for answer in answers]

    def logits(self, prompts: Sequence[int] | Sequence[Sequence[int]]) -> Any:
        """Of each token of a prompt of ids: float32 {n_tokens, n_vocab}; a list of them for a list of prompts."""
        if _is_prompt(prompts):
            return self.logits(cast(Any, [prompts]))[0]
        answers = [_Answer(Output(None, list(tokens)), list(tokens), 0) for tokens in cast(Any, prompts)]
        self._run(answers)
        return [np.concatenate(answer.rows) for answer in answers]

    def cancel(self) -> None:
        """From another thread: ends what generate() or logits() computes, with Error (cancelled)."""
        self._cancelled.set()

    def set_in_flight(self, in_flight: int) -> None:
        """How many lanes are computed at once from now on; 0: all."""
        self._in_flight = in_flight or len(self._lanes)

    def memory(self) -> list[dict[str, int]]:
        """Bytes by class that each stage has, counted. `planned` is what each one was to have, with one context."""
        return cast("list[dict[str, int]]", ray.get([stage.memory.remote() for stage in self._stages]))

    def used(self) -> list[list[int]]:
        """Tokens in the memory of each stage, by lane."""
        return cast("list[list[int]]", ray.get([stage.used.remote() for stage in self._stages]))

    @property
    def actors(self) -> list[Any]:
        """Of the stages, in order."""
        return list(self._stages)

    def close(self) -> None:
        """Ends the actors."""
        for stage in self._stages:
            ray.kill(stage)
        self._stages = []

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    # ---- Answers

    def _answer(self, prompt: Prompt, params: SamplingParams) -> _Answer:
        if params.logprobs is not None:
            raise ValueError("logprobs: a pipeline gives none; logits() has what they are made of")
        is_text = isinstance(prompt, (str, bytes))
        tokens = self.vocab.encode(cast(Any, prompt)) if is_text else [int(token) for token in cast(Any, prompt)]
        grammar = Grammar.schema(params.schema) if params.schema is not None else params.grammar
        sampler = Sampler(self.vocab, grammar, **params._sampler())
        for token in tokens:
            sampler.accept(token)
        limit = params.max_tokens if params.max_tokens is not None else 1 << 30
        answer = _Answer(Output(prompt if isinstance(prompt, str) else None, list(tokens)), tokens, int(limit), sampler,
                         params._stops())
        answer.output.seed = sampler.seed
        if limit == 0:
            self._end(answer, "length")
        return answer

    def _take(self, answer: _Answer, row: Any) -> None:
        """Draws a token from a row of logits."""
        assert answer.sampler is not None
        token = answer.sampler.sample(row)
        output = answer.output
        output.token_ids.append(token)
        answer.tokens.append(token)
        if self.vocab.is_eog(token):
            self._end(answer, "stop")
            return
        answer.raw += self.vocab.piece(token)
        text = answer.raw.decode("utf-8", "replace")
        places = [(text.find(stop), stop) for stop in answer.stops if stop in text]
        if places:
            at, output.stop_reason = min(places)
            output.text = text[:at]
            self._end(answer, "stop", output.text)
        elif len(output.token_ids) >= answer.limit or len(answer.tokens) > answer.room:
            self._end(answer, "length")

    def _end(self, answer: _Answer, reason: str, text: str | None = None) -> None:
        answer.output.text = text if text is not None else answer.raw.decode("utf-8", "replace")
        answer.output.finish_reason = reason
        answer.ended = True

    # ---- Steps

    def _run(self, answers: list[_Answer]) -> None:
        if not self._busy.acquire(blocking=False):
            raise Error("busy", "the pipeline is computing in another thread: one thread at a time")
        try:
            self._cancelled.clear()
            self._n_restarts = 0
            for answer in answers:
                if not answer.tokens:
                    raise Error("invalid_batch", "a prompt has no tokens")
                if len(answer.tokens) > self._lanes[0].n_ctx:
                    raise Error("no_room", f"a prompt has {len(answer.tokens)} tokens, a lane of the pipeline room "
                                           f"for {self._lanes[0].n_ctx}")
            self._go(answers)
        finally:
            self._busy.release()

    def _go(self, answers: list[_Answer]) -> None:
        waiting = deque(answer for answer in answers if not answer.ended)
        flying: dict[Any, tuple[_Lane, list[tuple[_Answer, int]]]] = {}
        try:
            while waiting or flying or any(lane.answers for lane in self._lanes):
                try:
                    self._admit(waiting)
                    self._send(flying)
                    ready, _ = ray.wait(list(flying), timeout=_POLL) if flying else ([], [])
                    if self._cancelled.is_set():
                        raise Error("cancelled", "the pipeline was told to cancel; its stages are as before")
                    for ref in ready:
                        result = ray.get(ref)
                        lane, sent = flying.pop(ref)
                        self._arrived(lane, sent, result)
                except RayError as error:
                    flying.clear()
                    self._recover(error, waiting)
            self._settle()
        except BaseException:
            self._forget(list(flying))
            raise

    def _admit(self, waiting: deque[_Answer]) -> None:
        """Gives the next answers to the lanes that have the fewest, as long as there is room for all of each."""
        while waiting:
            answer = waiting[0]
            needs = min(len(answer.tokens) + answer.limit - len(answer.output.token_ids), self._lanes[0].n_ctx)
            lanes = [lane for lane in self._lanes if lane.free_seq() is not None
                     and sum(other.room for other in lane.answers) + needs <= lane.n_ctx]
            if not lanes:
                return
            lane = min(lanes, key=lambda one: len(one.answers))
            answer.seq, answer.lane, answer.room = cast(int, lane.free_seq()), self._lanes.index(lane), needs
            lane.answers.append(answer)
            waiting.popleft()

    def _send(self, flying: dict[Any, tuple[_Lane, list[tuple[_Answer, int]]]]) -> None:
        """Starts a step of lanes that have none, from the first stage to the last."""
        moving = [lane for lane, _ in flying.values()]
        for number, lane in enumerate(self._lanes):
            if lane in moving or not lane.answers or len(flying) >= self._in_flight:
                continue
            rows, sent = [], []
            budget = _LOGITS_ROWS
            for answer in lane.answers:
                tokens = answer.tokens[answer.n_kept:]
                if answer.sampler is None:
                    tokens = tokens[:budget]
                    budget -= len(tokens)
                for i, token in enumerate(tokens):
                    is_output = answer.sampler is None or i + 1 == len(tokens)
                    rows.append((token, answer.n_kept + i, answer.seq, is_output))
                if tokens:
                    sent.append((answer, len(tokens)))
            lane.step += 1
            batch = np.array(rows, np.int32)
            result: Any = None
            for stage in self._stages:
                result = stage.compute.remote(self._epoch, number, lane.step, lane.done, lane.dropped, batch, result)
            flying[result] = (lane, sent)

    def _arrived(self, lane: _Lane, sent: list[tuple[_Answer, int]], result: Any) -> None:
        if isinstance(result, Failure):
            result.throw()
        lane.done, lane.dropped = lane.step, []
        first = 0
        for answer, n in sent:
            answer.n_kept += n
            if answer.sampler is None:
                answer.rows.append(result[first:first + n])
                answer.ended = answer.n_kept == len(answer.tokens)
                first += n
            else:
                self._take(answer, result[first])
                first += 1
            if answer.ended:
                lane.answers.remove(answer)
                lane.dropped.append(answer.seq)

    # ---- Ends

    def _settle(self) -> None:
        """Every stage keeps the batches that all have computed, no other ones, and frees what has ended."""
        waits = []
        for number, lane in enumerate(self._lanes):
            waits += [stage.settle.remote(self._epoch, number, lane.done, lane.dropped) for stage in self._stages]
            lane.dropped = []
        ray.get(waits)

    def _forget(self, flying: list[Any]) -> None:
        """Leaves the stages without anything of what ran."""
        for lane in self._lanes:
            lane.dropped = sorted({*lane.dropped, *(answer.seq for answer in lane.answers)})
            lane.answers = []
        try:
            ray.get([stage.cancel.remote() for stage in self._stages])
            ray.wait(flying, num_returns=len(flying)) if flying else None
            ray.get([stage.resume.remote() for stage in self._stages])
            self._settle()
        except RayError:   # one of them is gone, and with it what it had
            self._replace()

    def _recover(self, error: RayError, waiting: deque[_Answer]) -> None:
        """Makes lost actors anew, and has everything that runs computed again; nothing that was drawn changes."""
        is_loss = isinstance(error, RayActorError) or not isinstance(error, RayTaskError) or isinstance(
            getattr(error, "cause", None), RayError)
        if not is_loss or self._n_restarts >= self._max_restarts:
            self._fail(error)
        self._n_restarts += 1
        running = [answer for lane in self._lanes for answer in lane.answers]
        self._replace()
        for answer in reversed(running):
            answer.start_anew()
            waiting.appendleft(answer)

    def _fail(self, error: RayError) -> NoReturn:
        if isinstance(error, RayTaskError) and isinstance(error.cause, Error):
            raise error.cause from None
        raise Error("compute_failed", f"a stage of the pipeline was lost, after {self._n_restarts} of "
                                      f"{self._max_restarts} restarts: {type(error).__name__}") from error

    def _replace(self) -> None:
        """New actors for those that are gone; all stages are empty then."""
        self._epoch += 1   # what was sent before and is computed late is for nobody
        for attempt in range(3):
            for i, stage in enumerate(self._stages):
                try:
                    ray.get([stage.resume.remote(), stage.clear.remote(self._epoch)], timeout=60)
                except RayError:
                    ray.kill(stage)
                    self._stages[i] = self._make(i)
            try:
                ray.get([stage.ping.remote() for stage in self._stages])
                break
            except RayActorError:
                if attempt == 2:
                    raise
        self._lanes = [_Lane(lane.n_seq, lane.n_ctx) for lane in self._lanes]

    def _make(self, i: int) -> Any:
        path, n_lanes, context = self._arguments
        in_groups = ray.remote(concurrency_groups={"control": 1})
        actor: Callable[..., Any] = in_groups(Stage).options(**self._actor_options).remote
        return actor(path, self.parts[i], i + 1 == len(self.parts), n_lanes, context, self._epoch)
