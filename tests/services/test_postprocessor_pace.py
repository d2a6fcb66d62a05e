from __future__ import annotations

from services.postprocessor.pace import HALF_LIFE_S, MAX_RETRY_AFTER_S, Pace


def moving(a_second: float, seconds: float) -> Pace:
    pace = Pace()
    for number in range(int(a_second * seconds)):
        pace.leave(number / a_second)
    return pace


def test_a_line_that_moves_steadily_is_gone_when_its_pace_says() -> None:
    assert moving(4, 200).retry_after_s(40, 200) in (10, 11)
    assert moving(4, 200).retry_after_s(0, 200) == 1


def test_a_line_of_unknown_pace_may_be_tried_at_once_and_a_slow_one_not_too_late() -> None:
    assert Pace().retry_after_s(100, 50) == 1
    stuck = moving(4, 200)
    assert stuck.retry_after_s(40, 200 + HALF_LIFE_S) in (20, 21)
    assert stuck.retry_after_s(40, 10_000) == MAX_RETRY_AFTER_S
