"""Every fuzzer, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.fuzz import messages, names, preparing, requests, streams, texts
from tests.fuzz.target import Target

TARGETS: Final[Mapping[str, Target]] = {
    target.name: target
    for module in (messages, requests, preparing, streams, texts, names)
    for target in module.TARGETS
}
