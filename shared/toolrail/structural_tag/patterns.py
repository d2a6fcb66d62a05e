r"""Regular expressions that cannot write a marker.

In the XML styles a `pattern` replaces the grammar's guard of the closing tag: with `^.*$` the text
`x</parameter>y` is one value to the grammar and the end of one to the parser. A pattern is
therefore held only in a form whose strings contain no `<`, by taking that character out of every
set that has it.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Final

_FORBIDDEN: Final = "<"
_LOOKAROUND: Final = re.compile(r"\(\?(?!:)")
_ODD_UNICODE: Final = re.compile(r"\\u(?![0-9a-fA-F]{4})")
_UNKNOWN_ESCAPES: Final = frozenset("bBpPkAzZG0123456789cx")
_COMPLEMENTS: Final = {"S": r"[^\s<]", "W": r"[^\w<]", "D": r"[^\d<]"}
_MAX_NAMES_CHARS: Final = 600
"""Names that `any_name_but` can leave out, all together."""
_FIRSTS: Final = string.ascii_letters + "_"
_CHARACTERS: Final = _FIRSTS + string.digits
_FIRST_ATOM: Final = re.compile(r"\^?(?P<atom>[A-Za-z0-9_-]|\\[dw]|\[[A-Za-z0-9_\\dw-]+\])")


def without_opening_angle(pattern: str) -> str | None:
    """`pattern` less the strings that contain `<`; None when it needs one or is not understood."""
    if _LOOKAROUND.search(pattern) or _ODD_UNICODE.search(pattern):
        return None
    out: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            escape = pattern[at : at + 2]
            if len(escape) < 2 or escape[1] in _UNKNOWN_ESCAPES or escape[1] == _FORBIDDEN:
                return None
            if escape[1] == "u":
                escape = pattern[at : at + 6]
            out.append(_COMPLEMENTS.get(escape[1], escape))
            at += len(escape)
        elif character == "[":
            end = _class_end(pattern, at)
            reduced = _reduced_class(pattern[at:end]) if end else None
            if reduced is None:
                return None
            out.append(reduced)
            at = end
        elif character == _FORBIDDEN:
            return None
        else:
            out.append(r"[^<\n]" if character == "." else character)
            at += 1
    return "".join(out)


def _class_end(pattern: str, start: int) -> int:
    """Position after the character class that begins at `start`; 0 when it does not end."""
    at = start + 1
    if pattern[at : at + 1] == "^":
        at += 1
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == "]":
            return at + 1
        at += 1
    return 0


def _reduced_class(source: str) -> str | None:
    """A character class without `<`, None when that leaves nothing or it is not understood."""
    negated = source.startswith("[^")
    body = source[2:-1] if negated else source[1:-1]
    if negated:
        return f"[^{body}<]" if _understood(body) else None
    if not _understood(body):
        return None
    if re.search(r"\\[SWD]", body):
        return "[^<]"  # the union with a complement: nearly everything
    kept = _without_ranges(body)
    return f"[{kept}]" if kept else None


def _understood(body: str) -> bool:
    escapes = re.findall(r"\\(.)", body, re.DOTALL)
    return not any(e in _UNKNOWN_ESCAPES for e in escapes)


def _without_ranges(body: str) -> str:
    """The items of a class body, ranges that span `<` split around it."""
    items = re.findall(r"\\u[0-9a-fA-F]{4}|\\.|.", body, re.DOTALL)
    out: list[str] = []
    at = 0
    while at < len(items):
        low = items[at]
        if at + 2 < len(items) and items[at + 1] == "-":
            out.append(_split_range(low, items[at + 2]))
            at += 3
        else:
            if low not in (_FORBIDDEN, "\\<"):
                out.append(low)
            at += 1
    return "".join(out)


def _split_range(low: str, high: str) -> str:
    first, last = _plain(low), _plain(high)
    if first is None or last is None or not first <= _FORBIDDEN <= last:
        return f"{low}-{high}"
    below = f"{low}-;" if first < ";" else (";" if first == ";" else "")
    above = f"=-{high}" if last > "=" else ("=" if last == "=" else "")
    return below + above


def _plain(item: str) -> str | None:
    """The character that a class item stands for, None for a set."""
    if len(item) == 1:
        return item
    if item.startswith("\\u"):
        return chr(int(item[2:], 16))
    controls = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\f": "\f", "\\v": "\v"}
    return controls.get(item) or (None if item[1].isalnum() else item[1])


def any_name_but(names: Sequence[str]) -> str:
    """A pattern of every identifier but `names`; of every one, when those are too many."""
    written = {name for name in names if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)}
    if sum(map(len, written)) > _MAX_NAMES_CHARS:
        written = set[str]()
    return _but(written, _FIRSTS)


def _but(rests: set[str], characters: str) -> str:
    """What may follow where a name must not end as one of `rests` does."""
    heads = sorted({rest[0] for rest in rests if rest})
    others = "".join(c for c in characters if c not in heads)
    branches = [f"[{others}][A-Za-z0-9_]*"] if others else []
    for head in heads:
        after = {rest[1:] for rest in rests if rest[:1] == head}
        branches.append(head + _but(after, _CHARACTERS))
    may_end = "" not in rests and characters is not _FIRSTS
    return f"(?:{'|'.join(branches)}){'?' if may_end else ''}"


def begins_as_text(pattern: str) -> bool:
    """Whether what matches certainly begins with neither a quotation mark nor whitespace."""
    first = _FIRST_ATOM.match(pattern)
    if first is None or "|" in pattern:
        return False
    return pattern[first.end() : first.end() + 1] not in ("*", "?") and not re.match(
        r"\{0", pattern[first.end() :]
    )
