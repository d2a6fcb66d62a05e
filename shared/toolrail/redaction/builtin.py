"""What is looked for without being asked: secrets, media, and what tells who a person is.

Each shape is one that a text has by its form alone. Where digits could be anything, a check sum
decides. What has no form of its own (names, addresses, passwords in prose) cannot be found so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from toolrail.redaction.linear import Span

Narrow: TypeAlias = Callable[[bytes], Iterator[Span]]
"""Which parts of a match are meant."""

MEDIA: Final = "media"

_KEYS: Final[Sequence[str]] = (
    r"\btr_[0-9a-f]{12}_[A-Za-z0-9_-]{43}",  # ours
    r"\bsk-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic and those who took after them
    r"\b[rsp]k_(?:live|test)_[A-Za-z0-9]{16,}",  # Stripe
    r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",  # AWS
    r"\bgh[pousr]_[A-Za-z0-9]{36,}",  # GitHub
    r"\bgithub_pat_[A-Za-z0-9_]{22,}",
    r"\bglpat-[A-Za-z0-9_-]{20,}",  # GitLab
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"\bAIza[0-9A-Za-z_-]{35}",  # Google
    r"\bya29\.[A-Za-z0-9_-]{20,}",
    r"\bhf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"\bnvapi-[A-Za-z0-9_-]{40,}",
    r"\bnpm_[A-Za-z0-9]{36}",
    r"\bpypi-[A-Za-z0-9_-]{50,}",
    r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",  # SendGrid
    r"\bS[UAOCNX][A-Z2-7]{56}\b",  # seeds of NATS' nkeys
)
_WORDS: Final = (
    r"(?:password|passwd|passphrase|pwd|secret|api[_-]?key|access[_-]?key|access[_-]?token|"
    r"auth[_-]?token|refresh[_-]?token|client[_-]?secret|private[_-]?key)"
)

EXPRESSIONS: Final[Mapping[str, str]] = {
    # What a data URL holds; first, since base64 can look like anything.
    MEDIA: r"data:[A-Za-z0-9.+/-]{1,64}(?:;[A-Za-z0-9=._-]{1,64}){0,4};base64,"
    r"[A-Za-z0-9+/=_-]{64,}",
    # To its end, or to the text's where that is missing.
    "private_key": r"(?s)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\z)",
    "jwt": r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){1,3}",
    "api_key": "|".join(_KEYS),
    "bearer": r"(?i)\bbearer\s+(?P<secret>[A-Za-z0-9._~+/=-]{16,})"
    r"|\bauthorization[\"']?\s*[:=]\s*[\"']?(?:basic|digest|token)\s+[A-Za-z0-9._~+/=-]{8,}",
    "url_password": r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@\"']{0,128}"
    r":(?P<secret>[^\s/@\"']{1,256})@",
    "password": rf"(?i)\b{_WORDS}[\"'`]?\s*(?:[:=]|:=|=>)\s*[\"'`]?(?P<secret>[^\s\"'`,;]{{6,}})",
    "email": r"[\pL\pN._%+'-]+@[\pL\pN-]+(?:\.[\pL\pN-]+)+",
    "iban": r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b",
    "card": r"\b[0-9]{13,19}\b|\b[0-9]{4,6}(?:[ \x{a0}-][0-9]{2,7}){2,}\b",
    "ssn": r"\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b",
    "phone": r"\+[1-9](?:[ .()/-]{0,2}[0-9]){7,14}\b"
    r"|(?:\([2-9][0-9]{2}\) ?|\b[2-9][0-9]{2}[.-])[2-9][0-9]{2}[.-][0-9]{4}\b",
}
"""By name; the earlier gives a place its name where two overlap. RE2's syntax."""

FIELDS: Final = frozenset(
    {
        "password", "passwd", "passphrase", "pwd", "secret", "clientsecret", "secretkey",
        "apikey", "accesskey", "secretaccesskey", "accesstoken", "refreshtoken", "idtoken",
        "authtoken", "sessiontoken", "bearertoken", "authorization", "proxyauthorization",
        "cookie", "setcookie", "privatekey", "credentials", "cvv", "cvc",
    }
)  # fmt: skip
"""Names of fields that hold secrets, as `field_name` writes them. Not `token`: tokens are text."""


def field_name(name: str) -> str:
    """A field's name as names are compared: `api_key`, `API-Key` and `apiKey` are one."""
    return name.replace("_", "").replace("-", "").lower()


def written(names: frozenset[str]) -> Sequence[str]:
    """Expressions for the values of such fields in JSON text.

    Strings, other scalars, and strings in JSON that is itself a string in JSON.
    """
    spelt = "|".join("[_-]?".join(re.escape(letter) for letter in name) for name in sorted(names))
    key = rf"(?is)(?:{spelt})"
    return (
        rf"{key}[\"']\s*:\s*\"(?P<secret>(?:[^\"\\]|\\.)+)",
        rf"{key}[\"']\s*:\s*'(?P<secret>(?:[^'\\]|\\.)+)",
        rf"{key}[\"']\s*:\s*(?P<secret>[^\s\"'\\\[{{,}}\]][^\s,}}\]]*)",
        rf"{key}\\[\"']\s*:\s*\\[\"'](?P<secret>(?:[^\"'\\]|\\[^\"'])+)",
    )


def cut(names: frozenset[str]) -> str:
    """An expression for such a field that holds an array or object, and for all that follows.

    For JSON that was cut, where the end of what it holds is not known.
    """
    spelt = "|".join("[_-]?".join(re.escape(letter) for letter in name) for name in sorted(names))
    return rf"(?is)(?:{spelt})[\"']\s*:\s*(?P<secret>[\[{{].*)"


_DIGITS: Final = re.compile(rb"[0-9]+")
_ISSUER: Final = re.compile(
    rb"4|5[0-8]|2(?:2(?:0[0-4]|2[1-9]|[3-9])|[3-6]|7(?:[01]|20))|3(?:0[0-5]|[4-9])|6|81"
)
"""How cards' numbers begin (ISO 7812): years, counters and clocks do not, and are many."""


_DOUBLED: Final = bytes.maketrans(b"0123456789", b"0246813579")
_MAX_ROW: Final = 5000
"""Bytes of one row of digits; a longer one is blacked out whole."""


def cards(match: bytes) -> Iterator[Span]:
    """Card numbers in groups of digits: whole groups, an issuer, 13 to 19 digits, a check digit."""
    if len(match) > _MAX_ROW:
        yield 0, len(match)
        return
    groups = [found.span() for found in _DIGITS.finditer(match)]
    for at, (start, end) in enumerate(groups):
        if end - start < 4 or _ISSUER.match(match, start, end) is None:
            continue
        # Also those that overlap: what is left of the other one would be half a secret.
        last = _card_end(match, groups, at)
        if last is not None:
            yield start, last


def _card_end(match: bytes, groups: Sequence[Span], at: int) -> int | None:
    found: int | None = None
    digits = b""
    for start, end in groups[at : at + 5]:
        digits += match[start:end]
        if len(digits) > 19:
            break
        if len(digits) >= 13 and _luhn(digits):
            found = end
    return found


def _luhn(digits: bytes) -> bool:
    # Whole slices: the ASCII zeros that each digit brings are taken off at once.
    total = sum(digits[-1::-2]) + sum(digits[-2::-2].translate(_DOUBLED)) - 48 * len(digits)
    return total % 10 == 0 and digits.strip(b"0") != b""


def ibans(match: bytes) -> Iterator[Span]:
    """The match, if its check digits are right (ISO 7064, 97-10)."""
    compact = match.replace(b" ", b"").decode()
    moved = compact[4:] + compact[:4]
    if 15 <= len(compact) <= 34 and int("".join(str(int(c, 36)) for c in moved)) % 97 == 1:
        yield 0, len(match)


NARROWED: Final[Mapping[str, Narrow]] = {"card": cards, "iban": ibans}
