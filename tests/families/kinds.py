"""The kinds of cases that every family owes, and which published scenarios are of which kind."""

from __future__ import annotations

KINDS = {
    "one_call": "one call and nothing else",
    "several_calls": "several calls in order",
    "same_tool_twice": "the same tool twice is two calls",
    "no_call": "text without a call",
    "text_before": "text before a call",
    "text_between": "text between calls",
    "text_after": "text after a call",
    "empty_arguments": "a call without arguments",
    "nested_value": "nested objects and arrays in a value",
    "unicode_value": "text outside ASCII in a value",
    "own_markers_in_value": "the family's own markers inside a value",
    "long_value": "a value of thousands of characters",
    "cut_in_marker": "chunks that cut inside the markers",
    "reasoning_before": "reasoning before a call or an answer",
    "reasoning_between": "reasoning between calls",
    "reasoning_unterminated": "reasoning that never closes",
    "reasoning_empty": "an empty reasoning span",
    "call_in_reasoning": "a call inside open reasoning",
    "orphan_closer": "a closer that nothing opened",
    "missing_closer": "the last closer is missing at the end",
    "cut_in_value": "the stream ends inside a value",
    "unknown_tool": "a call of a tool that is not offered",
}

_BY_NAME = {
    "one_call": "tool_only single_call",
    "several_calls": "two_calls parallel_calls two_wrappers",
    "same_tool_twice": "two_calls_same_name same_name_twice duplicate_calls duplicate",
    "no_call": "text_only plain_text text_only_trailing_newlines text_trailing_newlines",
    "text_before": "text_before_tool text_before text_sandwich text_around narrated_calls",
    "text_between": "text_between_calls text_between narrated_calls",
    "text_after": "trailing_text_after_tool text_after text_sandwich text_around",
    "empty_arguments": "empty_args name_only",
    "nested_value": "nested schema_declared_object schema_declared_array ref_object",
    "unicode_value": "arg_unicode unicode_escapes unicode malformed_json_then_two_valid_calls",
    "own_markers_in_value": (
        "arg_marker_in_string own_marker_in_string mixed_control_text_in_string marker_in_string"
        " marker_in_value arg_separator_and_native_opener_literal"
    ),
    "reasoning_before": "reason_then_tool reason_then_content reasoning_then_call",
    "reasoning_between": "reason_between_calls reason_interleaved reason_tool_reason_tool_reason",
    "reasoning_unterminated": "reason_unterminated reasoning_unterminated",
    "reasoning_empty": "empty_reasoning empty_analysis",
    "call_in_reasoning": "tool_in_reason tool_in_reason_with_text call_in_open_reasoning",
    "orphan_closer": (
        "orphan_close orphan_close_after_prose orphan_close_after_bare_json orphan_end"
        " orphan_call_token tool_markup_only_emits_nothing"
    ),
    "missing_closer": "tool_no_close missing_close outer_close_missing missing_end missing_eom",
    "cut_in_value": (
        "truncated_tool_eof truncated_call truncated_arguments truncated last_truncated"
        " prefilled_reasoning_truncated"
    ),
    "unknown_tool": "unknown_tool known_and_unknown",
}


def kinds_of(name: str) -> list[str]:
    """The kinds that a published scenario's name stands for."""
    return [kind for kind, names in _BY_NAME.items() if name in names.split()]
