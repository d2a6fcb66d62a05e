"""The rules of a redactor, and the file that adds an operator's own.

builtin = ["api_key", "bearer", "email"]   # default: all of them
fields = ["date_of_birth"]                 # whatever stands in fields of that name
paths = ["$.metadata.customer"]            # and at these places

[[patterns]]
name = "customer_number"
pattern = 'CUST-[0-9]{8}'
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from toolrail.errors import ConfigError
from toolrail.redaction.builtin import EXPRESSIONS
from toolrail.redaction.linear import Pattern, PatternError
from toolrail.redaction.paths import Paths
from toolrail.redaction.spans import NAME

MAX_PATTERNS: Final = 100
RESERVED: Final = frozenset({"field", "path", "logprobs", "depth", "text"})
"""Names that say something else was replaced than what a pattern found."""

_FieldName: TypeAlias = Annotated[str, Meta(pattern=r"^[\w .:-]{1,64}\Z")]


class PatternRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An expression (RE2's syntax); where it has a group `secret`, that alone is blacked out."""

    name: Annotated[str, Meta(pattern=NAME)]
    pattern: Annotated[str, Meta(min_length=1, max_length=4096)]


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a redactor looks for.

    Attributes:
        builtin: names of `EXPRESSIONS` that are used; None: all.
        fields: names of fields besides the built-in ones; case, `_` and `-` do not count.
        paths: places in a request's body and in an answer.
        patterns: of the operator.
    """

    builtin: tuple[str, ...] | None = None
    fields: Annotated[tuple[_FieldName, ...], Meta(max_length=100)] = ()
    paths: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    patterns: Annotated[tuple[PatternRule, ...], Meta(max_length=MAX_PATTERNS)] = ()


def load_rules(path: Path) -> Rules:
    """The rules of a TOML file, every one of them usable. Reads it.

    Raises:
        ConfigError: it cannot be read, or a rule cannot be used; it says which.
    """
    try:
        rules = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Rules)
        check(rules)
    except OSError as error:
        raise _bad(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise _bad(f"{path}: {error}") from None
    return rules


def check(rules: Rules) -> None:
    """Refuse rules that cannot be used. Raises ValueError."""
    for name in rules.builtin or ():
        if name not in EXPRESSIONS:
            raise ValueError(f"no built-in rule {name!r}; there are {', '.join(EXPRESSIONS)}")
    names = [rule.name for rule in rules.patterns]
    for name in names:
        if name in EXPRESSIONS or name in RESERVED or names.count(name) > 1:
            raise ValueError(f"the name {name!r} is taken")
    for rule in rules.patterns:
        try:
            Pattern(rule.pattern)
        except PatternError as error:
            raise ValueError(f"pattern {rule.name!r}: {error}") from None
    Paths(rules.paths)


def _bad(text: str) -> ConfigError:
    return ConfigError("redaction_file", text)
