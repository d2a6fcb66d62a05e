"""A model's tokenizer: text to ids without stopping the event loop, ids to text and to bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TypeAlias, cast

import tokenizers

from toolrail.tokens.decoding import ByteLevel, Fallback, Opaque, byte_level_bytes, decoding

Piece: TypeAlias = bytes | str | int | None
"""What one id adds to the text: bytes (byte-level), text or one byte (fallback), or nothing."""

_MAX_ID = 2**32 - 1


class Tokenizer:
    """One model's tokenizer. Safe to share between all tasks of a process.

    Attributes:
        added_tokens: id of every token that is found in a text before anything else, by its text.
        special_tokens: those among them that are control tokens to the tokenizer.
        decoding: how its ids become text.
        pieces: what each id adds to the text, worked out when first asked for.
    """

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        inner.no_truncation()
        inner.no_padding()
        inner.encode_special_tokens = False
        self._inner = inner
        added = inner.get_added_tokens_decoder()
        self.added_tokens = {token.content: token_id for token_id, token in added.items()}
        self._looks_normalised = any(token.normalized for token in added.values())
        self.special_tokens: dict[str, int] = {
            token.content: token_id for token_id, token in added.items() if token.special
        }
        self.decoding = decoding(_decoder_json(inner))
        self.pieces = Pieces(self)
        self._token_bytes: list[bytes] | None = None
        self._vocab_size: int | None = None

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """The tokenizer that a `tokenizer.json` describes; takes seconds for a large vocabulary.

        Raises:
            ValueError: `text` is not a tokenizer.
        """
        try:
            return cls(tokenizers.Tokenizer.from_str(text))
        except Exception as error:  # the binding raises bare Exception
            raise ValueError(f"not a tokenizer: {error}") from error

    @property
    def vocab_size(self) -> int:
        """One more than the highest id."""
        if self._vocab_size is None:
            ids = self._inner.get_vocab(with_added_tokens=True).values()
            self._vocab_size = 1 + max(ids, default=-1)
        return self._vocab_size

    async def encode(self, text: str) -> list[int]:
        """Ids of `text`; special-token text becomes the special token, nothing is added.

        Not `encode` of the binding: it holds the GIL for the whole call, a quarter of a second for
        32k tokens.
        """
        encoding = await self._inner.async_encode(text, add_special_tokens=False)
        return encoding.ids

    def encode_now(self, text: str) -> list[int]:
        """Like `encode`, for commands and tests; other threads run meanwhile, the loop does not."""
        return self._inner.encode_batch([text], add_special_tokens=False)[0].ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids`, special tokens included; ids that no token has add nothing."""
        known = [token_id for token_id in ids if 0 <= token_id <= _MAX_ID]
        return self._inner.decode(known, skip_special_tokens=False)

    def looked_at(self, text: str) -> tuple[str, ...]:
        """`text` in the forms in which added tokens are looked for: as it is, and normalised."""
        normalizer = self._inner.normalizer if self._looks_normalised else None
        return (text,) if normalizer is None else (text, normalizer.normalize_str(text))

    def token(self, token_id: int) -> str | None:
        """How the vocabulary writes `token_id` (byte-level ones in stand-in characters)."""
        return self._inner.id_to_token(token_id) if 0 <= token_id <= _MAX_ID else None

    def token_bytes(self) -> list[bytes]:
        """Bytes of every id, by id; `b""` for ids that no token has.

        Exact for byte-level and byte-fallback vocabularies, a byte of a character being that byte.
        Where only the tokenizer can decode, what is not text by itself is the bytes of U+FFFD.
        Special tokens are the bytes of their text.
        """
        if self._token_bytes is None:
            self._token_bytes = [self.bytes_of(token_id) for token_id in range(self.vocab_size)]
        return self._token_bytes

    def bytes_of(self, token_id: int) -> bytes:
        """Bytes of one id; see `token_bytes`."""
        match self.pieces[token_id]:
            case None:
                return b""
            case int(byte):
                return bytes([byte])
            case str(text):
                return text.encode()
            case bytes(data):
                return data


class Pieces(dict[int, Piece]):
    """Id → what it adds to the text. Filled on demand: a vocabulary has up to 262,000 ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, token_id: int) -> Piece:
        token = self._tokenizer.token(token_id)
        if token is None:
            return None  # not kept: ids outside the vocabulary have no bound
        piece = self[token_id] = self._piece(token_id, token)
        return piece

    def _piece(self, token_id: int, token: str) -> Piece:
        special = token in self._tokenizer.special_tokens
        match self._tokenizer.decoding:
            case ByteLevel():
                return token.encode() if special else byte_level_bytes(token)
            case Fallback(first="bare") as rules:
                return rules.text(token)
            case Fallback() as rules:
                byte = None if special else rules.byte(token)
                text = token if special else rules.text(token)
                return text if byte is None else byte
            case Opaque():
                return token if special else self._tokenizer.decode([token_id])


def _decoder_json(inner: tokenizers.Tokenizer) -> object:
    """The `decoder` part of the tokenizer: its pickle state, which is small, unlike `to_str`."""
    decoder = cast("object | None", inner.decoder)
    if decoder is None:
        return None
    state = cast("Callable[[], bytes]", decoder.__getstate__)
    return cast("object", json.loads(state()))
