"""Weighted fair queueing, against what the literature promises of it."""

from __future__ import annotations

from collections import Counter
from itertools import cycle, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.postprocessor.fair import FairQueue

OWNERS = ("a", "b", "c")
COSTS = st.integers(1, 20)
SOME = st.lists(COSTS, min_size=1, max_size=6)
FEW = settings(max_examples=40)


def many(costs: list[int]) -> list[int]:
    """Sixty of them, over and over."""
    return list(islice(cycle(costs), 60))


def served(queue: FairQueue[int, int], weights: dict[str, int], count: int) -> Counter[str]:
    """Work that each owner was given in the next `count` turns; an item is its own cost."""
    work: Counter[str] = Counter()
    for _ in range(count):
        owner, cost = queue.take()
        queue.charge(owner, cost / weights[owner])
        work[owner] += cost
    return work


@FEW
@given(SOME, SOME, st.integers(1, 8), st.integers(1, 8), st.integers(1, 59))
def test_two_that_wait_all_the_time_get_work_in_proportion(
    of_a: list[int], of_b: list[int], weight_a: int, weight_b: int, turns: int
) -> None:
    queue: FairQueue[int, int] = FairQueue()
    for number, (a, b) in enumerate(zip(many(of_a), many(of_b), strict=True)):
        queue.put("a", 2 * number, a)
        queue.put("b", 2 * number + 1, b)
    weights = {"a": weight_a, "b": weight_b}
    work = served(queue, weights, turns)
    bound = max(of_a) / weight_a + max(of_b) / weight_b
    assert abs(work["a"] / weight_a - work["b"] / weight_b) <= bound


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(OWNERS), COSTS),
        st.tuples(st.just("take"), st.just(""), st.just(0)),
        st.tuples(st.just("remove"), st.just(""), st.integers(0, 40)),
        st.tuples(st.just("charge"), st.sampled_from(OWNERS), st.integers(-20, 20)),
    ),
    max_size=40,
)


@FEW
@given(ACTIONS)
def test_whoever_waits_is_served_each_in_the_order_of_coming(
    actions: list[tuple[str, str, int]],
) -> None:
    """Work-conserving, first in first out for each owner, and nothing lost or served twice."""
    queue: FairQueue[int, int] = FairQueue()
    model: dict[str, list[int]] = {owner: [] for owner in OWNERS}
    for number, (what, owner, value) in enumerate(actions):
        match what:
            case "put":
                queue.put(owner, number, number)
                model[owner].append(number)
            case "remove":
                gone = queue.remove(value)
                holders = [waiting for waiting in model.values() if value in waiting]
                assert (gone is None) == (not holders)
                for waiting in holders:
                    waiting.remove(value)
            case "charge":
                queue.charge(owner, value)
            case _ if any(model.values()):
                served_owner, item = queue.take()
                queue.charge(served_owner, 1)
                assert model[served_owner].pop(0) == item
            case _:
                with pytest.raises(IndexError):
                    queue.take()
        assert len(queue) == sum(map(len, model.values()))
        assert {owner: queue.waiting(owner) for owner in OWNERS} == {
            owner: len(waiting) for owner, waiting in model.items()
        }


@FEW
@given(SOME, st.integers(1, 19), st.integers(1, 20))
def test_who_comes_after_a_pause_is_next_and_has_saved_nothing_up(
    costs: list[int], before: int, turns: int
) -> None:
    queue: FairQueue[int, int] = FairQueue()
    for number, one in enumerate(many(costs)):
        queue.put("busy", number, one)
    served(queue, {"busy": 1}, before)
    for number, one in enumerate(many(costs)):
        queue.put("idle", 100 + number, one)
    work = served(queue, {"busy": 1, "idle": 1}, 1)
    assert work == {"idle": costs[0]}
    work += served(queue, {"busy": 1, "idle": 1}, turns)
    assert abs(work["busy"] - work["idle"]) <= 2 * max(costs)


def test_what_others_gave_an_owner_counts_and_what_was_charged_too_much_comes_back() -> None:
    queue: FairQueue[int, int] = FairQueue()
    for number in range(10):
        queue.put("a", number, 1)
        queue.put("b", 10 + number, 1)
    queue.charge("a", 3)
    assert served(queue, {"a": 1, "b": 1}, 4) == {"b": 3, "a": 1}
    queue.charge("a", -4)
    assert served(queue, {"a": 1, "b": 1}, 4)["a"] == 4


def test_an_item_may_go_before_the_others_of_its_owner() -> None:
    queue: FairQueue[str, str] = FairQueue()
    queue.put("a", "first", "first")
    queue.put("a", "again", "again", first=True)
    assert queue.take() == ("a", "again")
    assert "first" in queue
    assert "again" not in queue


def test_when_there_is_nothing_to_do_all_is_forgotten() -> None:
    queue: FairQueue[int, int] = FairQueue()
    queue.put("a", 1, 1)
    queue.take()
    queue.charge("a", 1000)
    queue.forget()
    assert queue.period == 1
    queue.put("b", 2, 2)
    queue.put("a", 3, 3)
    queue.charge("b", 1)
    assert queue.take() == ("a", 3)
