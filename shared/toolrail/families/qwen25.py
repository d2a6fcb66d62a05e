"""qwen25: the wire of `hermes`, with one stricter rule.

An unterminated wrapper is no call even when its body is complete. `hermes` is the better choice
for users; this preset keeps the contract of peers that dispatch closed wrappers only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from toolrail.families.hermes import SOURCE, SYNTAX, THINK, THINKING_NAMES
from toolrail.templated import templated

FAMILY: Final = templated(
    name="qwen25",
    source=SOURCE,
    syntax=replace(SYNTAX, closer_required=True),
    reasoning=THINK,
    reasoning_names=THINKING_NAMES,
    special=("<tool_call>", "</tool_call>", "<think>", "</think>"),
    routes=frozenset({"1"}),
)
