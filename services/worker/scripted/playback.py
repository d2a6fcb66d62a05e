"""One run of the scripted engine: which ids, in which steps, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from services.worker.engine import Step
from services.worker.scripted.script import Row
from toolrail.messages import FinishReason, Job, TokenLogprob, TopLogprob

_CHOSEN_LOGPROB: Final = -0.01
_OTHER_LOGPROB: Final = -5.0


@dataclass(frozen=True, slots=True)
class Output:
    """A whole choice, ids delivered by an earlier attempt included."""

    token_ids: tuple[int, ...]
    finish: FinishReason
    stop_token_id: int | None = None


def output(
    ids: Sequence[int], finish: FinishReason, job: Job, end_of_text: Sequence[int]
) -> Output:
    """What an engine would make of a model that wants to write `ids` and then `finish`.

    A "stop" is an id: the model's end of text is appended unless `ids` end the run themselves.
    """
    sampling = job.sampling
    ends = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else set(end_of_text))
    written = list(ids)
    for position, token_id in enumerate(written):
        if token_id in ends and position >= sampling.min_tokens:
            del written[position + 1 :]
            finish = "stop"
            break
    else:
        if finish == "stop" and end_of_text:
            written.append(end_of_text[0])
    if len(written) > sampling.max_tokens:
        return Output(tuple(written[: sampling.max_tokens]), "length")
    last = written[-1] if written else None
    stopped_by = last if finish == "stop" and last in sampling.stop_token_ids else None
    return Output(tuple(written), finish, None if stopped_by in end_of_text else stopped_by)


class Playback:
    """The steps of one run, one `next_step` each."""

    def __init__(
        self, job: Job, row: Row, whole: Output, *, may_die: bool, vocab_size: int
    ) -> None:
        self._top_logprobs = job.sampling.logprobs
        self._vocab_size = vocab_size
        self._whole = whole
        self._sent = min(len(job.prefix_token_ids), len(whole.token_ids))
        self._sizes = row.chunk_sizes()
        self._steps = 0
        self._die_after = row.die_after if may_die else None
        self.delay_s = row.delay_ms / 1000
        self.ttft_s = row.ttft_ms / 1000

    @property
    def dies_now(self) -> bool:
        """Whether the process must die instead of the next step."""
        return self._die_after is not None and self._sent >= self._die_after

    def next_step(self) -> Step:
        """The next ids; with the last of them the finish."""
        size = self._sizes[min(self._steps, len(self._sizes) - 1)]
        if self._die_after is not None:
            size = min(size, self._die_after - self._sent)
        ids = self._whole.token_ids[self._sent : self._sent + size]
        first = self._steps == 0
        self._sent += len(ids)
        self._steps += 1
        over = self._sent == len(self._whole.token_ids) and not self.dies_now
        return Step(
            ids,
            self._whole.finish if over else None,
            self._whole.stop_token_id if over else None,
            tuple(self._logprob(token_id) for token_id in ids)
            if self._top_logprobs is not None
            else None,
            0 if first else None,
            "the script says so" if over and self._whole.finish == "error" else None,
        )

    def _logprob(self, token_id: int) -> TokenLogprob:
        """Made up, but well formed: the chosen id is the likeliest, its neighbours follow."""
        others = [
            TopLogprob((token_id + rank) % self._vocab_size, _OTHER_LOGPROB - rank)
            for rank in range(1, self._top_logprobs or 0)
        ]
        top = (TopLogprob(token_id, _CHOSEN_LOGPROB), *others) if self._top_logprobs else ()
        return TokenLogprob(token_id, _CHOSEN_LOGPROB, top)
