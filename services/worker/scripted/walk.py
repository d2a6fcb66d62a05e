"""Text that a request's own grammar allows, as ids, written without a model.

A walk is free for a while, choosing readable tokens among those the grammar allows, and then takes
a short way to an end. The whole choice is worked out before its first step, so that a walk which
would not close within `max_tokens` can be cut back to where it would. The same job always gives the
same ids, hence a resumed job goes on where it was. What a walk may cost is bounded by `work`.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final

from services.worker.engine import EngineFailedError, RefusedError
from services.worker.scripted.closing import Closing
from services.worker.scripted.lexicon import Lexicon
from services.worker.scripted.playback import Output
from services.worker.scripted.trail import Trail, literals
from services.worker.scripted.wandering import Pen
from services.worker.scripted.work import Work
from toolrail.grammar import CompiledGrammar, GrammarError, Vocabulary, check_tag
from toolrail.messages import Guidance, Job
from toolrail.tokens import Tokenizer

COMPILED_KEPT: Final = 64

FREE_CHOICES: Final = (6, 36)
"""How often a walk may choose, at least and at most, before it makes for an end."""


class GrammarWalker:
    """Walks for one tokenizer. Blocks, with pauses; safe to call from several threads.

    `seed` makes the walks of one worker differ from another's; workers of one model should share
    it, so that a request moved between them continues.

    Attributes:
        lexicon: the vocabulary, once prepared.
    """

    lexicon: Lexicon

    def __init__(self, tokenizer: Tokenizer, end_of_text: int, seed: int) -> None:
        self._tokenizer = tokenizer
        self._end_of_text = end_of_text
        self._seed = seed
        self._vocabulary: Vocabulary
        self._compiled: OrderedDict[str, tuple[CompiledGrammar, list[str]]] = OrderedDict()
        self._lock = Lock()

    def prepare(self) -> None:
        """Sort the vocabulary; once, before the first walk."""
        tokens = self._tokenizer.token_bytes()
        self._vocabulary = Vocabulary(tokens, (self._end_of_text,))
        self.lexicon = Lexicon(tokens, self._tokenizer.special_tokens.values())

    def wants(self, job: Job) -> bool:
        """Whether something constrains `job`."""
        return constrained(job.guidance)

    def output(self, job: Job, pause: Callable[[], None] | None = None) -> Output | None:
        """The choice for `job`; None when nothing constrains it.

        `pause` is called every few milliseconds of work; what it raises ends the walk.

        Raises:
            RefusedError: the grammar engine refuses the constraint.
            EngineFailedError: it does not compile, or the prefix to go on from is not in it.
        """
        tag = constraint(job.guidance)
        if tag is None:
            return None
        compiled, spelled_out = self._grammar(tag)
        prefix = job.prefix_token_ids
        ids = self._walk(job, Trail(compiled, self._end_of_text, Work(pause)), spelled_out)
        if tuple(ids[: len(prefix)]) != prefix:
            trail = Trail(compiled, self._end_of_text, Work(pause))
            if not trail.push(*prefix):
                raise EngineFailedError("the grammar rejects the ids to go on from")
            ids = self._walk(job, trail, spelled_out)
        closed = ids[-1:] == [self._end_of_text]
        return Output(tuple(ids), "stop" if closed else "length")

    def _walk(self, job: Job, trail: Trail, spelled_out: list[str]) -> list[int]:
        """All ids of the choice, those already on `trail` included."""
        closing = Closing(self.lexicon, spelled_out, self._tokenizer.encode_now, self._end_of_text)
        start = len(trail.ids)
        limit = job.sampling.max_tokens
        rng = random.Random(self._seed_of(job))  # noqa: S311 (a seed says what is written)
        choices = max(rng.randint(*FREE_CHOICES), job.sampling.min_tokens)
        pen = Pen(closing, self.lexicon, rng, job.sampling)
        pen.write(trail, choices, limit)
        if trail.over:
            return trail.ids
        wandered = list(trail.ids)
        for kept in (len(wandered), (len(wandered) + start) // 2, start):
            trail.pop(max(len(trail.ids) - kept, 0))
            way = closing.way(trail, limit - kept)
            if way is not None:
                return [*trail.ids, *way]
        way = closing.shorter_way(trail, limit - start)
        if way is not None:
            return [*trail.ids, *way]
        return self._to_the_limit(trail, closing, wandered, limit)

    def _to_the_limit(
        self, trail: Trail, closing: Closing, wandered: list[int], limit: int
    ) -> list[int]:
        """What a model writes whose budget is too small: a part, or an end found by chance."""
        trail.push(*wandered[len(trail.ids) :])
        while len(trail.ids) < limit and not trail.over:
            if not closing.step(trail):
                break
        return trail.ids[:limit]

    def _grammar(self, tag: str) -> tuple[CompiledGrammar, list[str]]:
        with self._lock:
            if tag in self._compiled:
                self._compiled.move_to_end(tag)
                return self._compiled[tag]
        try:
            check_tag(tag)
        except GrammarError as error:
            raise RefusedError(f"invalid structural tag: {error}") from error
        try:
            compiled = self._vocabulary.compile(tag)
        except GrammarError as error:
            raise EngineFailedError(f"the structural tag does not compile: {error}") from error
        entry = (compiled, literals(compiled))
        with self._lock:
            self._compiled[tag] = entry
            while len(self._compiled) > COMPILED_KEPT:
                self._compiled.popitem(last=False)
        return entry

    def _seed_of(self, job: Job) -> str:
        """Equal for jobs that a model would answer equally."""
        if job.sampling.seed is None and job.sampling.temperature > 0:
            return f"{self._seed}/{job.request_id}/{job.choice}"
        prompt = hashlib.sha256(repr(job.prompt_token_ids).encode()).hexdigest()
        return f"{self._seed}/{job.sampling.seed}/{prompt}"


def constrained(guidance: Guidance) -> bool:
    """Whether `guidance` holds the output in any way."""
    held = (guidance.structural_tag, guidance.json_schema, guidance.regex)
    return any(one is not None for one in (*held, guidance.choice, guidance.grammar))


def constraint(guidance: Guidance) -> str | None:
    """The one constraint of `guidance` as a structural tag's JSON text; None when there is none."""
    if guidance.structural_tag is not None:
        return guidance.structural_tag
    tag_format: dict[str, object]
    if guidance.json_schema is not None:
        schema = json.loads(guidance.json_schema)
        tag_format = {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": 1}
    elif guidance.regex is not None:
        tag_format = {"type": "regex", "pattern": guidance.regex}
    elif guidance.choice is not None:
        values = [{"type": "const_string", "value": value} for value in guidance.choice]
        tag_format = {"type": "or", "elements": values}
    elif guidance.grammar is not None:
        tag_format = {"type": "grammar", "grammar": guidance.grammar}
    else:
        return None
    return json.dumps({"type": "structural_tag", "format": tag_format})
