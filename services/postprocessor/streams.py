"""All requests that this process owns. Pure: messages in, messages out, time as an argument.

One frame of the worker becomes at most one frame for each gateway: what its deltas come to is
gathered by destination, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from services.postprocessor.batch import Batch, Happening
from services.postprocessor.checking import Verdict
from services.postprocessor.failures import failure
from services.postprocessor.pace import Line, Paces
from services.postprocessor.remembered import Remembered, Said, Told
from services.postprocessor.stream import Outcome, RequestStream, Timeouts
from toolrail.messages import (
    OWNER_STOPPING,
    TERM_STEP,
    Cancel,
    EventDelta,
    FailureCode,
    Job,
    Position,
    Positions,
    TokenDelta,
    TokenFrame,
)

_CANCEL_AGAIN_S: Final = 1.0


class Streams:
    """The table of streams."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._open: dict[str, RequestStream] = {}
        self._in_line: Counter[str] = Counter()
        self._paces = Paces()
        self._remembered = Remembered()

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._open

    def knows(self, request_id: str, term: int) -> bool:
        """Whether the request is owned in this term or a later one, or was until lately."""
        if (stream := self._open.get(request_id)) is not None:
            return stream.term >= term
        said = self._remembered.said((request_id, None))
        return said is not None and said.term >= term

    def passed(self, request_id: str, term: int) -> bool:
        """Whether a later owner than one of `term` has the request: who hands it over is late."""
        stream = self._open.get(request_id)
        latest = self._remembered.latest_term(request_id)
        return term < max(latest, 0 if stream is None else stream.term)

    def readers(self) -> set[str]:
        """Where the events of open streams go."""
        return {stream.reply_subject for stream in self._open.values()}

    def release(self, request_id: str) -> RequestStream | None:
        """Let go of a stream that has a later owner, without a word; the stream, if it was here."""
        stream = self._open.pop(request_id, None)
        if stream is not None:
            stream.over = True
            self._leave_line(stream)
        return stream

    def add(self, stream: RequestStream) -> None:
        """Own `stream` from now on; it waits for a worker."""
        self._remembered.come_back(stream.request_id)
        self._in_line[stream.owner] += 1
        self._open[stream.request_id] = stream

    def discard(self, stream: RequestStream) -> None:
        """Own it no longer: its hand-over was not accepted in the end."""
        stream.over = True
        self._leave_line(stream)
        if self._open.get(stream.request_id) is stream:  # else it came back under a new term
            del self._open[stream.request_id]

    def in_line(self, owner: str) -> int:
        """How many streams of `owner` wait for a worker."""
        return self._in_line[owner]

    def retry_after_s(self, owner: str, now_s: float) -> int:
        """When `owner` is to come again who finds the line full, or the share of it."""
        if owner and (in_line := self._in_line[owner]):
            return self._paces.retry_after_s(owner, in_line, now_s)
        return self._paces.retry_after_s(None, self._in_line.total(), now_s)

    def _leave_line(self, stream: RequestStream) -> None:
        if stream.in_line:
            stream.in_line = False
            self._in_line[stream.owner] -= 1
            if not self._in_line[stream.owner]:
                del self._in_line[stream.owner]
                self._paces.forget(stream.owner)

    def expects(self, job: Job) -> bool:
        """Whether `job` is still to be queued."""
        stream = self._open.get(job.request_id)
        return stream is not None and stream.expects(job)

    def on_frame(self, frame: TokenFrame, now_s: float) -> Batch:
        """All new ids of one engine step. O(ids, and the text in them)."""
        batch = Batch()
        for delta in frame.deltas:
            stream = self._open.get(delta.request_id)
            if delta.outranked:
                if stream is not None and delta.outranked > stream.term:
                    self._outranked(stream, delta.outranked, batch)
                continue
            if stream is None:
                batch.dropped.append("unknown_stream")
                self._tell_again(delta, None, now_s, batch)
                continue
            if stream.in_line:
                self._paces.leave(stream.owner, now_s)
                self._leave_line(stream)
            happening = _taken(stream, delta, frame.worker, now_s)
            if (reason := happening.outcome.dropped) is None:
                self._add(happening, now_s, batch)
                continue
            batch.dropped.append(reason)
            if reason == "ended":
                self._tell_again(delta, delta.choice, now_s, batch)
            elif reason in ("old_epoch", "other_worker"):
                self._tell_worker(happening.stream, delta, frame.worker, now_s, batch)
        return batch

    def on_cancel(self, cancel: Cancel, now_s: float) -> Batch:
        """Somebody lost interest, or a later owner has the request, which is remembered.

        Others of requests unknown here change nothing.
        """
        batch = Batch()
        stream = self._open.get(cancel.request_id)
        if stream is None:
            if cancel.term:
                self._remembered.outrank(cancel.request_id, cancel.term)
        elif cancel.term > stream.term:
            self._outranked(stream, cancel.term, batch)
        elif cancel.term // TERM_STEP == stream.term // TERM_STEP:
            # Else its gateway has handed it on since: a former owner was meant.
            outcome = stream.cancel(cancel.choice, cancel.reason)
            self._add(Happening(stream, outcome), now_s, batch)
        return batch

    def on_positions(self, positions: Positions) -> Batch:
        """What a gateway is told that hears nothing of some streams. O(those)."""
        batch = Batch()
        found = (self._missing(position) for position in positions.streams)
        deltas = [delta for delta in found if delta is not None]
        if deltas:
            batch.events[positions.reply_subject] = deltas
        return batch

    def _missing(self, position: Position) -> EventDelta | None:
        request_id, next_seq, term = position.request_id, position.next_seq, position.term
        stream = self._open.get(request_id)
        if stream is not None and stream.term >= term:
            return stream.remind(next_seq, term)
        # It has ended here, or was never known to this process: its end did not arrive.
        said = self._remembered.said((request_id, None))
        if said is not None and said.term >= term and said.failed is not None:
            failed = said.failed
        else:
            failed = msgspec.structs.replace(
                failure(request_id, "lost", "the end of the answer was lost"),
                error_code=OWNER_STOPPING,
            )
        return EventDelta(request_id, next_seq, 0, failed=failed, term=term)

    def queued(self, now_s: float, silence_s: float) -> dict[str, dict[str, RequestStream]]:
        """Jobs that nobody has begun for so long, by model and receipt. O(streams): slow timer."""
        found: dict[str, dict[str, RequestStream]] = {}
        for stream in self._open.values():
            for run in stream.waiting():
                if run.receipt and now_s - run.last_s >= silence_s:
                    found.setdefault(stream.model, {})[run.receipt] = stream
        return found

    def miss(self, jobs: Mapping[str, RequestStream], now_s: float) -> Batch:
        """These jobs, by receipt, are in the queue no more: their workers' words were lost."""
        batch = Batch()
        for stream in {stream.request_id: stream for stream in jobs.values()}.values():
            for outcome in stream.miss(jobs, now_s):
                self._add(Happening(stream, outcome), now_s, batch)
        return batch

    def _outranked(self, stream: RequestStream, term: int, batch: Batch) -> None:
        """A later owner has `stream`: it lets go of it without a word."""
        self._remembered.outrank(stream.request_id, term)
        batch.released.append(stream)
        self.release(stream.request_id)

    def on_verdicts(
        self, stream: RequestStream, choice: int, verdicts: Sequence[Verdict], now_s: float
    ) -> Batch:
        """Checks that a stream waited for are made."""
        batch = Batch()
        outcomes = stream.judged(choice, verdicts)
        while not stream.over:
            happening = _guarded(stream, lambda: next(outcomes, None))
            if happening is None:
                break
            self._add(happening, now_s, batch)
        return batch

    def expire(self, now_s: float, now_ms: int) -> Batch:
        """See to every stream whose time is up. O(streams): called by one slow timer."""
        batch = self._each(lambda stream: stream.expire(now_s, now_ms, self._timeouts), now_s)
        for request_id, workers in self._remembered.expire(now_s, self._timeouts.kept_s):
            for worker in workers:
                batch.done.setdefault(worker, []).append(request_id)
        return batch

    def lose(self, dead_workers: Collection[str], silence_s: float, now_s: float) -> Batch:
        """Move the runs that `dead_workers` were writing and that have been silent as long.

        Silent, because a registration may expire while its worker lives and sends.
        """
        return self._each(lambda stream: stream.lose(dead_workers, silence_s, now_s), now_s)

    def lines(self, now_s: float) -> dict[str, Line]:
        """Who waits for a worker, by model. O(streams): called when scraped, from any thread."""
        found: dict[str, Line] = {}
        for stream in list(self._open.values()):
            if stream.in_line and stream.runs:
                line = found.get(stream.model, Line())
                waited_s = now_s - stream.runs[0].last_s
                found[stream.model] = Line(line.streams + 1, max(line.oldest_s, waited_s))
        return found

    def silent_workers(self, now_s: float, seconds: float) -> set[str]:
        """Workers that write runs here, of which none has sent anything for `seconds`."""
        heard: dict[str, float] = {}
        for stream in self._open.values():
            for run in stream.runs:
                if run.worker is not None and not run.over:
                    heard[run.worker] = max(run.last_s, heard.get(run.worker, run.last_s))
        return {worker for worker, last_s in heard.items() if now_s - last_s >= seconds}

    def waiting_models(self) -> set[str]:
        """Models for a worker of which some stream waits."""
        return {stream.model for stream in self._open.values() if any(stream.waiting())}

    def starve(self, models: Collection[str], seconds: float, now_s: float) -> Batch:
        """Fail what waits for a worker of `models`, of which there has been none for `seconds`."""

        def starved(stream: RequestStream) -> Outcome | None:
            if stream.model not in models or not any(stream.waiting()):
                return None
            text = f"no worker has served {stream.model!r} for {seconds:g} s"
            return stream.fail("unavailable", text, dead="no_worker")

        return self._fail_where(starved, now_s)

    def give_up(self, job: Job, code: FailureCode, now_s: float) -> Batch:
        """Fail the stream of a `job` that cannot be queued."""
        batch = Batch()
        stream = self._open.get(job.request_id)
        if stream is not None and stream.expects(job):
            if job.attempt:
                text = "the worker was lost, and the answer could not be queued for another"
                outcome = stream.fail(code, text, dead="migrations")
            else:
                outcome = stream.fail(code, "the request could not be queued for a worker")
            self._add(Happening(stream, outcome), now_s, batch)
        return batch

    def get(self, request_id: str) -> RequestStream | None:
        """The stream of that request, if it is owned."""
        return self._open.get(request_id)

    def orphan(self, dead_readers: Collection[str], now_s: float) -> Batch:
        """End the streams whose events go to `dead_readers`: nobody hears them."""
        return self._fail_where(
            lambda stream: (
                stream.fail("lost", "the gateway was cut off from the other services")
                if stream.reply_subject in dead_readers
                else None
            ),
            now_s,
        )

    def abandon(self, now_s: float) -> Batch:
        """Let go of everything: this process ends."""
        return self._fail_where(lambda stream: stream.let_go(), now_s)

    def pass_on(self, now_s: float) -> Batch:
        """Let go of what has no job on the queue yet: this process ends, others are there."""
        return self._fail_where(lambda s: None if s.queued_any else s.let_go(), now_s)

    def _each(self, happen: Callable[[RequestStream], Iterator[Outcome]], now_s: float) -> Batch:
        batch = Batch()
        for stream in list(self._open.values()):
            for outcome in happen(stream):
                self._add(Happening(stream, outcome), now_s, batch)
        return batch

    def _fail_where(self, fail: Callable[[RequestStream], Outcome | None], now_s: float) -> Batch:
        batch = Batch()
        for stream in list(self._open.values()):
            if (outcome := fail(stream)) is not None:
                self._add(Happening(stream, outcome), now_s, batch)
        return batch

    def _add(self, happening: Happening, now_s: float, batch: Batch) -> None:
        stream, outcome = happening.stream, happening.outcome
        if outcome.deltas:
            batch.events.setdefault(stream.reply_subject, []).extend(outcome.deltas)
        if (cancel := outcome.cancel) is not None:
            if stream.term:
                cancel = msgspec.structs.replace(cancel, term=stream.term)
            batch.cancels.append((stream.model, cancel))
            if cancel.attempt is None or cancel.complete:
                self._remember((cancel.request_id, cancel.choice), stream, now_s)
                batch.receipts += stream.unwanted(cancel.choice)
        if outcome.want is not None:
            batch.wants.setdefault((stream.model, outcome.want_of), []).append(outcome.want)
        batch.happenings.append(happening)
        if stream.over:
            self._over(stream, now_s)

    def _over(self, stream: RequestStream, now_s: float) -> None:
        self._open.pop(stream.request_id, None)
        self._leave_line(stream)
        if stream.failed is not None and stream.failed.error_code == OWNER_STOPPING:
            return
        self._remember((stream.request_id, None), stream, now_s)
        if stream.failed is None:
            workers = {run.worker for run in stream.runs if run.worker}
            self._remembered.answer(stream.request_id, workers, now_s)

    def _tell_again(
        self, delta: TokenDelta, choice: int | None, now_s: float, batch: Batch
    ) -> None:
        """Nobody reads this run, yet it goes on: its cancel was lost. At most once a second."""
        run = (delta.request_id, choice)
        said = self._remembered.said(run)
        if said is None or delta.finish is not None or now_s - said.at_s < _CANCEL_AGAIN_S:
            return
        self._remembered.say(run, said._replace(at_s=now_s))
        again = Cancel(
            request_id=delta.request_id,
            choice=choice,
            reason="nobody reads it",
            term=said.term,
            attempt=delta.epoch if said.failed is None else None,
            complete=said.failed is None,
        )
        batch.cancels.append((said.model, again))

    def _tell_worker(
        self, stream: RequestStream, delta: TokenDelta, worker: str, now_s: float, batch: Batch
    ) -> None:
        """This worker runs what another one runs by now: it alone may stop. Once a second."""
        run = (delta.request_id, delta.choice, delta.epoch, worker)
        told = self._remembered.said(run)
        if delta.finish is None and (told is None or now_s - told.at_s >= _CANCEL_AGAIN_S):
            self._remember(run, stream, now_s)
            cancel = Cancel(
                request_id=delta.request_id,
                choice=delta.choice,
                reason="another worker has this run",
                attempt=delta.epoch,
                worker=worker,
                term=stream.term,
            )
            batch.cancels.append((stream.model, cancel))

    def _remember(self, run: Told, stream: RequestStream, now_s: float) -> None:
        said = Said(stream.model, now_s, stream.term, stream.failed)
        self._remembered.say(run, said)


def _taken(stream: RequestStream, delta: TokenDelta, worker: str, now_s: float) -> Happening:
    happening = _guarded(stream, lambda: stream.take(delta, worker, now_s))
    assert happening is not None
    return happening


def _guarded(stream: RequestStream, step: Callable[[], Outcome | None]) -> Happening | None:
    try:
        outcome = step()
        return None if outcome is None else Happening(stream, outcome)
    except Exception as bug:  # noqa: BLE001 - a parser's bug costs its own stream, not the others
        failed = stream.fail("internal", "internal error while reading the model's output")
        return Happening(stream, failed, bug)
