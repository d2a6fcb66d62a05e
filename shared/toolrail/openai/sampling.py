"""Sampling: what a request wishes, and what the engine of one model is then asked for.

Three sources, in this order: the request, the defaults that the model announces (its generation
config), the API's own defaults. `max_tokens` beyond the context is capped; a prompt beyond it is a
400.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar, overload

from toolrail.errors import CallerError
from toolrail.messages import ModelCard, Sampling
from toolrail.openai.limits import MAX_SEED
from toolrail.openai.refusals import refusal, shortened
from toolrail.openai.wire import ChatBody

if TYPE_CHECKING:
    from toolrail.openai.responses.wire import ResponsesBody

CONTEXT_EXCEEDED: Final = "context_length_exceeded"
"""The published code for a prompt that does not fit."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The sampling fields of a request; None: not said. Ranges are checked, the model is not."""

    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    logit_bias: Mapping[int, float] | None = None
    top_logprobs: int | None = None
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    stop_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    ignore_eos: bool = False


def wishes(body: ChatBody) -> Wishes:
    """The sampling fields of `body`, checked against each other.

    Raises:
        CallerError: two fields contradict each other, or one has a value that cannot be meant.
    """
    longest = _either(
        ("max_completion_tokens", body.max_completion_tokens), ("max_tokens", body.max_tokens)
    )
    said = wishes_of(body, ("max_tokens", longest), top_logprobs=_top_logprobs(body))
    nvext = body.nvext
    if nvext is None:
        return said
    return replace(
        said,
        top_k=_either(("top_k", body.top_k), ("nvext.top_k", nvext.top_k)),
        repetition_penalty=_either(
            ("repetition_penalty", body.repetition_penalty),
            ("nvext.repetition_penalty", nvext.repetition_penalty),
        ),
        ignore_eos=bool(body.ignore_eos or nvext.ignore_eos),
    )


def wishes_of(
    body: ChatBody | ResponsesBody, longest: tuple[str, int | None], *, top_logprobs: int | None
) -> Wishes:
    """The sampling fields that both bodies spell alike.

    `longest` is the field that bounds the answer: its name and what it says.

    Raises:
        CallerError: `min_tokens` is beyond that bound, `logit_bias` has a key that is no id, or a
            bad word is white space.
    """
    name, max_tokens = longest
    if body.min_tokens and max_tokens is not None and body.min_tokens > max_tokens:
        raise refusal(f"'min_tokens' exceeds '{name}'.", param="min_tokens")
    return Wishes(
        max_tokens=max_tokens,
        min_tokens=body.min_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        repetition_penalty=body.repetition_penalty,
        seed=None if body.seed is None else body.seed % MAX_SEED,
        logit_bias=_logit_bias(body.logit_bias),
        top_logprobs=top_logprobs,
        stop=_stop_strings(body.stop),
        include_stop=bool(body.include_stop_str_in_output),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        bad_words=_bad_words(body.bad_words),
        ignore_eos=bool(body.ignore_eos),
    )


def resolve(wishes: Wishes, card: ModelCard, prompt_tokens: int) -> Sampling:
    """What the engine of `card` is asked for after a prompt of `prompt_tokens`.

    Raises:
        CallerError: the prompt leaves no room, or an id is not in the vocabulary.
    """
    room = card.context_length - prompt_tokens
    if room < 1:
        raise context_exceeded(card, f"has {prompt_tokens:,} tokens")
    defaults = card.default_sampling
    wished_max = _first(wishes.max_tokens, _whole(defaults.get("max_tokens")))
    max_tokens = room if wished_max is None else min(wished_max, room)
    top_p = _first(wishes.top_p, defaults.get("top_p"), 1.0)
    top_k = _first(wishes.top_k, _whole(defaults.get("top_k")), 0)
    if top_p == 0.0:  # the published range includes it; the nucleus is then the likeliest token
        top_p, top_k = 1.0, 1
    _check_ids(wishes, card)
    return Sampling(
        max_tokens=max_tokens,
        min_tokens=min(wishes.min_tokens or 0, max_tokens),
        temperature=_first(wishes.temperature, defaults.get("temperature"), 1.0),
        top_p=top_p,
        top_k=max(top_k, 0),
        min_p=_first(wishes.min_p, defaults.get("min_p"), 0.0),
        presence_penalty=_first(wishes.presence_penalty, defaults.get("presence_penalty"), 0.0),
        frequency_penalty=_first(wishes.frequency_penalty, defaults.get("frequency_penalty"), 0.0),
        repetition_penalty=_first(
            wishes.repetition_penalty, defaults.get("repetition_penalty"), 1.0
        ),
        seed=wishes.seed,
        logit_bias=dict(wishes.logit_bias) if wishes.logit_bias else None,
        logprobs=wishes.top_logprobs,
        stop_token_ids=wishes.stop_token_ids,
        bad_words=wishes.bad_words,
        ignore_eos=wishes.ignore_eos,
    )


def context_exceeded(card: ModelCard, what: str) -> CallerError:
    """The 400 for a prompt that does not fit; `what` completes "the prompt …"."""
    return refusal(
        f"This model's context length is {card.context_length:,} tokens, but the prompt {what}: "
        "shorten the messages or the tools.",
        param="messages",
        code=CONTEXT_EXCEEDED,
    )


def _check_ids(wishes: Wishes, card: ModelCard) -> None:
    named = {"logit_bias": wishes.logit_bias or (), "stop_token_ids": wishes.stop_token_ids}
    for param, ids in named.items():
        for token_id in ids:
            if token_id >= card.vocab_size:
                raise refusal(
                    f"Invalid value for '{param}': {token_id} is not a token id of this model "
                    f"(0 to {card.vocab_size - 1}).",
                    param=param,
                )


def _logit_bias(bias: Mapping[str, float] | None) -> Mapping[int, float] | None:
    """The biases by token id, None when there are none. Raises CallerError for other keys."""
    if not bias:
        return None
    ids: dict[int, float] = {}
    for key, value in bias.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= 10):
            raise refusal(
                f"Invalid value for 'logit_bias': the key '{shortened(key)}' is not a token id.",
                param="logit_bias",
            )
        ids[int(key)] = value
    return ids


def _top_logprobs(body: ChatBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise refusal("'top_logprobs' needs 'logprobs': true.", param="top_logprobs")
    return None


def _stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    """The stop strings, each once."""
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(dict.fromkeys(stop))


def _bad_words(words: Sequence[str] | None) -> tuple[str, ...]:
    """The words, each once. Raises CallerError for one that is white space: no engine bans that."""
    for index, word in enumerate(words or ()):
        if not word.strip():
            param = f"bad_words[{index}]"
            raise refusal(f"Invalid value for '{param}': it is only white space.", param=param)
    return tuple(dict.fromkeys(words or ()))


def _either(*fields: tuple[str, T | None]) -> T | None:
    """The one value among spellings of one field; two that differ are a 400."""
    said = [(name, value) for name, value in fields if value is not None]
    for name, value in said[1:]:
        if value != said[0][1]:
            raise refusal(f"'{said[0][0]}' and '{name}' contradict each other.", param=name)
    return said[0][1] if said else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


@overload
def _first(wish: T | None, default: T | None, fallback: T) -> T: ...
@overload
def _first(wish: T | None, default: T | None) -> T | None: ...
def _first(wish: T | None, default: T | None, fallback: T | None = None) -> T | None:
    if wish is not None:
        return wish
    return fallback if default is None else default
