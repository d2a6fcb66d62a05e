"""How the grammar engine writes arguments, style by style, and what each style cannot hold.

A style is xgrammar's name for the encoding of one object of arguments. Measured on xgrammar 0.2.8;
`docs/schemas.md` has the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from toolrail.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Style:
    """One encoding of arguments.

    Attributes:
        name: as the engine spells it.
        closer: what ends a raw value; "": no value is raw, all is JSON.
        reserved: what no argument's name may hold, since names are copied as they are.
        recursive: nested objects and arrays are elements too, not JSON.
        notation: the engine has no such style: a grammar is written from the schema, in which
            strings are the same at every level and an expression is of the value, not of the wire.
        pads: the grammar lets white space stand around any value but a plain string.
        counts: the family's tag counts the characters of raw values (`schema.counting`): what it
            keeps out of them meanwhile, their closer or what that begins with; "": it does not.
        uncounted: what values that are counted from a shortest length on cannot do, but others can.
        counts_wire: characters are counted as they are written, and a string that looks like a JSON
            string is written as one.
        tells_type: the wire says the type of a value; `one` says it of a value of one type alone,
            and lets any type be said of a union.
    """

    name: str
    closer: str = ""
    reserved: str = ""
    recursive: bool = False
    notation: bool = False
    pads: bool = False
    counts: str = ""
    uncounted: str = ""
    counts_wire: bool = False
    tells_type: Literal["no", "yes", "one"] = "no"

    @property
    def is_json(self) -> bool:
        """True when the arguments are one JSON object."""
        return not self.closer

    def can_name(self, name: str) -> bool:
        """True when an argument of this name can be written and read back."""
        if not self.reserved:
            return True
        return bool(name) and name == name.strip() and not any(c in name for c in self.reserved)


_STYLES: Final = {
    style.name: style
    for style in (
        Style("json"),
        Style("qwen_xml", "</parameter>", '<>"\n\r', pads=True),
        Style("minimax_xml", "</parameter>", '<>"\n\r', pads=True),
        Style(
            "deepseek_xml",
            "</｜DSML｜parameter>",
            '<>"\n\r',
            counts="</｜",
            uncounted="hold '</｜'",
            tells_type="yes",
        ),
        Style(
            "deepseek_v4_1_xml",
            "</｜DSML｜ parameter>",
            '<>"\n\r',
            counts="</｜",
            tells_type="yes",
        ),
        Style("glm_xml", "</arg_value>", "<>\n\r", pads=True),
        Style("kimi_k3_xml", "<|close|>argument<|sep|>", "<>\n\r", pads=True, tells_type="one"),
        Style("xtml", "<|close|>argument<|sep|>", '<>"\n\r', counts="<|close|>", tells_type="yes"),
        Style("rfl", "</rfl:parameter>", '<>"\n\r'),
        Style(
            "atem",
            "</atem:parameter>",
            '<>"\n\r',
            counts="</at",
            uncounted="begin with a quotation mark or white space, nor hold '</at'",
            counts_wire=True,
        ),
        Style("minimax_m3_xml", "]<]minimax[>[", "<>/[]\n\r", recursive=True),
        Style(
            "minimax_m3",
            "]<]minimax[>[",
            "<>/[]\n\r",
            recursive=True,
            notation=True,
            counts="]<]minimax[>[",
        ),
        Style("gemma4", '<|"|>', notation=True, counts='<|"|>'),
        Style("pythonic", reserved=" \t\n\r=(),[]{}\"'`#:;<>|\\", notation=True),
    )
}


def style_named(name: str) -> Style:
    """The style. Raises ConfigError with the names that exist."""
    if name not in _STYLES:
        raise ConfigError("style", f"no argument style {name!r}; there are {', '.join(_STYLES)}")
    return _STYLES[name]
