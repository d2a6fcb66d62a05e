"""Every fuzzer, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.fuzz import messages, names, requests, streams, texts
from tests.fuzz.target import Target

TARGETS: Final[Mapping[str, Target]] = {
    target.name: target
    for module in (messages, requests, streams, texts, names)
    for target in module.TARGETS
}
