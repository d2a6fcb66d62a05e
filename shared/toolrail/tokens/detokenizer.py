"""Incremental detokenizing: what `feed` and `finish` return, joined, is the full decode.

Not the binding's `DecodeStream`: it has no flush, so a stream that ends inside a character loses
it, it holds back a U+FFFD that the model meant, and on byte-fallback vocabularies it raises
"Invalid prefix encountered" in the middle of a stream (tokenizers 0.23).
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from toolrail.tokens.decoding import ByteLevel, Fallback, Opaque
from toolrail.tokens.tokenizer import Piece, Tokenizer

HELD_BYTES: Final = 64
"""Most bytes of a byte-fallback run that wait for its end; see `_ByteRun`."""

HELD_IDS: Final = 16
"""Most ids that wait for a clean cut when only the tokenizer can decode."""

_REPLACEMENT: Final = "\ufffd"
_UTF8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Text of one choice from its ids. O(1) table look-ups an id.

    Special tokens are dropped, except those whose text is in `keep`: they come out as that text.
    Bytes that are not UTF-8 become U+FFFD just as a full decode writes them.

    Attributes:
        dropped: ids of the special tokens that add nothing to the text.
    """

    def __init__(self, tokenizer: Tokenizer, keep: Collection[str] = ()) -> None:
        self.dropped = frozenset(
            token_id for text, token_id in tokenizer.special_tokens.items() if text not in keep
        )
        self._decoder = _decoder(tokenizer)

    def feed(self, ids: Iterable[int]) -> str:
        """Text that `ids` make certain."""
        dropped = self.dropped
        return self._decoder.feed([token_id for token_id in ids if token_id not in dropped])

    def finish(self) -> str:
        """What was held back. Call once, at the end of the choice."""
        return self._decoder.finish()


class _Decoder(Protocol):
    def feed(self, ids: list[int]) -> str: ...
    def finish(self) -> str: ...


def _decoder(tokenizer: Tokenizer) -> _Decoder:
    match tokenizer.decoding:
        case ByteLevel():
            return _ByteLevelDecoder(tokenizer)
        case Fallback() as rules:
            return _FallbackDecoder(tokenizer, rules)
        case Opaque():
            return _WindowDecoder(tokenizer.decode)


class _ByteLevelDecoder:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._pieces = tokenizer.pieces
        self._utf8 = _UTF8("replace")

    def feed(self, ids: list[int]) -> str:
        pieces = self._pieces
        return self._utf8.decode(b"".join([_data(pieces[token_id]) for token_id in ids]))

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


def _data(piece: Piece) -> bytes:
    return piece if isinstance(piece, bytes) else b""


class _ByteRun:
    """Neighbouring byte tokens: one string if they are UTF-8 together, else U+FFFD for each.

    So the decoder rules, and hence nothing of a run is certain before its end. It is held while it
    is valid, though never more than `HELD_BYTES`: a long run in a script that the vocabulary lacks
    streams in blocks, and should it break later, only what was still held becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._utf8 = _UTF8("strict")
        self._open = False
        self._broken = False

    def push(self, byte: int) -> str:
        self._open = True
        if self._broken:
            return _REPLACEMENT
        self._held.append(byte)
        try:
            completed = self._utf8.decode(bytes((byte,)))
        except UnicodeDecodeError:
            self._broken = True
            return self._take(_REPLACEMENT * len(self._held))
        if completed and len(self._held) >= HELD_BYTES:
            return self._take(self._held.decode())
        return ""

    def end(self) -> str:
        if not self._open:
            return ""
        try:
            text = self._held.decode()
        except UnicodeDecodeError:
            text = _REPLACEMENT * len(self._held)
        self._utf8.reset()
        self._open = self._broken = False
        return self._take(text)

    def _take(self, text: str) -> str:
        self._held.clear()
        return text


class _FallbackDecoder:
    def __init__(self, tokenizer: Tokenizer, rules: Fallback) -> None:
        self._tokenizer = tokenizer
        self._pieces = tokenizer.pieces
        self._rules = rules
        self._at_start = rules.first != "same"
        self._strip_left = rules.strip_count
        self._run = _ByteRun()

    def feed(self, ids: list[int]) -> str:
        out: list[str] = []
        for token_id in ids:
            match self._pieces[token_id]:
                case str(text):
                    out.append(self._run.end())
                    out.append(self._first(token_id) if self._at_start else text)
                case int(byte):
                    out.append(self._run.push(byte))
                case _:  # an id that no token has
                    pass
        return self._stripped("".join(out))

    def finish(self) -> str:
        return self._stripped(self._run.end())

    def _first(self, token_id: int) -> str:
        self._at_start = False
        token = self._tokenizer.token(token_id) or ""
        special = token in self._tokenizer.special_tokens
        return token if special else self._rules.at_start(token)

    def _stripped(self, text: str) -> str:
        if not self._strip_left or not text:
            return text
        start = 0
        while start < min(self._strip_left, len(text)) and text[start] == self._rules.strip:
            start += 1
        # Anything else at the start ends the stripping for good.
        self._strip_left = self._strip_left - start if start == len(text) else 0
        return text[start:]


class _WindowDecoder:
    """Decodes a window of ids twice, with and without the new ones, and sends the difference.

    The window is what was last sent and what waits; neither exceeds `HELD_IDS`. `finish` compares
    with the full decode, so an ending that no window shows is not lost.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._context = 0
        self._sent_ids = 0
        self._sent: list[str] = []

    def feed(self, ids: list[int]) -> str:
        before = len(self._sent)
        for token_id in ids:
            self._ids.append(token_id)
            self._step()
        return "".join(self._sent[before:])

    def finish(self) -> str:
        text, sent = self._decode(self._ids), "".join(self._sent)
        if text.startswith(sent):
            return text[len(sent) :]
        return self._difference()

    def _step(self) -> None:
        waiting = len(self._ids) - self._sent_ids
        text = self._difference()
        if (not text or text.endswith(_REPLACEMENT)) and waiting < HELD_IDS:
            return
        self._sent.append(text)
        self._context, self._sent_ids = self._sent_ids, len(self._ids)

    def _difference(self) -> str:
        """Text of the waiting ids, seen after those before them."""
        context = self._decode(self._ids[self._context : self._sent_ids])
        text = self._decode(self._ids[self._context :])
        return text[len(context) :] if text.startswith(context) else ""
