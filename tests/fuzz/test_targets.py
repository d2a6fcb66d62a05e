"""Every fuzzer, with the same few inputs in each run. `make fuzz` goes on from there."""

from __future__ import annotations

import pytest

from tests.fuzz.messages import DECODERS, kinds
from tests.fuzz.table import TARGETS
from toolrail import messages

pytestmark = pytest.mark.security


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_are_dealt_with(name: str) -> None:
    target = TARGETS[name]
    target.try_found()
    target.run(target.bounded)


def test_every_hand_over_and_frame_has_a_decoder_that_is_fuzzed() -> None:
    decoded = {kind for name in DECODERS if name != "token_ids" for kind in kinds(DECODERS[name])}
    assert {messages.Prepare, messages.Stream, messages.Job, messages.TokenFrame} <= decoded
    assert {messages.EventFrame, messages.Accepted, messages.Failed} <= decoded
