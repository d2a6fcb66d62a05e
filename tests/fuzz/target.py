"""What a fuzzer is: inputs, and what must hold of each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

E = TypeVar("E", bound=Exception)

_ALL: Final = list(HealthCheck)
_PHASES: Final = (Phase.generate, Phase.target, Phase.shrink)


@dataclass(frozen=True)
class Target:
    """A fuzzer.

    Attributes:
        name: what it is called on the command line.
        inputs: where its inputs come from.
        check: fails where one is not dealt with as it must be.
        found: inputs that were once not; they are tried first, always.
        bounded: how many are drawn in CI, in a second or two.
    """

    name: str
    inputs: st.SearchStrategy[Any]
    check: Callable[[Any], None]
    found: tuple[Any, ...] = ()
    bounded: int = 100

    def try_found(self) -> None:
        """Check what was once a fault."""
        for value in self.found:
            self.check(value)

    def run(self, count: int, *, drawn_with: int | None = None) -> None:
        """Check `count` inputs, the same each time or those that a seed draws.

        A fault is shrunk, shown and raised.
        """

        def fuzz(value: Any) -> None:
            self.check(value)

        wanted = settings(
            max_examples=count,
            deadline=None,
            suppress_health_check=_ALL,
            phases=_PHASES,
            print_blob=False,
            database=None,
            derandomize=drawn_with is None,
        )
        test = wanted(given(self.inputs)(fuzz))
        if drawn_with is not None:
            test = seed(drawn_with)(test)
        test()


def mutated(data: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """`data` with up to four places changed: bytes replaced, left out, put in, or said again."""
    return st.builds(_mutated, data, st.lists(_EDITS, min_size=1, max_size=4))


_EDITS: Final = st.tuples(
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 8),
    st.binary(max_size=4) | st.sampled_from([b"\xff" * 8, b"\x00" * 8, b"\xdd\xff\xff\xff\xff"]),
    st.booleans(),
)


def _mutated(data: bytes, edits: list[tuple[float, int, bytes, bool]]) -> bytes:
    for place, gone, new, again in edits:
        at = int(place * (len(data) + 1))
        data = data[:at] + (data[at : at + 64] if again else new) + data[at + gone :]
    return data


def raised(kind: type[E], call: Callable[[], object]) -> E | None:
    """The error of that kind with which `call` ends; None when it ends well."""
    try:
        call()
    except kind as error:
        return error
    return None


def cuts(text: str) -> st.SearchStrategy[list[str]]:
    """`text` in pieces, some of them empty."""
    places = st.lists(st.integers(0, len(text)), max_size=8).map(sorted)
    return places.map(
        lambda at: [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
    )
