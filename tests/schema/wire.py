"""Arguments as each style writes them, from the descriptions of the styles."""

from __future__ import annotations

import json

STYLES = (
    "json",
    "qwen_xml",
    "minimax_xml",
    "deepseek_xml",
    "deepseek_v4_1_xml",
    "glm_xml",
    "kimi_k3_xml",
    "minimax_m3_xml",
)
_ELEMENTS = {
    "qwen_xml": ("<parameter={name}>", "</parameter>"),
    "minimax_xml": ('<parameter name="{name}">', "</parameter>"),
    "deepseek_xml": (
        '<｜DSML｜parameter name="{name}" string="{is_string}">',
        "</｜DSML｜parameter>",
    ),
    "deepseek_v4_1_xml": (
        '<｜DSML｜ parameter name="{name}" string="{is_string}">',
        "</｜DSML｜ parameter>",
    ),
    "glm_xml": ("<arg_key>{name}</arg_key><arg_value>", "</arg_value>"),
    "kimi_k3_xml": (
        '<|open|>argument key="{name}" type="{type}"<|sep|>',
        "<|close|>argument<|sep|>",
    ),
}
_TYPES = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
_MARKER = "]<]minimax[>["


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def arguments(values: dict[str, object], style: str) -> str:
    """The arguments, in the order given."""
    if style == "json":
        return compact(values)
    if style == "minimax_m3_xml":
        return "".join(_m3_element(name, value) for name, value in values.items())
    opening, closing = _ELEMENTS[style]
    return "".join(
        opening.format(
            name=name,
            is_string=str(isinstance(value, str)).lower(),
            type="null" if value is None else _TYPES.get(type(value), "object"),
        )
        + (value if isinstance(value, str) else compact(value))
        + closing
        for name, value in values.items()
    )


def _m3_element(name: str, value: object) -> str:
    if isinstance(value, dict):
        inner = "".join(_m3_element(key, member) for key, member in value.items())
    elif isinstance(value, list):
        inner = "".join(_m3_element("item", member) for member in value)
    else:
        inner = value if isinstance(value, str) else compact(value)
    return f"{_MARKER}<{name}>{inner}{_MARKER}</{name}>"
