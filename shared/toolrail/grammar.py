"""The one door to the grammar engine: structural tags compiled and matched, without torch.

`import xgrammar` pulls in torch, transformers and triton (8 CPU seconds, 300 MB), of which the
native library needs nothing. This module loads that library alone (well under a CPU second) through
its binding module, whose classes take positional arguments and are private: hence the exact pin
of the version. In a process that has already imported the whole of xgrammar (an engine, a test) the
same binding is used, and importing the whole of it later works too.

The engine is loaded at the first call, not at import. Only the preprocessor's compile check, the
scripted engine and tests come through here. A compile has no timeout and may crash on hostile
input: untrusted tags belong in a process of their own (`services.preprocessor.compile_check`).
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import re
import sys
import types
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from toolrail.errors import ToolrailError

_RAW_VOCABULARY: Final = 0
# What a message starts with: a time, a C++ file and line, at times the text of a failed assertion.
_SOURCE_POSITION: Final = re.compile(
    r"\A(?:\[[^\]]*\] )?\S+\.(?:cc|h):\d+: (?:Check failed: \(.*?\) is false: )?"
)
_ONES: Final = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))


class GrammarError(ToolrailError):
    """The engine refuses the tag: malformed, or holding a schema that it cannot express."""


class Vocabulary:
    """The tokens of one model, prepared once for any number of compiles.

    `tokens[i]` is the exact bytes of token i (b"" for an id that stands for no text).
    `stop_token_ids` end a text whose grammar is complete.
    """

    def __init__(self, tokens: Sequence[bytes] = (), stop_token_ids: Sequence[int] = ()) -> None:
        core = _binding()
        self.size: Final = len(tokens)
        self._info = core.TokenizerInfo(
            list(tokens), _RAW_VOCABULARY, None, list(stop_token_ids), False
        )
        # Cache off: it is unbounded, and whoever compiles twice keeps the result.
        self._compiler = core.GrammarCompiler(self._info, 1, False, -1)

    def compile(self, tag_json: str) -> CompiledGrammar:
        """The tag as a grammar over this vocabulary. Raises GrammarError. No time limit."""
        with _mapped_errors():
            return CompiledGrammar(self._compiler.compile_structural_tag(tag_json), self.size)


class CompiledGrammar:
    """A tag compiled for one vocabulary; shared by any number of matchers."""

    def __init__(self, handle: Any, vocab_size: int) -> None:
        self.handle: Final = handle
        self.vocab_size: Final = vocab_size

    @property
    def memory_bytes(self) -> int:
        """What the engine reports that the compiled grammar holds."""
        return int(self.handle.memory_size_bytes())

    def __str__(self) -> str:
        """The grammar as EBNF, for a human."""
        return str(self.handle.grammar().to_string())


def compile_tag(
    tag_json: str,
    vocabulary: Vocabulary | Sequence[bytes] | None = None,
    stop_token_ids: Sequence[int] = (),
) -> CompiledGrammar:
    """The structural tag (JSON text) as a grammar; without a vocabulary it matches strings only.

    A sequence of tokens is prepared anew at each call; pass a `Vocabulary` to pay that once (its
    own stop tokens then count, and `stop_token_ids` must be empty).

    Raises:
        GrammarError: the engine refuses the tag.
    """
    if not isinstance(vocabulary, Vocabulary):
        vocabulary = Vocabulary(vocabulary or (), stop_token_ids)
    return vocabulary.compile(tag_json)


def check_tag(tag_json: str) -> None:
    """Raises GrammarError if the tag or a schema in it is refused; compiles nothing."""
    with _mapped_errors():
        _binding().Grammar.from_structural_tag(tag_json)


class Matcher:
    """Walks one text through a compiled grammar, by tokens or by strings.

    Every accepted token or string is one step; `rollback` undoes steps.
    """

    def __init__(self, compiled: CompiledGrammar) -> None:
        self._handle = _binding().GrammarMatcher(compiled.handle, None, False, -1, None)
        self._mask = _Mask(compiled.vocab_size)

    def accept_token(self, token_id: int) -> bool:
        """True and a step forward if the token may come next; else False and no change."""
        return bool(self._handle.accept_token(token_id, False))

    def accept_string(self, text: str | bytes) -> bool:
        """True and a step forward if all of `text` may come next; else False and no change."""
        return bool(self._handle.accept_string(text, False))

    def allowed(self) -> bytes:
        """The tokens that may come next as a bitset: token i is bit `i % 8` of byte `i // 8`.

        Stop tokens are among them when the text may end here. O(vocabulary / 8) and the engine's
        own cost.
        """
        if not self._handle.fill_next_token_bitmask(self._mask, 0, False):
            return self._mask.full
        return self._mask.read()

    def allowed_ids(self) -> list[int]:
        """The tokens that may come next, ascending."""
        return [
            (position << 3) + bit
            for position, byte in enumerate(self.allowed())
            if byte
            for bit in _ONES[byte]
        ]

    def rollback(self, steps: int = 1) -> None:
        """Undoes the last `steps` accepted tokens or strings."""
        with _mapped_errors():
            self._handle.rollback(steps)

    @property
    def can_end(self) -> bool:
        """True when the text so far is complete: a stop token may come next."""
        return bool(self._handle.is_completed())

    @property
    def is_terminated(self) -> bool:
        """True once a stop token was accepted; nothing is accepted any more."""
        return bool(self._handle.is_terminated())


def accepts(tag: CompiledGrammar | Mapping[str, object] | str, text: str | bytes) -> bool:
    """True when the tag takes the whole of `text` and the text is complete there.

    `tag` is compiled already, the tag object, or its JSON text. Raises GrammarError.
    """
    if not isinstance(tag, CompiledGrammar):
        tag = compile_tag(tag if isinstance(tag, str) else json.dumps(tag))
    matcher = Matcher(tag)
    return matcher.accept_string(text) and matcher.can_end


@contextmanager
def _mapped_errors() -> Generator[None]:
    # The engine's error classes all derive from RuntimeError; a wrong JSON type can surface as
    # ValueError or TypeError.
    try:
        yield
    except (RuntimeError, ValueError, TypeError) as error:
        raise GrammarError(_reason(error)) from error


def _reason(error: Exception) -> str:
    """The engine's message without its own source position."""
    return _SOURCE_POSITION.sub("", str(error).strip(), count=1)


@cache
def _binding() -> Any:
    """The engine's binding module, loaded without the packages that it does not need."""
    if "xgrammar" in sys.modules:
        return importlib.import_module("xgrammar.base")._core
    with _package_stub("xgrammar"):
        with _absent("torch"):
            importlib.import_module("tvm_ffi")
        importlib.import_module("xgrammar.load_binding")
        importlib.import_module("xgrammar.exception")  # registers the engine's error classes
        return importlib.import_module("xgrammar.tvm_ffi_binding._ffi_api")


@contextmanager
def _package_stub(name: str) -> Generator[None]:
    """Lets submodules of `name` be imported without running its `__init__`.

    The stub goes away afterwards and the submodules stay, so a later `import` of the whole package
    builds on them (the native types can be registered only once).
    """
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"{name} is not installed", name=name)
    stub = types.ModuleType(name)
    stub.__spec__ = spec
    stub.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[name] = stub
    try:
        yield
    finally:
        del sys.modules[name]


@contextmanager
def _absent(name: str) -> Generator[None]:
    """Makes `import name` fail inside, unless it is imported already.

    tvm_ffi imports torch if it can, only to be first on Windows; there is no switch.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # the documented way to block an import
    try:
        yield
    finally:
        del sys.modules[name]


class _DLTensor(ctypes.Structure):
    # https://dmlc.github.io/dlpack/latest/c_api.html, DLTensor and DLManagedTensor
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (
        ("tensor", _DLTensor),
        ("manager_context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_CPU: Final = 1
_INT: Final = 0
_CAPSULE_NAME: Final = b"dltensor"  # the capsule keeps a pointer to it
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_new_capsule.restype = ctypes.py_object


class _Mask:
    """An int32 row that the engine fills through DLPack, so that no numpy is needed."""

    def __init__(self, vocab_size: int) -> None:
        words = (vocab_size + 31) // 32
        self._vocab_size = vocab_size
        self._data = (ctypes.c_int32 * max(words, 1))()
        self._shape = (ctypes.c_int64 * 1)(words)
        self._managed = _DLManagedTensor()
        tensor = self._managed.tensor
        tensor.data = ctypes.addressof(self._data)
        tensor.device_type, tensor.ndim = _CPU, 1
        tensor.code, tensor.bits, tensor.lanes = _INT, 32, 1
        tensor.shape = ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64))

    @property
    def full(self) -> bytes:
        """The bitset of all tokens."""
        return self._trimmed(b"\xff" * ((self._vocab_size + 7) // 8))

    def read(self) -> bytes:
        """The bitset that was filled last."""
        return self._trimmed(bytes(self._data)[: (self._vocab_size + 7) // 8])

    def _trimmed(self, bits: bytes) -> bytes:
        # The engine leaves the bits beyond the vocabulary set.
        rest = self._vocab_size % 8
        return bits[:-1] + bytes((bits[-1] & (1 << rest) - 1,)) if rest else bits

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CPU, 0)

    def __dlpack__(self, **_: object) -> object:
        # No deleter: the memory belongs to this object, which outlives the call it is passed to.
        return _new_capsule(ctypes.addressof(self._managed), _CAPSULE_NAME, None)
