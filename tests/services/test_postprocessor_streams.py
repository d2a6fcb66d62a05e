from __future__ import annotations

import msgspec
import pytest

from services.postprocessor.batch import Batch
from services.postprocessor.choice import Choice
from services.postprocessor.remembered import TOLD_KEPT
from services.postprocessor.stream import RequestStream, Timeouts
from services.postprocessor.streams import Streams
from tests.services.postprocessing import choice, delta, plain_choice
from toolrail.events import ArgumentsDelta, CallEnd, CallStart, TextDelta
from toolrail.messages import (
    OWNER_STOPPING,
    Cancel,
    ChoiceEnd,
    EventDelta,
    FailureCode,
    Job,
    Output,
    Position,
    Positions,
    Sampling,
    TokenDelta,
    TokenFrame,
    Usage,
    Want,
)

TIMEOUTS = Timeouts(idle_s=10, unstarted_s=100)


def job(request_id: str = "r", choice: int = 0) -> Job:
    return Job(
        request_id=request_id,
        choice=choice,
        model="m",
        prompt_token_ids=(1, 2),
        sampling=Sampling(max_tokens=99),
        reply_subject="p",
    )


def stream(
    *choices: Choice,
    request_id: str = "r",
    gateway: str = "g",
    deadline_ms: int = 0,
    migration_limit: int = 0,
) -> RequestStream:
    made = RequestStream(
        request_id=request_id,
        model="m",
        reply_subject=gateway,
        prompt_tokens=7,
        deadline_ms=deadline_ms,
    )
    made.migration_limit = migration_limit
    choices = choices or (plain_choice(),)
    made.begin(choices, [job(request_id, position) for position in range(len(choices))], now_s=0)
    return made


def table(*owned: RequestStream) -> Streams:
    streams = Streams(TIMEOUTS)
    for one in owned:
        streams.add(one)
    return streams


def frame(*deltas: TokenDelta, worker: str = "w") -> TokenFrame:
    return TokenFrame(1, worker, 0, deltas)


def sent(batch: Batch, gateway: str = "g") -> list[EventDelta]:
    return batch.events.get(gateway, [])


def failure_code(batch: Batch) -> FailureCode | None:
    return next((d.failed.code for d in sent(batch) if d.failed is not None), None)


def test_events_of_a_frame_are_gathered_by_gateway() -> None:
    streams = table(
        stream(request_id="a", gateway="g1"),
        stream(request_id="b", gateway="g2"),
        stream(request_id="c", gateway="g1"),
    )
    batch = streams.on_frame(frame(*(delta("x", request_id=i) for i in "abc")), 0)
    assert {to: [d.request_id for d in deltas] for to, deltas in batch.events.items()} == {
        "g1": ["a", "c"],
        "g2": ["b"],
    }


def test_entries_are_numbered_per_request_over_all_its_choices() -> None:
    streams = table(stream(plain_choice(), plain_choice()))
    batch = streams.on_frame(
        frame(delta("a", choice=1), delta("b", choice=0), delta("c", 1, choice=1)), 0
    )
    assert [(d.seq, d.choice) for d in sent(batch)] == [(0, 1), (1, 0), (2, 1)]


def test_ids_that_make_nothing_certain_send_nothing() -> None:
    streams = table(stream(choice()))
    batch = streams.on_frame(frame(delta("[f")), 0)
    assert sent(batch) == []
    assert [d.seq for d in sent(streams.on_frame(frame(delta(":", 1)), 0))] == [0]


def test_usage_comes_when_the_last_choice_ends_and_ends_the_stream() -> None:
    streams = table(stream(choice(), choice()))
    first = streams.on_frame(frame(delta("{ab}c", finish="stop", cached_tokens=4)), 0)
    assert [(d.end, d.usage) for d in sent(first)] == [(ChoiceEnd("stop"), None)]
    assert "r" in streams
    last = streams.on_frame(frame(delta("xy", choice=1, finish="length", cached_tokens=9)), 0)
    assert [(d.end, d.usage) for d in sent(last)] == [(ChoiceEnd("length"), Usage(7, 7, 4, 3))]
    assert len(streams) == 0


def test_a_repeated_delta_is_dropped() -> None:
    streams = table(stream())
    streams.on_frame(frame(delta("a")), 0)
    batch = streams.on_frame(frame(delta("a"), delta("b", 1)), 0)
    assert [d.events for d in sent(batch)] == [(TextDelta("b"),)]
    assert batch.dropped == ["duplicate"]


def test_a_gap_is_asked_for_once_and_filled_in_order() -> None:
    streams = table(stream())
    streams.on_frame(frame(delta("a")), 0)
    batch = streams.on_frame(frame(delta("c", 2), delta("d", 3)), 0)
    assert batch.wants == {("m", "w"): [Want("r", 0, 1, attempt=0)]}
    assert (sent(batch), batch.dropped) == ([], ["gap"])
    batch = streams.on_frame(frame(delta("b", 1), delta("c", 2), delta("d", 3)), 0)
    assert [d.events for d in sent(batch)] == [(TextDelta(text),) for text in "bcd"]
    assert streams.expire(1.9, 0) == Batch()


def test_a_gap_at_the_start_is_asked_for_too() -> None:
    streams = table(stream())
    batch = streams.on_frame(frame(delta("b", 1)), 0)
    assert batch.wants == {("m", "w"): [Want("r", 0, 0, attempt=0)]}


def test_a_gap_that_is_not_filled_ends_the_stream_once() -> None:
    streams = table(stream(plain_choice(), plain_choice()))
    streams.on_frame(frame(delta("a")), 0)
    streams.on_frame(frame(delta("c", 2)), 0)
    assert [len(streams.expire(second, 0).wants) for second in (1, 2, 4)] == [0, 1, 1]
    batch = streams.expire(6, 0)
    assert failure_code(batch) == "lost"
    assert sent(batch)[0].failed.retryable  # type: ignore[union-attr]
    assert [(model, c.request_id, c.choice) for model, c in batch.cancels] == [("m", "r", None)]
    assert len(streams) == 0


def test_a_gap_that_is_not_filled_is_left_behind_with_its_worker() -> None:
    moving = stream()
    moving.migration_limit = 1
    streams = table(moving)
    streams.on_frame(frame(delta("a")), 0)
    streams.on_frame(frame(delta("c", 2)), 0)
    for second in (2, 4):
        streams.expire(second, 0)
    (happening,) = streams.expire(6, 0).happenings
    assert happening.outcome.migration is not None
    batch = streams.on_frame(frame(delta("b", 0, epoch=1), worker="w2"), 7)
    assert [d.events for d in sent(batch)] == [(TextDelta("b"),)]


def test_what_a_silent_worker_may_have_sent_last_is_asked_for() -> None:
    streams = table(stream())
    streams.on_frame(frame(delta("a")), 0)
    assert streams.expire(1.9, 0) == Batch()
    assert streams.expire(2, 0).wants == {("m", "w"): [Want("r", 0, 1, attempt=0)]}
    assert streams.expire(3, 0) == Batch()
    assert streams.expire(4, 0).wants == {("m", "w"): [Want("r", 0, 1, attempt=0)]}


def test_workers_hear_what_is_done_when_nobody_can_have_missed_its_end_any_more() -> None:
    streams = table(stream(plain_choice(), plain_choice()))
    streams.on_frame(frame(delta("a", finish="stop"), worker="w1"), 0)
    batch = streams.on_frame(frame(delta("b", choice=1, finish="stop"), worker="w2"), 1)
    assert batch.done == {}
    assert streams.expire(TIMEOUTS.kept_s, 0).done == {}
    assert streams.expire(TIMEOUTS.kept_s + 1, 0).done == {"w1": ["r"], "w2": ["r"]}
    assert streams.expire(TIMEOUTS.kept_s + 2, 0).done == {}


def test_workers_keep_an_answer_whose_stream_comes_back_to_the_same_owner() -> None:
    streams = table(stream())
    streams.on_frame(frame(delta("a", finish="stop")), 0)
    streams.add(inherited())
    assert streams.expire(TIMEOUTS.kept_s, 0).done == {}


def test_workers_keep_a_bounded_number_of_answers_for_gateways() -> None:
    streams = table()
    for number in range(TOLD_KEPT + 3):
        streams.add(stream(request_id=str(number)))
        streams.on_frame(frame(delta("a", request_id=str(number), finish="stop")), 0)
    assert streams.expire(0, 0).done == {"w": ["0", "1", "2"]}


# What a gateway may have missed.


def asked(next_seq: int, *, term: int = 0, request_id: str = "r") -> Positions:
    return Positions(reply_subject="g", streams=(Position(request_id, next_seq, term),))


def test_who_has_heard_all_is_told_nothing() -> None:
    streams = table(stream())
    assert streams.on_positions(asked(0)) == Batch()
    streams.on_frame(frame(delta("a")), 0)
    assert streams.on_positions(asked(1)) == Batch()


def test_who_has_missed_something_sees_it_by_the_next_number() -> None:
    streams = table(stream())
    streams.on_frame(frame(delta("a"), delta("b", 1)), 0)
    assert sent(streams.on_positions(asked(1))) == [EventDelta("r", 2, 0)]
    batch = streams.on_frame(frame(delta("c", 2, finish="stop")), 0)
    assert [d.seq for d in sent(batch)] == [3]


def test_who_has_missed_the_end_is_to_look_for_another_owner() -> None:
    streams = table(stream())
    streams.on_frame(frame(delta("a", finish="stop")), 0)
    for position in (asked(0), asked(5, request_id="never known")):
        (said,) = sent(streams.on_positions(position))
        assert (said.seq, said.term) == (position.streams[0].next_seq, 0)
        assert said.failed is not None
        assert said.failed.error_code == OWNER_STOPPING


def test_who_has_missed_a_failure_is_told_it() -> None:
    streams = table(stream(deadline_ms=5))
    (failed,) = sent(streams.expire(0, 5))
    (again,) = sent(streams.on_positions(asked(7)))
    assert (again.seq, again.failed) == (7, failed.failed)


def test_a_gateway_that_was_taken_for_dead_is_told_that_its_streams_are_lost() -> None:
    streams = table(stream())
    streams.orphan({"g"}, 0)
    (said,) = sent(streams.on_positions(asked(0)))
    assert said.failed is not None
    assert (said.failed.code, said.failed.status) == ("lost", 502)


def test_who_listens_to_an_older_owner_is_told_of_this_one() -> None:
    streams = table(inherited(term=16))
    assert sent(streams.on_positions(asked(3, term=0))) == [EventDelta("r", 0, 0, term=16)]
    (said,) = sent(streams.on_positions(asked(3, term=32)))
    assert said.failed is not None
    assert (said.failed.error_code, said.term) == (OWNER_STOPPING, 32)


# Jobs of which nothing is heard.


def queued(*choices: Choice, migration_limit: int = 1) -> tuple[Streams, RequestStream]:
    owned = stream(*choices, migration_limit=migration_limit)
    streams = table(owned)
    for run in owned.runs:
        assert owned.queued(run.job, f"{run.job.choice}")
    return streams, owned


def test_jobs_that_wait_for_long_are_looked_for_in_the_queue() -> None:
    streams, owned = queued(plain_choice(), plain_choice())
    assert streams.queued(1.9, 2) == {}
    assert streams.queued(2, 2) == {"m": {"0": owned, "1": owned}}
    streams.on_frame(frame(delta("a", choice=1)), 2)
    assert streams.queued(3, 2) == {"m": {"0": owned}}


def test_what_left_the_queue_unheard_is_asked_of_all_workers_and_comes() -> None:
    streams, owned = queued()
    batch = streams.miss({"0": owned}, 3)
    assert batch.wants == {("m", ""): [Want("r", 0, 0)]}
    assert streams.queued(30, 2) == {}
    assert streams.expire(4.9, 0) == Batch()
    assert streams.expire(5, 0).wants == {("m", ""): [Want("r", 0, 0)]}
    batch = streams.on_frame(frame(delta("a", finish="stop")), 6)
    assert sent(batch)[-1].end == ChoiceEnd("stop")


def test_what_left_the_queue_and_no_worker_knows_begins_again() -> None:
    streams, owned = queued()
    streams.miss({"0": owned}, 3)
    batch = streams.expire(3 + TIMEOUTS.inherited_s, 0)
    migration = batch.happenings[0].outcome.migration
    assert migration is not None
    assert (migration.job.attempt, migration.cause) == (1, "gap")
    assert owned.queued(migration.job, "9")
    assert streams.queued(100, 2) == {"m": {"9": owned}}
    streams.on_frame(frame(delta("late"), worker="dead"), 14)
    batch = streams.on_frame(frame(delta("a", epoch=1, finish="stop")), 15)
    assert sent(batch)[-1].end == ChoiceEnd("stop", migrations=1)


def test_what_began_while_the_queue_was_looked_at_is_not_asked_for() -> None:
    streams, owned = queued()
    streams.on_frame(frame(delta("a")), 2)
    assert streams.miss({"0": owned}, 3) == Batch()


# Streams that had another owner.


def inherited(*choices: Choice, begun: tuple[int, ...] = (), term: int = 1) -> RequestStream:
    made = stream(*choices)
    made.term = term
    made.inherit(begun, 0)
    return made


def test_an_inherited_stream_is_asked_for_whole_until_it_comes() -> None:
    streams = table(inherited())
    assert streams.expire(1, 0) == Batch()
    assert streams.expire(2, 0).wants == {("m", ""): [Want("r", 0, -1, 1)]}
    batch = streams.on_frame(frame(delta("ab", epoch=2), delta("c", 1, epoch=2)), 3)
    assert [(d.seq, d.term) for d in sent(batch)] == [(0, 1), (1, 1)]
    assert streams.expire(4, 0) == Batch()


def test_a_gap_in_an_inherited_stream_is_asked_for_from_its_start() -> None:
    streams = table(inherited())
    assert streams.on_frame(frame(delta("b", 1)), 0).wants == {("m", "w"): [Want("r", 0, -1, 1)]}


def test_an_inherited_choice_that_no_worker_has_fails_if_its_client_saw_of_it() -> None:
    streams = table(inherited(begun=(0,)))
    assert failure_code(streams.expire(9.9, 0)) is None
    assert failure_code(streams.expire(10, 0)) == "lost"


def test_an_inherited_choice_of_which_nobody_heard_begins_again_once() -> None:
    unheard = inherited()
    unheard.migration_limit = 3
    streams = table(unheard)
    (happening,) = streams.expire(10, 0).happenings
    assert happening.outcome.migration is not None
    assert happening.outcome.migration.job.attempt == 1
    assert streams.expire(25, 0) == Batch()  # it waits in the queue, as others do
    batch = streams.on_frame(frame(delta("a", epoch=1)), 26)
    assert [d.events for d in sent(batch)] == [(TextDelta("a"),)]


def test_an_inherited_choice_that_cannot_be_sent_again_does_not_begin_anew() -> None:
    seen = inherited(begun=(0,))
    seen.migration_limit = 3
    streams = table(seen)
    error = delta("", finish="error", error="x", error_code="lost", epoch=1)
    assert failure_code(streams.on_frame(frame(error), 0)) == "lost"


def test_what_an_owner_says_carries_its_term() -> None:
    streams = table(inherited(plain_choice(), plain_choice(), term=3))
    batch = streams.on_cancel(Cancel(request_id="r", choice=0, term=3), 0)
    assert [(d.term, c.term) for d, (_, c) in zip(sent(batch), batch.cancels, strict=True)] == [
        (3, 3)
    ]
    batch = streams.on_cancel(Cancel(request_id="r", term=3), 0)
    assert (sent(batch)[0].term, batch.cancels[0][1].term) == (3, 3)
    late = streams.on_frame(frame(delta("x", choice=1)), 5)
    assert [c.term for _, c in late.cancels] == [3]


def test_a_later_owner_makes_an_earlier_one_let_go_in_silence() -> None:
    streams = table(stream())
    streams.on_frame(frame(delta("a")), 0)
    batch = streams.on_cancel(Cancel(request_id="r", term=1), 0)
    assert (sent(batch), batch.cancels, batch.receipts) == ([], [], [])
    assert [stream.request_id for stream in batch.released] == ["r"]
    assert not streams.knows("r", 0)
    assert streams.on_frame(frame(delta("b", 1)), 5).cancels == []


def test_a_worker_that_knows_a_later_owner_makes_this_one_let_go() -> None:
    streams = table(inherited(term=1))
    same = TokenDelta("r", 0, -1, 0, outranked=1)
    assert streams.on_frame(frame(same), 0) == Batch()
    later = TokenDelta("r", 0, -1, 0, outranked=16)
    batch = streams.on_frame(frame(later), 0)
    assert [stream.request_id for stream in batch.released] == ["r"]
    assert (len(streams), sent(batch), batch.cancels) == (0, [], [])
    assert streams.passed("r", 15)
    assert streams.on_frame(frame(later), 5) == Batch()  # nobody is told to stop


def test_what_was_meant_for_a_former_owner_changes_nothing() -> None:
    streams = table(inherited(term=33))
    assert streams.on_cancel(Cancel(request_id="r", term=16, reason="taken over"), 0) == Batch()
    assert streams.on_cancel(Cancel(request_id="r", term=32), 0).happenings  # its gateway's own


def test_an_older_hand_over_does_not_replace_a_newer_one() -> None:
    streams = table(inherited(term=32))
    assert [streams.passed("r", term) for term in (16, 32, 48)] == [True, False, False]


def test_a_stream_is_known_up_to_its_term() -> None:
    streams = table(inherited(term=2))
    assert [streams.knows("r", term) for term in (0, 2, 3)] == [True, True, False]
    streams.on_frame(frame(delta("a", finish="stop")), 0)
    assert [streams.knows("r", term) for term in (0, 2, 3)] == [True, True, False]


def test_frames_of_an_older_run_are_dropped() -> None:
    streams = table(stream())
    streams.on_frame(frame(delta("a", epoch=1)), 0)
    batch = streams.on_frame(frame(delta("x", 1, epoch=0)), 0)
    assert (sent(batch), batch.dropped) == ([], ["old_epoch"])


def test_a_newer_run_is_taken_if_the_older_one_said_nothing() -> None:
    streams = table(stream())
    batch = streams.on_frame(frame(delta("a", epoch=3)), 0)
    assert [d.events for d in sent(batch)] == [(TextDelta("a"),)]


def test_a_newer_run_elsewhere_that_nobody_here_ordered_is_dropped_and_stopped() -> None:
    """A former owner was cut off, comes back, and has its runs begin anew."""
    streams = table(inherited())
    streams.on_frame(frame(delta("a")), 0)
    batch = streams.on_frame(frame(delta("b", epoch=1), worker="other"), 0)
    assert (sent(batch), batch.dropped) == ([], ["other_worker"])
    ((_, cancel),) = batch.cancels
    assert (cancel.worker, cancel.attempt, cancel.term) == ("other", 1, 1)
    batch = streams.on_frame(frame(delta("b", 1, finish="stop")), 0)
    assert sent(batch)[-1].end == ChoiceEnd("stop")


def test_a_newer_run_after_output_fails_the_stream() -> None:
    streams = table(stream())
    streams.on_frame(frame(delta("a")), 0)
    assert failure_code(streams.on_frame(frame(delta("b", epoch=1)), 0)) == "lost"


def test_two_workers_on_one_run_are_never_mixed() -> None:
    streams = table(stream())
    streams.on_frame(frame(delta("a"), worker="w1"), 0)
    batch = streams.on_frame(frame(delta("z", 0), delta("y", 1), worker="w2"), 0)
    assert (sent(batch), batch.dropped) == ([], ["other_worker"] * 2)
    assert sent(streams.on_frame(frame(delta("b", 1), worker="w1"), 0))


def test_a_choice_that_nobody_asked_for_fails_the_stream() -> None:
    assert failure_code(table(stream()).on_frame(frame(delta("a", choice=5)), 0)) == "internal"


@pytest.mark.parametrize(
    ("code", "expected", "status"),
    [
        (None, "engine", 500),
        ("invalid_request", "invalid_request", 400),
        ("deadline", "deadline", 504),
    ],
)
def test_an_error_of_the_worker_fails_the_stream(
    code: FailureCode | None, expected: FailureCode, status: int
) -> None:
    streams = table(stream(plain_choice(), plain_choice()))
    batch = streams.on_frame(
        frame(delta("", finish="error", error="no such grammar", error_code=code)), 0
    )
    failed = sent(batch)[0].failed
    assert failed is not None
    assert (failed.code, failed.status, failed.message) == (expected, status, "no such grammar")
    assert [c.choice for _, c in batch.cancels] == [None]  # the other choice still runs


def test_a_field_that_the_engine_refuses_reaches_the_client() -> None:
    refused = delta("", finish="error", error="too many", error_code="invalid_request")
    refused = msgspec.structs.replace(refused, error_param="bad_words")
    failed = sent(table(stream()).on_frame(frame(refused), 0))[0].failed
    assert failed is not None
    assert (failed.status, failed.param, failed.error_code) == (400, "bad_words", "invalid_value")


def test_what_came_with_an_error_and_what_was_held_back_leave_before_it() -> None:
    streams = table(stream(plain_choice(Output(stop=("END",)))))
    assert sent(streams.on_frame(frame(delta("E")), 0)) == []
    batch = streams.on_frame(frame(delta("N!", 1, finish="error", error="x")), 0)
    said, last = sent(batch)
    assert (said.seq, said.events, said.end, said.usage) == (0, (TextDelta("EN!"),), None, None)
    assert (last.seq, last.failed is not None) == (1, True)


def test_a_call_that_an_error_cut_is_not_ended() -> None:
    streams = table(stream(choice()))
    batch = streams.on_frame(frame(delta("[f:{", finish="error", error="x")), 0)
    assert sent(batch)[0].events == (CallStart(0, "f"), ArgumentsDelta(0, "{"))
    assert failure_code(batch) == "engine"


def test_what_was_held_back_leaves_before_a_deadline_too() -> None:
    held = stream(plain_choice(Output(stop=("END",))), choice(), plain_choice())
    held.deadline_ms = 5000
    streams = table(held)
    streams.on_frame(frame(delta("E"), delta("[f:{", choice=1)), 0)
    batch = streams.expire(0, 5000)
    said, last = sent(batch)  # of the call all was said but its end, which never came
    assert (said.seq, said.choice, said.events, said.end) == (1, 0, (TextDelta("E"),), None)
    assert (last.seq, last.usage) == (2, None)
    assert failure_code(batch) == "deadline"


def test_what_was_held_back_leaves_before_a_loss_but_not_of_a_taken_over_stream() -> None:
    for inherited in (False, True):
        held = stream(plain_choice(Output(stop=("END",))))
        held.migration_limit = 0
        if inherited:
            held.inherit((0,), 0)
        streams = table(held)
        assert sent(streams.on_frame(frame(delta("E")), 0)) == []
        batch = streams.lose({"w"}, 0, 100)
        said = [event for one in sent(batch) for event in one.events]
        assert said == ([] if inherited else [TextDelta("E")])
        assert failure_code(batch) == "lost"


def test_a_run_that_the_worker_gave_up_is_lost() -> None:
    assert failure_code(table(stream()).on_frame(frame(delta("a", finish="abort")), 0)) == "lost"


def test_a_stop_string_stops_the_engine_on_that_choice_alone() -> None:
    stopping = plain_choice(Output(stop=("b",)))
    streams = table(stream(stopping, plain_choice()))
    batch = streams.on_frame(frame(delta("abc"), delta("xyz", choice=1)), 0)
    assert [(model, c.choice) for model, c in batch.cancels] == [("m", 0)]
    assert (batch.cancels[0][1].complete, batch.cancels[0][1].attempt) == (True, 0)
    late = streams.on_frame(frame(delta("d", 1)), 0.5)
    assert (sent(late), late.cancels, late.dropped) == ([], [], ["ended"])


def test_a_worker_that_runs_on_is_told_again_but_not_at_every_step() -> None:
    streams = table(stream(plain_choice(Output(stop=("b",))), plain_choice()))
    streams.on_frame(frame(delta("ab")), 0)
    told = [streams.on_frame(frame(delta("c", n)), n / 4).cancels for n in range(1, 9)]
    assert [len(cancels) for cancels in told] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert told[3][0][1].choice == 0

    streams.on_cancel(Cancel(request_id="r"), 3)
    assert streams.on_frame(frame(delta("d", 9, choice=1)), 3.5).cancels == []
    ((model, again),) = streams.on_frame(frame(delta("d", 9, choice=1)), 4).cancels
    assert (model, again.request_id, again.choice) == ("m", "r", None)


def test_the_end_of_an_unknown_run_needs_no_answer() -> None:
    streams = table(stream())
    streams.on_cancel(Cancel(request_id="r"), 0)
    batch = streams.on_frame(frame(delta("", 1, finish="abort")), 5)
    assert (batch.cancels, batch.dropped) == ([], ["unknown_stream"])


def test_what_is_remembered_of_ended_streams_is_bounded() -> None:
    streams = Streams(TIMEOUTS)
    for number in range(TOLD_KEPT + 10):
        streams.add(stream(request_id=str(number)))
        streams.on_cancel(Cancel(request_id=str(number)), 0)
    assert streams.on_frame(frame(delta("a", request_id="0")), 9).cancels == []
    assert streams.on_frame(frame(delta("a", request_id=str(TOLD_KEPT))), 9).cancels


def test_a_cancelled_stream_says_so_and_stops_its_workers() -> None:
    streams = table(stream())
    batch = streams.on_cancel(Cancel(request_id="r", reason="client left"), 0)
    assert failure_code(batch) == "cancelled"
    assert [(model, c.choice) for model, c in batch.cancels] == [("m", None)]
    assert "r" not in streams
    assert streams.on_cancel(Cancel(request_id="r"), 0) == Batch()


def test_a_cancelled_choice_aborts_and_the_last_one_brings_the_usage() -> None:
    streams = table(stream(plain_choice(), plain_choice()))
    first = streams.on_cancel(Cancel(request_id="r", choice=0), 0)
    assert [(d.choice, d.end, d.usage) for d in sent(first)] == [(0, ChoiceEnd("abort"), None)]
    assert [c.choice for _, c in first.cancels] == [0]
    assert streams.on_cancel(Cancel(request_id="r", choice=0), 0).cancels == []
    last = streams.on_frame(frame(delta("a", choice=1, finish="stop")), 0)
    assert sent(last)[-1].usage == Usage(7, 1)


def test_silence_of_a_running_choice_fails_the_stream() -> None:
    streams = table(stream())
    streams.on_frame(frame(delta("a")), 5)
    assert failure_code(streams.expire(14.9, 0)) is None
    batch = streams.expire(15, 0)
    assert failure_code(batch) == "lost"
    assert batch.cancels


def test_waiting_for_a_slot_is_not_silence() -> None:
    streams = table(stream())
    assert streams.expire(99, 0) == Batch()
    assert failure_code(streams.expire(100, 0)) == "lost"


def test_a_deadline_ends_a_stream_whether_it_has_begun_or_not() -> None:
    streams = table(stream(request_id="a", deadline_ms=1000), stream(request_id="b", gateway="h"))
    assert streams.expire(1, 999) == Batch()
    assert failure_code(streams.expire(1, 1000)) == "deadline"
    assert "b" in streams


def test_an_ended_choice_is_not_silent() -> None:
    streams = table(stream(plain_choice(), plain_choice()))
    streams.on_frame(frame(delta("a", finish="stop"), delta("b", choice=1)), 0)
    streams.on_frame(frame(delta("c", 1, choice=1)), 9)
    batch = streams.expire(15, 0)
    assert failure_code(batch) is None
    assert batch.wants == {("m", "w"): [Want("r", 1, 2, attempt=0)]}


def test_a_dead_worker_costs_the_streams_it_was_writing() -> None:
    streams = table(stream(request_id="a"), stream(request_id="b"), stream(request_id="c"))
    streams.on_frame(frame(delta("x", request_id="a"), worker="w1"), 0)
    streams.on_frame(frame(delta("x", request_id="b"), worker="w2"), 0)
    assert streams.lose({"w1"}, 2, now_s=1) == Batch()  # it may only have lost its registration
    batch = streams.lose({"w1"}, 2, now_s=2)
    assert [(d.request_id, d.failed.code) for d in sent(batch) if d.failed] == [("a", "lost")]
    assert len(streams) == 2


def test_a_bug_of_a_parser_costs_its_own_stream_only() -> None:
    streams = table(stream(choice(), request_id="a"), stream(choice(), request_id="b"))
    batch = streams.on_frame(
        frame(delta("[f:!", request_id="a"), delta("[f:1]", request_id="b")), 0
    )
    assert failure_code(batch) == "internal"
    assert [h.stream.request_id for h in batch.happenings if h.bug is not None] == ["a"]
    assert sent(batch)[-1].events[-1] == CallEnd(0)
    assert "b" in streams


def test_at_the_end_of_the_process_every_stream_is_told() -> None:
    streams = table(stream(request_id="a"), stream(request_id="b"))
    batch = streams.abandon(0)
    assert [(d.failed.code, d.failed.error_code) for d in sent(batch) if d.failed] == [
        ("unavailable", OWNER_STOPPING)
    ] * 2
    assert (batch.cancels, batch.receipts) == ([], [])  # whoever comes next needs the runs
    assert len(streams) == 0
