"""What a refused request is told: message, `param` and the published error code.

msgspec's messages are read here, and only here: they name the place (`$.messages[0].role`) and the
rule. Values are echoed up to a bound, so that a refusal never carries megabytes back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from toolrail.errors import CallerError
from toolrail.openai.limits import MAX_JSON_DEPTH

_MAX_ECHO_CHARS: Final = 80
_PLACE: Final = re.compile(r" - at (?:`key` in )?`\$\.?(?P<param>[^`]*)`\Z")
_TYPE_NAMES: Final = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
}
_LENGTHS: Final = {
    "str": ("string", "characters"),
    "array": ("array", "elements"),
    "object": ("object", "keys"),
}

# What may stand there, by path (indexes left out) or by the path's last name.
_SUPPORTED: Final = {
    "role": "'system', 'developer', 'user', 'assistant' and 'tool'",
    "tool_choice": "'none', 'auto', 'required' or an object that names a tool",
    "tool_choice.type": "'function', 'custom' and 'allowed_tools'",
    "tools.type": "'function' and 'custom'",
    "tools.custom.format.type": "'text' and 'grammar'",
    "syntax": "'lark' and 'regex'",
    "response_format.type": "'text', 'json_object' and 'json_schema'",
    "messages.content.type": "'text'",
    "input.content.type": "'input_text', 'output_text' and 'refusal'",
    "input.output.type": "'input_text'",
    "text.format.type": "'text', 'json_object' and 'json_schema'",
    "text.verbosity": "'low', 'medium' and 'high'",
    "reasoning.effort": "'none', 'minimal', 'low', 'medium', 'high', 'xhigh' and 'max'",
    "truncation": "'auto' and 'disabled'",
    "reasoning_effort": "'none', 'minimal', 'low', 'medium', 'high', 'xhigh' and 'max'",
    "service_tier": "'auto' and 'default'",
}

# Fields that people send and that belong elsewhere.
_HINTS: Final = {
    "best_of": "Use 'n'.",
    "chat_template": "The operator sets the template (worker flag --custom-jinja-template).",
    "enable_thinking": 'Use "chat_template_kwargs": {"enable_thinking": …}.',
    "thinking": 'Use "chat_template_kwargs": {"thinking": …}.',
    "reasoning": "Use 'reasoning_effort'.",
    "max_output_tokens": "Use 'max_completion_tokens'.",
    "messages": "Responses takes 'input'.",
    "max_tokens": "Use 'max_output_tokens'.",
    "max_completion_tokens": "Use 'max_output_tokens'.",
    "response_format": "Use 'text.format'.",
    "reasoning_effort": "Use 'reasoning.effort'.",
    "logprobs": "Use 'include': ['message.output_text.logprobs'].",
    "n": "A response has one answer.",
    "input": "Chat Completions takes 'messages'; 'input' is a field of Responses.",
    "instructions": "Use a system message; 'instructions' is a field of Responses.",
    "prompt": "Chat Completions takes 'messages'.",
    "system": "Use a system message.",
    "tools[].strict": "It belongs inside 'function'.",
}


def refusal(message: str, *, param: str, code: str = "invalid_value") -> CallerError:
    """A 400 for one field; `code` as the published API spells it."""
    return CallerError(message, param=param, code=code)


def not_json(problem: str, param: str) -> CallerError:
    """A 400 for text that is not JSON. `param` "": the body itself."""
    what = f"'{param}'" if param else "The request body"
    if "utf" in problem.lower() and "surrogate" not in problem:
        message = f"{what} is not valid UTF-8."
    else:
        message = f"{what} is not valid JSON: {problem.removeprefix('JSON is malformed: ')}."
    return CallerError(message, param=param or None, code="invalid_json")


def too_deep(param: str) -> CallerError:
    """A 400 for JSON that nests beyond the bound. `param` "": the body itself."""
    what = f"'{param}'" if param else "The request body"
    return CallerError(
        f"{what} nests too deeply: at most {MAX_JSON_DEPTH} levels.",
        param=param or None,
        code="invalid_json",
    )


def wrong_shape(problem: str, path: str = "") -> CallerError:
    """A 400 for JSON of the wrong shape at `path`; `problem` is msgspec's message on it."""
    place = _PLACE.search(problem)
    param = place["param"].replace("[...]", "") if place else ""
    if path:
        param = path + param if param.startswith("[") else _joined(path, param) if param else path
    detail = problem[: place.start()] if place else problem
    for pattern, refuse in _REFUSALS:
        if found := pattern.match(detail):
            return refuse(param, found)
    return _refused(param, f"Invalid value for {_named(param)}: {shortened(detail)}.")


def shortened(text: str) -> str:
    """`text`, cut to what may be echoed to the caller."""
    return text if len(text) <= _MAX_ECHO_CHARS else f"{text[:_MAX_ECHO_CHARS]}…"


def _wrong_type(param: str, found: re.Match[str]) -> CallerError:
    wanted = [_TYPE_NAMES.get(name, name) for name in found["wanted"].split(" | ")]
    got = _TYPE_NAMES.get(found["got"], found["got"])
    return _refused(
        param,
        f"Invalid type for {_named(param)}: expected {' or '.join(wanted)}, but got {got} instead.",
        "invalid_type",
    )


def _missing(param: str, found: re.Match[str]) -> CallerError:
    path = _joined(param, found["name"])
    return _refused(path, f"Missing required parameter: '{path}'.", "missing_required_parameter")


def _unknown(param: str, found: re.Match[str]) -> CallerError:
    path = _joined(param, shortened(found["name"]))
    hint = _HINTS.get(re.sub(r"\[\d+\]", "[]", path), "")
    return _refused(path, f"Unknown parameter: '{path}'. {hint}".rstrip(), "unknown_parameter")


def _wrong_length(param: str, found: re.Match[str]) -> CallerError:
    kind, unit = _LENGTHS[found["type"]]
    below = found["sign"] == ">="
    bound = f"at least {found['bound']}" if below else f"at most {found['bound']}"
    return _refused(
        param,
        f"Invalid value for {_named(param)}: expected {bound} {unit}.",
        f"empty_{kind}" if below else f"{kind}_above_max_length",
    )


def _out_of_range(param: str, found: re.Match[str]) -> CallerError:
    kind = "integer" if found["type"] == "int" else "decimal"
    side = "below_min" if found["sign"].startswith(">") else "above_max"
    bound = found["bound"].removesuffix(".0")
    return _refused(
        param,
        f"Invalid value for {_named(param)}: expected {_TYPE_NAMES[found['type']]} "
        f"{found['sign']} {bound}.",
        f"{kind}_{side}_value",
    )


def _wrong_pattern(param: str, found: re.Match[str]) -> CallerError:
    pattern = found["pattern"].replace(r"\\Z", "$")  # quoted as Python quotes it
    return _refused(param, f"Invalid value for {_named(param)}: it must match {pattern}.")


def _wrong_value(param: str, found: re.Match[str]) -> CallerError:
    path = re.sub(r"\[\d+\]", "", param)
    supported = _SUPPORTED.get(path) or _SUPPORTED.get(path.rpartition(".")[2])
    hint = f" Supported values are {supported}." if supported else ""
    return _refused(param, f"Invalid value for {_named(param)}: {shortened(found['value'])}.{hint}")


_REFUSALS: Final[
    tuple[tuple[re.Pattern[str], Callable[[str, re.Match[str]], CallerError]], ...]
] = (
    (re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`"), _wrong_type),
    (re.compile(r"Object missing required field `(?P<name>[^`]+)`"), _missing),
    (re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL), _unknown),
    (
        re.compile(
            r"Expected `(?P<type>str|array|object)` of length (?P<sign>[<>]=) (?P<bound>\d+)"
        ),
        _wrong_length,
    ),
    (
        re.compile(r"Expected `(?P<type>int|float)` (?P<sign>[<>]=?) (?P<bound>\S+)"),
        _out_of_range,
    ),
    (re.compile(r"Expected `str` matching regex (?P<pattern>.+)", re.DOTALL), _wrong_pattern),
    (re.compile(r"Invalid (?:enum )?value (?P<value>.*)", re.DOTALL), _wrong_value),
)


def _refused(param: str, message: str, code: str = "invalid_value") -> CallerError:
    return CallerError(message, param=param or None, code=code)


def _joined(param: str, name: str) -> str:
    return f"{param}.{name}" if param else name


def _named(param: str) -> str:
    return f"'{param}'" if param else "the request body"
