"""Ids to text, incrementally and exactly, over vocabularies of every shape in use."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence

import anyio
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from toolrail.tokens import Detokenizer, Tokenizer
from toolrail.tokens.decoding import ByteLevel, Fallback, Opaque
from toolrail.tokens.detokenizer import HELD_BYTES, HELD_IDS

SPECIAL = ("<s>", "</s>", "<|im_end|>", "<tool_call>", "</tool_call>")
MARKERS = ("<tool_call>", "</tool_call>")
WORDS = ("the", "tool", "call", "é", "日本", "🎉", "\ufffd", ">", "<", "\n", "a", "b", "1")


def byte_level() -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [
        *alphabet,
        *("".join(_stand_ins(word)) for word in WORDS if len(word.encode()) > 1),
        "".join(_stand_ins(" the")),
        # Halves of characters, as merges make them.
        "".join(_stand_ins_of("🎉".encode()[:2])),
        "".join(_stand_ins_of("日本".encode()[2:4])),
    ]
    inner = tokenizers.Tokenizer(models.BPE(vocab=_numbered(pieces), merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return inner


def byte_fallback(*, strip: bool = True) -> tokenizers.Tokenizer:
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS, "▁", "▁the", "▁tool"]
    inner = tokenizers.Tokenizer(
        models.BPE(vocab=_numbered(pieces), merges=[], byte_fallback=True, unk_token="<unk>")
    )
    inner.normalizer = normalizers.Sequence(
        [*([normalizers.Prepend("▁")] if strip else []), normalizers.Replace(" ", "▁")]
    )
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            *([decoders.Strip(" ", 1, 0)] if strip else []),
        ]
    )
    return inner


def unigram() -> tokenizers.Tokenizer:
    pieces = ["<unk>", *WORDS, "▁", "▁the", "▁tool", "▁▁"]
    inner = tokenizers.Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], 0))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    return inner


def word_piece() -> tokenizers.Tokenizer:
    pieces = ["[UNK]", *WORDS, "##s", "##ing", ".", "'"]
    inner = tokenizers.Tokenizer(models.WordPiece(_numbered(pieces), unk_token="[UNK]"))
    inner.decoder = decoders.WordPiece()
    return inner


def word_end() -> tokenizers.Tokenizer:
    pieces = [*WORDS, "the</w>", "tool</w>", "\ufffd</w>"]
    inner = tokenizers.Tokenizer(models.BPE(vocab=_numbered(pieces), merges=[]))
    inner.decoder = decoders.BPEDecoder()
    return inner


def no_decoder() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(models.WordLevel(_numbered(WORDS), unk_token="a"))


VOCABULARIES: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "byte_level": byte_level,
    "byte_fallback": byte_fallback,
    "byte_fallback_unstripped": lambda: byte_fallback(strip=False),
    "unigram": unigram,
    "word_piece": word_piece,
    "word_end": word_end,
    "no_decoder": no_decoder,
}


def _numbered(pieces: Iterable[str]) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}


_PLAIN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PLAIN]
STAND_IN = {b: chr(b) for b in _PLAIN} | {b: chr(0x100 + i) for i, b in enumerate(_OTHERS)}


def _stand_ins_of(data: Iterable[int]) -> list[str]:
    return [STAND_IN[byte] for byte in data]


def _stand_ins(text: str) -> list[str]:
    return _stand_ins_of(text.encode())


def with_added_tokens(name: str) -> tokenizers.Tokenizer:
    inner = VOCABULARIES[name]()
    inner.add_special_tokens(list(SPECIAL))
    inner.add_tokens([AddedToken("<think>", normalized=False), AddedToken("two words")])
    return inner


INNER = {name: with_added_tokens(name) for name in VOCABULARIES}
TOKENIZERS = {name: Tokenizer(inner) for name, inner in INNER.items()}
EVERY = pytest.mark.parametrize("name", sorted(VOCABULARIES))


def byte_ids(name: str) -> list[int]:
    """Id of each byte: its byte token, or in a byte-level vocabulary its stand-in."""
    written = STAND_IN if name == "byte_level" else {b: f"<0x{b:02X}>" for b in range(256)}
    return [INNER[name].token_to_id(written[b]) for b in range(256)]


def full_decode(tokenizer: Tokenizer, ids: Iterable[int], keep: Sequence[str]) -> str:
    dropped = {i for text, i in tokenizer.special_tokens.items() if text not in keep}
    return tokenizer.decode([i for i in ids if i not in dropped])


def fed(tokenizer: Tokenizer, chunks: Iterable[Sequence[int]], keep: Sequence[str] = ()) -> str:
    detokenizer = Detokenizer(tokenizer, keep)
    return "".join([*(detokenizer.feed(chunk) for chunk in chunks), detokenizer.finish()])


def cut(ids: Sequence[int], rng: random.Random) -> list[Sequence[int]]:
    places = sorted(rng.choices(range(len(ids) + 1), k=rng.randint(0, 5)))
    return [ids[a:b] for a, b in zip([0, *places], [*places, len(ids)], strict=True)]


@EVERY
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_feeds_join_to_the_full_decode(name: str, data: st.DataObject) -> None:
    check_feeds(name, data)


@pytest.mark.exhaustive
@EVERY
@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_feeds_join_to_the_full_decode_in_many(name: str, data: st.DataObject) -> None:
    check_feeds(name, data)


def check_feeds(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    nobodys = st.sampled_from([-1, -(2**63), tokenizer.vocab_size, 2**32 - 1, 2**32, 2**63 - 1])
    anything = st.integers(0, tokenizer.vocab_size + 1) | nobodys
    ids = data.draw(st.lists(anything, max_size=40))
    keep = data.draw(st.sampled_from([(), MARKERS]))
    rng = random.Random(data.draw(st.integers(0, 9)))

    expected = full_decode(tokenizer, ids, keep)

    assert fed(tokenizer, [[i] for i in ids], keep) == expected
    assert fed(tokenizer, [ids], keep) == expected
    assert fed(tokenizer, cut(ids, rng), keep) == expected


@EVERY
def test_long_random_sequences_too(name: str) -> None:
    tokenizer, rng = TOKENIZERS[name], random.Random(7)
    for _ in range(40):
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(300)]
        assert fed(tokenizer, [[i] for i in ids]) == full_decode(tokenizer, ids, ())


@pytest.mark.parametrize("name", ["byte_level", "byte_fallback", "byte_fallback_unstripped"])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_partial_bytes_decode_as_a_full_decode_does(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    of_byte = byte_ids(name)
    text = data.draw(st.text(max_size=8)).encode()
    broken = data.draw(st.lists(st.integers(0, 255), max_size=3))
    tail = data.draw(st.text(max_size=3)).encode()[: data.draw(st.integers(0, 9))]
    ids = [of_byte[b] for b in (*text, *broken, *tail)]

    assert fed(tokenizer, [[i] for i in ids]) == tokenizer.decode(ids)
    if name == "byte_level":
        assert fed(tokenizer, [ids]) == bytes([*text, *broken, *tail]).decode(errors="replace")


@EVERY
def test_special_tokens_are_dropped_unless_kept(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = [tokenizer.special_tokens[text] for text in ("<s>", "<tool_call>", "</s>")]

    assert fed(tokenizer, [ids]) == ""
    assert fed(tokenizer, [ids], MARKERS) == "<tool_call>"


def test_added_tokens_that_are_not_special_stay() -> None:
    tokenizer = TOKENIZERS["byte_level"]
    ids = tokenizer.encode_now("<think>a two words")
    assert fed(tokenizer, [[i] for i in ids]) == "<think>a two words"


def test_a_character_cut_by_the_length_limit_is_flushed() -> None:
    tokenizer = TOKENIZERS["byte_level"]
    ids = tokenizer.encode_now("a日")
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.feed(ids[:-1]) == "a"
    assert detokenizer.finish() == "\ufffd"


@pytest.mark.parametrize("name", ["byte_level", "byte_fallback", "unigram"])
def test_a_literal_replacement_character_is_not_held(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    literal = tokenizer.token_bytes().index("\ufffd".encode())
    assert Detokenizer(tokenizer).feed([literal]) == "\ufffd"


def test_a_literal_replacement_character_is_held_for_a_bounded_while() -> None:
    tokenizer = TOKENIZERS["word_piece"]
    literal = tokenizer.encode_now("\ufffd")
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.feed(literal * (HELD_IDS - 1)) == ""
    assert detokenizer.feed(literal) == tokenizer.decode(literal * HELD_IDS)


def test_a_long_run_of_bytes_streams_in_blocks() -> None:
    tokenizer = TOKENIZERS["byte_fallback"]
    text = "ཨ" * 1000  # three bytes each, none in the vocabulary
    of_byte = byte_ids("byte_fallback")
    ids = [of_byte[b] for b in text.encode()]
    detokenizer = Detokenizer(tokenizer)

    feeds = [detokenizer.feed([i]) for i in ids]

    assert "".join(feeds) + detokenizer.finish() == text
    assert max(len(feed.encode()) for feed in feeds) <= HELD_BYTES + 3


def test_a_broken_run_is_replaced_byte_by_byte_as_it_comes() -> None:
    tokenizer = TOKENIZERS["byte_fallback"]
    byte = byte_ids("byte_fallback")
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.feed([byte[b] for b in "é".encode()]) == ""
    assert detokenizer.feed([byte[0xFF]]) == "\ufffd" * 3
    assert detokenizer.feed([byte[0x41]]) == "\ufffd"
    assert detokenizer.feed([INNER["byte_fallback"].token_to_id("▁the")]) == " the"


def test_the_shape_of_a_vocabulary_is_read_from_its_decoder() -> None:
    shapes = {name: type(tokenizer.decoding) for name, tokenizer in TOKENIZERS.items()}
    assert shapes == {
        "byte_level": ByteLevel,
        "byte_fallback": Fallback,
        "byte_fallback_unstripped": Fallback,
        "unigram": Fallback,
        "word_piece": Opaque,
        "word_end": Opaque,
        "no_decoder": Fallback,
    }


@pytest.mark.parametrize("name", ["byte_level", "byte_fallback_unstripped"])
@settings(deadline=None)
@given(text=st.text(max_size=30))
def test_token_bytes_spell_the_text(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    spelled = b"".join(tokenizer.token_bytes()[i] for i in tokenizer.encode_now(text))
    assert spelled.decode() == (text if name == "byte_level" else text.replace("▁", " "))


def test_token_bytes_has_an_entry_for_every_id_and_none_for_holes() -> None:
    inner = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 4}, unk_token="a"))
    inner.decoder = decoders.Fuse()
    tokenizer = Tokenizer(inner)
    assert tokenizer.vocab_size == 5
    assert tokenizer.token_bytes() == [b"a", b"", b"", b"", b"b"]


def test_encoding_recognises_special_text_and_adds_nothing() -> None:
    tokenizer = TOKENIZERS["byte_level"]
    ids = tokenizer.encode_now("a<|im_end|>")
    assert ids[-1] == tokenizer.special_tokens["<|im_end|>"]
    assert tokenizer.decode(ids) == "a<|im_end|>"

    async def encode() -> list[int]:
        return await tokenizer.encode("a<|im_end|>")

    assert anyio.run(encode) == ids


def test_a_tokenizer_survives_its_json_and_ignores_its_truncation() -> None:
    inner = byte_level()
    inner.enable_truncation(2)
    tokenizer = Tokenizer.from_json(inner.to_str())
    assert tokenizer.decode(tokenizer.encode_now("the tool call")) == "the tool call"


def test_text_that_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(ValueError, match="not a tokenizer"):
        Tokenizer.from_json(json.dumps({"model": 1}))


@EVERY
def test_the_work_grows_with_the_number_of_ids_only(name: str) -> None:
    def work(count: int) -> int:
        tokenizer = Tokenizer(INNER[name])
        counted = [0]
        pieces, decode = tokenizer.pieces, tokenizer.decode

        class Counted(dict[int, object]):
            def __getitem__(self, token_id: int) -> object:
                counted[0] += 1
                return pieces[token_id]

        def counting_decode(ids: Iterable[int]) -> str:
            ids = list(ids)
            counted[0] += len(ids)
            return decode(ids)

        tokenizer.pieces = Counted()  # type: ignore[assignment]  # a double that counts look-ups
        tokenizer.decode = counting_decode  # type: ignore[method-assign]
        rng = random.Random(1)
        fed(tokenizer, ([rng.randrange(tokenizer.vocab_size)] for _ in range(count)))
        return counted[0]

    assert work(2000) <= 4.2 * work(500)
