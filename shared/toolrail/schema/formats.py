"""Formats of strings as regular expressions.

`format` is an annotation unless one decides otherwise; held by the grammar it keeps a model on the
road. The engine's own formats are not used: some of them let raw quotes and control characters into
a JSON string, and none keeps a closing tag out of a raw value.
"""

from __future__ import annotations

from typing import Final

_DATE: Final = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME: Final = (
    r"([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\.[0-9]+)?"
    r"([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_BYTE: Final = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = rf"{_BYTE}(\.{_BYTE}){{3}}"
_HEX: Final = r"[0-9A-Fa-f]{1,4}"
_IPV6: Final = "|".join(
    (
        rf"({_HEX}:){{7}}{_HEX}",
        rf"({_HEX}:){{1,7}}:",
        *(rf"({_HEX}:){{1,{7 - n}}}(:{_HEX}){{1,{n}}}" for n in range(1, 7)),
        rf":(:{_HEX}){{1,7}}",
        "::",
        rf"({_HEX}:){{6}}{_IPV4}",
        rf"::([Ff]{{4}}:)?{_IPV4}",
    )
)
_URI_CHARS: Final = r"[A-Za-z0-9._~!$&'()*+,;=:@/?#\[\]-]*"
_URI_TEXT: Final = rf"{_URI_CHARS}(%[0-9A-Fa-f]{{2}}{_URI_CHARS})*"
_CLOCK: Final = r"([0-9]+H([0-9]+M)?([0-9]+S)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
_DAYS: Final = r"([0-9]+Y([0-9]+M)?([0-9]+D)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
_HOST: Final = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_POINTER: Final = r"(/([^/~]|~[01])*)*"

FORMATS: Final = {
    "date": rf"^{_DATE}$",
    "time": rf"^{_TIME}$",
    "date-time": rf"^{_DATE}[Tt]{_TIME}$",
    "duration": rf"^P({_DAYS}(T{_CLOCK})?|T{_CLOCK}|[0-9]+W)$",
    "email": rf"^{_ATOM}(\.{_ATOM})*@{_HOST}$",
    "hostname": rf"^{_HOST}$",
    "ipv4": rf"^{_IPV4}$",
    "ipv6": rf"^({_IPV6})$",
    "uuid": r"^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$",
    "uri": rf"^[A-Za-z][A-Za-z0-9+.-]*:{_URI_TEXT}$",
    "uri-reference": rf"^{_URI_TEXT}$",
    "json-pointer": rf"^{_POINTER}$",
    "relative-json-pointer": rf"^(0|[1-9][0-9]*)(#|{_POINTER})$",
}
"""ECMA-262 expressions of whole values, by name of the format.

Sources: JSON Schema 2020-12 validation, section 7.3, and the RFCs named there, without their rarest
forms (quoted local parts of mail addresses, zone ids, the shortest month)."""
