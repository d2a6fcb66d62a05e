r"""Regular expressions that cannot write a marker.

In the XML styles a `pattern` replaces the grammar's guard of the closing tag: with `^.*$` the text
`x</parameter>y` is one value to the grammar and the end of one to the parser. A pattern is
therefore held only in a form whose strings contain no `<`, by taking that character out of every
set that has it.
"""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Sequence
from typing import Final

from toolrail.schema.regex.anchored import whole
from toolrail.schema.regex.parse import RegexError, parse
from toolrail.schema.regex.positions import Positions

_FORBIDDEN: Final = "<"
_LOOKAROUND: Final = re.compile(r"\(\?(?!:)")
_CODED: Final = r"\\u\{[0-9a-fA-F]{1,6}\}|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}"
"""A character by its number, as the engine reads it."""
_ITEM: Final = re.compile(rf"{_CODED}|\\.|.", re.DOTALL)
_UNKNOWN_ESCAPES: Final = frozenset("bBpPkAzZG0123456789cxu")
_COMPLEMENTS: Final = {"S": r"[^\s<]", "W": r"[^\w<]", "D": r"[^\d<]"}
_MAX_NAMES_CHARS: Final = 600
"""Names that `any_name_but` can leave out, all together."""
_FIRSTS: Final = string.ascii_letters + "_"
_CHARACTERS: Final = _FIRSTS + string.digits
_QUANTIFIER: Final = re.compile(r"\*|\+|\?|\{(?P<least>\d+)(?P<comma>,(?P<most>\d*))?\}")
_END: Final = re.compile("(?:\x7f\\{0\\})?\\$?")
TEXT_BREAKERS: Final = '"\t\n\v\f\r '
"""With what text begins that may be read as a JSON string."""


def without_opening_angle(pattern: str) -> str | None:
    """`pattern` less the strings that contain `<`; None when it needs one or is not understood."""
    if _LOOKAROUND.search(pattern):
        return None
    out: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            escape = _item(pattern, at)
            if not _understood(escape) or _plain(escape) == _FORBIDDEN:
                return None
            out.append(_COMPLEMENTS.get(escape[1:], escape))
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


def begins_or_ends_with(pattern: str, character: str) -> bool:
    """Whether a text of `pattern`, an ECMA-262 search, may; True where that cannot be told."""
    try:
        parsed = parse(pattern)
        if parsed.looks:
            return True
        found = Positions(whole(parsed.node))
    except RegexError:
        return True
    return any(character in found.sets[place] for place in found.first | found.last)


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


def _reduced_class(source: str, forbidden: str = _FORBIDDEN) -> str | None:
    """A character class without a character, None when nothing is left or it is not understood."""
    negated = source.startswith("[^")
    body = source[2:-1] if negated else source[1:-1]
    if not _understood(body):
        return None
    if negated:
        return f"[^{body}{_written(forbidden)}]"
    if re.search(r"\\[SWD]", body):
        # The union with a complement is nearly everything.
        return f"[^{forbidden}]" if forbidden == _FORBIDDEN else None
    kept = _without_ranges(body, forbidden)
    return f"[{kept}]" if kept else None


def _understood(body: str) -> bool:
    items: list[str] = _ITEM.findall(body)
    escapes = [item[1:] for item in items if item.startswith("\\") and len(item) < 3]
    return not any(escape == "" or escape in _UNKNOWN_ESCAPES for escape in escapes)


def _without_ranges(body: str, forbidden: str) -> str:
    """The items of a class body, ranges that span the character split around it."""
    items: list[str] = _ITEM.findall(body)
    out: list[str] = []
    at = 0
    while at < len(items):
        low = items[at]
        if at + 2 < len(items) and items[at + 1] == "-":
            out.append(_split_range(low, items[at + 2], forbidden))
            at += 3
        else:
            if _plain(low) != forbidden:
                out.append(low)
            at += 1
    return "".join(out)


def _split_range(low: str, high: str, forbidden: str) -> str:
    first, last = _plain(low), _plain(high)
    if first is None or last is None or not first <= forbidden <= last:
        return f"{low}-{high}"
    before, after = chr(ord(forbidden) - 1), chr(ord(forbidden) + 1)
    below = f"{low}-{_written(before)}" if first < before else _written(before)
    above = f"{_written(after)}-{high}" if last > after else _written(after)
    return (below if first <= before else "") + (above if last >= after else "")


def _written(character: str) -> str:
    """A character as a class may hold it."""
    return character if character in ";<=" else f"\\x{ord(character):02x}"


def _plain(item: str) -> str | None:
    """The character that a class item stands for, None for a set."""
    if len(item) == 1:
        return item
    if len(item) > 2:
        number = int(item[2:].strip("{}"), 16)
        return chr(number) if number <= sys.maxunicode else None
    controls = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\f": "\f", "\\v": "\v"}
    return controls.get(item) or (None if item[1].isalnum() else item[1])


def _item(pattern: str, at: int) -> str:
    """The character, escape or number that stands at `at`."""
    found = _ITEM.match(pattern, at)
    return found[0] if found else ""


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


def beginning_as_text(pattern: str) -> str | None:
    """`pattern` less the strings that begin with a quotation mark or whitespace.

    None when that cannot be told from its first character: it is optional, or in a group.
    """
    body = pattern.removeprefix("^")
    first = body[:1]
    atom = body[: _class_end(body, 0)] if first == "[" else _item(body, 0)
    safe = _safe(atom)
    if safe is None or _has_alternatives(body):
        return None
    rest = body[len(atom) :]
    found = _QUANTIFIER.match(rest)
    if found is None:
        return f"^{safe}{rest}"
    rest = rest[found.end() :]
    least, most = _bounds(found)
    if most == 0:
        return f"^{rest}" if _END.fullmatch(rest) else None
    more = "*" if most is None else f"{{{max(least - 1, 0)},{most - 1}}}"
    if most is None and least > 1:
        more = f"{{{least - 1},}}"
    head = safe + (f"{atom}{more}" if most != 1 else "")
    if least:
        return f"^{head}{rest}"
    return f"^(?:{head})?{rest}" if _END.fullmatch(rest) else None


def _safe(atom: str) -> str | None:
    """What one character of an atom may be at the beginning."""
    if not atom.startswith("["):
        plain = _plain(atom) if atom and _understood(atom) else None
        if plain is None or (len(atom) == 1 and atom in ".^$*+?()|{}[]"):
            return None
        return None if plain in TEXT_BREAKERS else atom
    if re.search(r"\\[sSWD]", atom):
        return None
    found: str | None = atom
    for character in TEXT_BREAKERS:
        found = _reduced_class(found, character) if found else None
    return found


def _bounds(quantifier: re.Match[str]) -> tuple[int, int | None]:
    """How often, at least and at most."""
    if quantifier["least"] is None:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[quantifier[0]]
    least = int(quantifier["least"])
    if quantifier["comma"] is None:
        return least, least
    return least, int(quantifier["most"]) if quantifier["most"] else None


def _has_alternatives(pattern: str) -> bool:
    """Whether there is a choice outside every group."""
    depth = at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "[":
            at = _class_end(pattern, at) or len(pattern)
            continue
        depth += (character == "(") - (character == ")")
        if character == "|" and not depth:
            return True
        at += len(_item(pattern, at))
    return False
