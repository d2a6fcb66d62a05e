"""How a value is written as a parameter's text: the one spelling of renderer and tag."""

from __future__ import annotations

import json

from toolrail.arguments.types import is_json, json_string
from toolrail.syntax import XmlStyle


def parameter_opening(style: XmlStyle, key: str, kind: str) -> str:
    """A parameter's opening tags, framing aside, for a value of this JSON type."""
    for character, entity in style.entities:
        key = key.replace(character, entity)
    quote = style.quotes[:1]
    told = ""
    if style.attribute is not None:
        told = style.attribute.before + style.attribute.word(kind) + style.attribute.after
    return f"{style.open}{quote}{key}{quote}{told}{style.key_end}{style.value_open}"


def parameter_text(style: XmlStyle, value: object) -> str:
    """What stands between a parameter's opening tag and its closer, framing included."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if style.values == "json_or_text" and isinstance(value, str) and is_json(value):
        text = json_string(value)
    frame = style.frame
    if frame and (style.framed or text.startswith(frame) or text.endswith(frame)):
        return frame + text + frame
    return text
