"""Stop strings over a stream of text, linear whatever the strings.

An Aho-Corasick automaton walks each character once. Its depth is the length of the longest suffix
of the text so far that could still become a stop string: exactly what must be held back.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class _Node:
    """A prefix of stop strings; `hit` is the longest stop string that ends here."""

    depth: int
    fail: int = 0
    hit: str | None = None


class StopStrings:
    """The automaton of a request's stop strings, shared by its choices. Empty strings are ignored.

    Of matches that end at the same character the longest counts, so where text is cut does not
    depend on how it came.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self.nodes = [_Node(0)]
        self.moves: list[dict[str, int]] = [{}]
        for string in strings:
            self._add(string)
        self._link()
        # Between matches most text begins no stop string; the search skips it at C speed.
        starts = "".join(re.escape(character) for character in self.moves[0])
        self.first = re.compile(f"[{starts}]") if starts else None

    def __bool__(self) -> bool:
        return self.first is not None

    def next(self, node: int, character: str) -> int:
        """Where `character` leads from `node`. Amortised O(1) over a text."""
        while node and character not in self.moves[node]:
            node = self.nodes[node].fail
        return self.moves[node].get(character, 0)

    def _add(self, string: str) -> None:
        node = 0
        for depth, character in enumerate(string, 1):
            following = self.moves[node].get(character)
            if following is None:
                following = self.moves[node][character] = len(self.nodes)
                self.nodes.append(_Node(depth))
                self.moves.append({})
            node = following
        if node:
            self.nodes[node].hit = string

    def _link(self) -> None:
        queue = deque(self.moves[0].values())
        while queue:
            node = queue.popleft()
            for character, following in self.moves[node].items():
                fail = self.next(self.nodes[node].fail, character)
                self.nodes[following].fail = fail
                self.nodes[following].hit = self.nodes[following].hit or self.nodes[fail].hit
                queue.append(following)


class StopMatcher:
    """Looks for the first stop string to complete in one choice's visible text."""

    def __init__(self, strings: StopStrings) -> None:
        self._strings = strings
        self._node = 0
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """The text that is safe to show, and the stop string that ends it, if one came."""
        strings = self._strings
        node = self._node
        position = 0
        while position < len(text):
            if not node:
                start = strings.first.search(text, position) if strings.first else None
                if start is None:
                    break
                position = start.start()
            node = strings.next(node, text[position])
            position += 1
            if (hit := strings.nodes[node].hit) is not None:
                return self._before(hit, text, position)
        shown = self._held + text
        held = strings.nodes[node].depth
        self._node = node
        self._held = shown[len(shown) - held :]
        return shown[: len(shown) - held], None

    def flush(self) -> str:
        """What was held back: it is no stop string, since something else than text follows it."""
        held, self._held, self._node = self._held, "", 0
        return held

    def _before(self, hit: str, text: str, end: int) -> tuple[str, str]:
        shown = self._held + text[:end]
        self.flush()
        return shown[: len(shown) - len(hit)], hit
