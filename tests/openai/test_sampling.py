from __future__ import annotations

from typing import Any

import pytest

from tests.openai.bodies import body
from toolrail.errors import CallerError
from toolrail.messages import ModelCard, Sampling
from toolrail.openai.chat import check_chat
from toolrail.openai.sampling import resolve


def card(**more: Any) -> ModelCard:
    return ModelCard(
        name="m",
        worker="w",
        engine="scripted",
        context_length=100,
        slots=1,
        vocab_size=50,
        tokenizer="t",
        chat_template="c",
        **more,
    )


def resolved(prompt_tokens: int = 60, defaults: dict[str, float] | None = None, **wishes: Any):
    request = check_chat(body(**wishes))
    return resolve(request.wishes, card(default_sampling=defaults or {}), prompt_tokens)


def test_nothing_said_gives_the_apis_defaults_and_all_the_room() -> None:
    assert resolved() == Sampling(max_tokens=40)


@pytest.mark.parametrize(("wish", "given"), [(10, 10), (40, 40), (41, 40), (10**9, 40)])
def test_max_tokens_is_capped_to_the_room_and_not_refused(wish: int, given: int) -> None:
    assert resolved(max_tokens=wish).max_tokens == given
    assert resolved(max_completion_tokens=wish).max_tokens == given


def test_min_tokens_is_capped_with_it() -> None:
    assert resolved(max_tokens=90, min_tokens=80).min_tokens == 40


@pytest.mark.parametrize("prompt_tokens", [100, 101, 5000])
def test_a_prompt_without_room_is_refused(prompt_tokens: int) -> None:
    with pytest.raises(CallerError) as info:
        resolved(prompt_tokens)
    assert (info.value.status, info.value.param) == (400, "messages")
    assert info.value.code == "context_length_exceeded"


def test_one_token_of_room_is_enough() -> None:
    assert resolved(99).max_tokens == 1


def test_the_models_defaults_come_before_the_apis_and_after_the_request() -> None:
    defaults = {"temperature": 0.6, "top_p": 0.95, "top_k": 20.0, "repetition_penalty": 1.05}
    found = resolved(defaults=defaults, top_p=0.5)
    assert (found.temperature, found.top_p, found.top_k) == (0.6, 0.5, 20)
    assert found.repetition_penalty == 1.05
    assert resolved(defaults=defaults, temperature=0).temperature == 0


def test_spellings_of_off_and_of_greedy() -> None:
    assert resolved(top_k=-1).top_k == 0
    greedy = resolved(top_p=0)
    assert (greedy.top_p, greedy.top_k) == (1.0, 1)


@pytest.mark.parametrize(
    "wishes", [{"logit_bias": {"50": 1}}, {"stop_token_ids": [50]}, {"stop_token_ids": [1, 99]}]
)
def test_ids_must_be_in_the_vocabulary(wishes: dict[str, Any]) -> None:
    with pytest.raises(CallerError) as info:
        resolved(**wishes)
    assert info.value.param == next(iter(wishes))


def test_everything_that_is_wished_arrives() -> None:
    assert resolved(
        max_tokens=7,
        min_tokens=2,
        temperature=0.3,
        top_p=0.8,
        top_k=9,
        min_p=0.1,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.5,
        seed=11,
        logit_bias={"4": 2},
        logprobs=True,
        top_logprobs=2,
        stop_token_ids=[3],
        bad_words=["damn"],
        ignore_eos=True,
    ) == Sampling(
        max_tokens=7,
        min_tokens=2,
        temperature=0.3,
        top_p=0.8,
        top_k=9,
        min_p=0.1,
        presence_penalty=1.0,
        frequency_penalty=-1.0,
        repetition_penalty=1.5,
        seed=11,
        logit_bias={4: 2.0},
        logprobs=2,
        stop_token_ids=(3,),
        bad_words=("damn",),
        ignore_eos=True,
    )


@pytest.mark.parametrize("word", [" ", "\t\n", "\u3000"])
def test_a_bad_word_of_white_space_is_refused_before_an_engine_does(word: str) -> None:
    with pytest.raises(CallerError) as caught:
        resolved(bad_words=["damn", word])
    assert (caught.value.param, caught.value.code) == ("bad_words[1]", "invalid_value")
