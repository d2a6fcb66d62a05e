"""The structural tag of a turn that is made of messages.

A turn is reasoning and remarks, then an answer or calls. Every text excludes every control string,
so that nothing in it can be taken for a header, and each header is spelled out: no call can begin
but where the grammar means one, whatever the channel. `exclude_special_tokens: false` changes
nothing here: without the exclusion a text could open any message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toolrail.structural_tag import (
    TagFormat,
    any_text,
    const,
    either,
    optional,
    regex,
    sequence,
    tag,
)
from toolrail.structural_tag.templated import TagRequest
from toolrail.syntax import MessageSpelling, TurnSpelling

NON_EMPTY: Final = regex(r"[^<]")
"""The first character of a text that is not empty; it begins no marker."""


def turn_tag(
    spelling: TurnSpelling,
    request: TagRequest,
    calls: Sequence[TagFormat],
    *,
    thinks_first: bool = False,
) -> TagFormat | None:
    """The tag of a turn. `calls`: one format for each tool, from its header to its arguments.

    `thinks_first`: the turn begins with reasoning that is not empty, and has no remarks.
    None: nothing can be held, because the answer has begun and a call is asked for.
    """
    turn = _Turn(spelling, request, calls, thinks_first)
    match request.starts_in:
        case "none":
            return turn.whole()
        case "reasoning":
            between = const(spelling.between)
            if request.options.reasoning_boundary == "backend":
                return sequence([between, turn.after_thought()])
            rest = tag("", turn.text(), spelling.thought.ends[0])
            return sequence([rest, between, turn.after_thought()])
        case "response":
            return turn.rest_of_answer()


class _Turn:
    """Builds the parts of one request's turn."""

    def __init__(
        self,
        spelling: TurnSpelling,
        request: TagRequest,
        calls: Sequence[TagFormat],
        thinks_first: bool,
    ) -> None:
        self._spelling: Final = spelling
        self._request: Final = request
        self._calls: Final = calls
        self._thinks_first: Final = thinks_first

    def text(self) -> TagFormat:
        """Text without a control string."""
        return any_text(self._spelling.markers)

    def whole(self) -> TagFormat:
        """A turn from its first message on."""
        if not self._thinks_first:
            return self.after_thought()
        thought = self._spelling.thought
        text = sequence([NON_EMPTY, self.text()])
        first = tag(thought.begin, text, thought.ends[0])
        return sequence([first, const(self._spelling.between), self.after_thought()])

    def after_thought(self) -> TagFormat:
        """What may come where reasoning need not: messages before the end, then the end."""
        if self._thinks_first:
            return self._end()
        before = [self._message(self._spelling.thought)]
        if self._request.policy.choice in ("auto", "none") and self._request.response is None:
            before.append(self._message(self._spelling.remark))
        message = sequence([either(before), const(self._spelling.between)])
        return sequence([{"type": "star", "content": message}, self._end()])

    def rest_of_answer(self) -> TagFormat | None:
        """A turn whose answer the prompt has begun."""
        policy, answer = self._request.policy, self._spelling.answer
        body = self.text() if self._request.response is None else self._request.response
        alone = sequence([body, self._closed(answer.ends)])
        forced = policy.choice in ("required", "named")
        if not forced and (policy.choice == "none" or self._request.response is not None):
            return alone
        if self._thinks_first or not self._calls:
            return None if forced else alone
        remark = tag("", self.text(), self._spelling.remark.ends[0])
        called = sequence([remark, const(self._spelling.between), self.after_thought()])
        return called if forced else either([alone, called])

    def _end(self) -> TagFormat:
        """The answer or the calls with which the turn ends, whichever are allowed."""
        choice = self._request.policy.choice
        ends: list[TagFormat] = []
        if choice in ("auto", "none"):
            ends.append(self._answer())
        if choice != "none" and self._calls:
            ends.append(self._call_list())
        return either(ends)

    def _answer(self) -> TagFormat:
        answer = self._spelling.answer
        body = self.text() if self._request.response is None else self._request.response
        return sequence([const(answer.begin), body, self._closed(answer.ends)])

    def _call_list(self) -> TagFormat:
        spelling = self._spelling.call
        # Engines stop at a closer that is a stop token, so the last one may be missing.
        ends = [spelling.end + end for end in dict.fromkeys((*spelling.ends, *spelling.last, ""))]
        tags = [{**tag("", call, ""), "end": ends} for call in self._calls]
        single = self._request.policy.single
        if single and len(tags) == 1:
            return tags[0]
        return {
            "type": "tags_with_separator",
            "tags": tags,
            "separator": self._spelling.between,
            "at_least_one": True,
            "stop_after_first": single,
        }

    def _message(self, spelling: MessageSpelling) -> TagFormat:
        return tag(spelling.begin, self.text(), spelling.ends[0])

    def _closed(self, ends: Sequence[str]) -> TagFormat:
        return optional(either([const(end) for end in ends]))
