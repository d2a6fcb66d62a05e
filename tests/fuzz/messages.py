"""Bus messages: whatever comes is a message or a `DecodeError`, in memory of the input's order."""

from __future__ import annotations

import inspect
import tracemalloc
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from tests.fuzz.target import Target, mutated, raised
from toolrail import messages
from toolrail.errors import DecodeError
from toolrail.messages import encode

DECODERS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    name.removeprefix("decode_"): decoder
    for name, decoder in vars(messages).items()
    if name.startswith("decode_")
}

_TEXT: Final = st.sampled_from(["", "a", "toolrail.v1.out.gw", "é\u2028\x00"]) | st.text(max_size=5)
_SCALARS: Final[Mapping[Any, st.SearchStrategy[Any]]] = {
    str: _TEXT,
    bytes: st.binary(max_size=20),
    int: st.sampled_from([0, 1, 7, 2**31, 2**63 - 1, -1]) | st.integers(0, 300),
    float: st.sampled_from([0.0, -0.5, 1e300]) | st.floats(allow_nan=False, width=32),
    bool: st.booleans(),
    type(None): st.none(),
    object: st.integers() | _TEXT,
    Any: st.integers() | _TEXT,
}
_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=5,
)


def values(wanted: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation, as far as messages have such."""
    if wanted in _SCALARS:
        return _SCALARS[wanted]
    if inspect.isclass(wanted) and issubclass(wanted, msgspec.Struct):
        return st.deferred(lambda: structs(wanted))
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, inner))
    if origin is typing.Annotated:
        return values(inner[0])
    return _containers(origin, inner)


def _containers(origin: Any, inner: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if origin is tuple and inner[-1] is not ...:
        return st.tuples(*map(values, inner))
    if origin is tuple:
        return st.lists(values(inner[0]), max_size=3).map(tuple)
    if origin is list:
        return st.lists(values(inner[0]), max_size=3)
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        if inner[1] in (object, Any):
            return st.dictionaries(_TEXT, _JSON, max_size=2)
        return st.dictionaries(values(inner[0]), values(inner[1]), max_size=3)
    raise TypeError(f"no values for {origin}")


def structs(wanted: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Structs of a type; optional fields come and go."""
    hints = typing.get_type_hints(wanted, include_extras=True)
    fields = msgspec.structs.fields(wanted)
    required = {field.name: values(hints[field.name]) for field in fields if field.required}
    others = {field.name: values(hints[field.name]) for field in fields if not field.required}
    for given in (required, others):
        if given.pop("version", None) is not None:
            required["version"] = st.just(messages.SCHEMA_VERSION)
    return st.fixed_dictionaries(required, optional=others).map(lambda given: wanted(**given))


def kinds(decoder: Callable[[bytes], Any]) -> tuple[type[msgspec.Struct], ...]:
    """The messages that a decoder returns."""
    returned = typing.get_type_hints(decoder)["return"]
    found = get_args(returned) if get_origin(returned) in (Union, types.UnionType) else (returned,)
    return tuple(found)


def _encoded(name: str) -> st.SearchStrategy[bytes]:
    if name == "token_ids":
        ids = st.lists(st.integers(0, 2**32), max_size=9).map(tuple)
        return ids.map(messages.encode_token_ids)
    return st.one_of(*map(structs, kinds(DECODERS[name]))).map(encode)


_WHOLE: Final = {name: _encoded(name) for name in DECODERS}


def _inputs() -> st.SearchStrategy[tuple[str, bytes]]:
    """A decoder's name, and bytes that are nearly its message, or another's, or none at all."""
    names = st.sampled_from(sorted(DECODERS))
    return st.one_of(
        *(st.tuples(st.just(name), mutated(data)) for name, data in _WHOLE.items()),
        *(st.tuples(names, data) for data in _WHOLE.values()),
        st.tuples(names, st.binary(max_size=40)),
    )


def _decodes(given: tuple[str, bytes]) -> None:
    name, data = given
    tracemalloc.start()
    try:
        refused = raised(DecodeError, lambda: DECODERS[name](data))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(str(refused)) < 400, refused
    assert peak < 200_000 + 200 * len(data), (peak, len(data))


def _same(given: tuple[str, bytes]) -> None:
    name, data = given
    value = DECODERS[name](data)
    written = messages.encode_token_ids(value) if name == "token_ids" else encode(value)
    assert DECODERS[name](written) == value


_NESTED: Final = b"\x91" * 100_000

TARGETS: Final = (
    Target(
        "messages",
        _inputs(),
        _decodes,
        found=(
            (
                "token_ids",
                b"\xdd\xff\xff\xff\xff",
            ),  # an array said to be four thousand million long
            ("event_frame", b"\x93\x01\xa1p\xdd\x7f\xff\xff\xff"),
            ("prepare", b"\x81\xa4type\xdb\xff\xff\xff\xff"),
            *((name, _NESTED) for name in sorted(DECODERS)),
        ),
        bounded=200,
    ),
    Target(
        "messages-round-trip",
        st.one_of(*(st.tuples(st.just(name), data) for name, data in _WHOLE.items())),
        _same,
        bounded=100,
    ),
)
