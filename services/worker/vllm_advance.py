"""A scheduler of vLLM's whose runs may begin in the middle of their grammar.

A run that goes on from another worker has the ids so far at the end of its prompt. The engine
would begin its grammar anew behind them; here the grammar is led over them before the first step,
where it is made, in the engine's own pool of threads. What it refuses fails that run alone.

`StructuredOutputManager._create_grammar` is private (the same in vLLM 0.32 and 0.33). A build in
which it is called otherwise would silently start calls over, so the engine tries it at its start
and replays instead where it does not work, see `VllmEngine`.
"""

from __future__ import annotations

from typing import Any, Final

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.structured_output import StructuredOutputManager

ADVANCE: Final = "toolrail_advance"
"""Key of `SamplingParams.extra_args`: how many ids at the end of the prompt are the run's own."""


class AdvancingScheduler(Scheduler):
    """The scheduler, with grammars that can be advanced."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _advance_grammars(self.structured_output_manager)


class AdvancingAsyncScheduler(AsyncScheduler):
    """The same where scheduling is asynchronous."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _advance_grammars(self.structured_output_manager)


def _advance_grammars(manager: StructuredOutputManager) -> None:
    build = manager._create_grammar

    def create(request: Any) -> Any:
        grammar = build(request)
        count = (request.sampling_params.extra_args or {}).get(ADVANCE, 0)
        if count:
            _advance(manager, request, grammar, list(request.prompt_token_ids[-count:]))
        return grammar

    manager._create_grammar = create


def _advance(
    manager: StructuredOutputManager, request: Any, grammar: Any, token_ids: list[int]
) -> None:
    """Lead `grammar` over what of `token_ids` it holds. Raises ValueError when it cannot be."""
    structured = request.structured_output_request
    if not structured.reasoning_ended:
        bounds = manager._get_constraint_bounds(request, token_ids, spec_tokens_committed=True)
        if bounds.grammar_start > len(token_ids):
            return  # it is still reasoning: the grammar comes later
        structured.reasoning_ended = True
        token_ids = token_ids[bounds.grammar_start :]
    before = grammar.num_processed_tokens
    accepted = grammar.accept_tokens(request.request_id, token_ids)
    if not accepted or grammar.num_processed_tokens - before != len(token_ids):
        raise ValueError("the grammar rejects the ids to go on from")
    if grammar.is_terminated():
        raise ValueError("the grammar ends with the ids to go on from")
