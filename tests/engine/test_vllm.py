"""The port's promises kept by a real engine; see `scenarios` for what was done."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

TIMEOUT_S = 600
END = "<|im_end|>"
END_THINK, TOOL_CALL = 4, 5
"""Ids of the markers in the model `demo-think`."""
CALLER = "b7ad6b7169203331"
"""The span that the traced run is part of."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("engine") / "answers.json"
    command = [sys.executable, "-m", "tests.engine.scenarios", str(path)]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return json.loads(path.read_text(encoding="utf-8"))


def test_it_says_what_it_can_do(answers: dict[str, Any]) -> None:
    assert answers["facts"] == {
        "slots": 8,
        "vocab_size": 49152,
        "context_length": 1024,
        "advances": True,
    }


def test_tags_and_other_constraints_are_held(answers: dict[str, Any]) -> None:
    found = answers["tags"]
    assert (found["const"]["text"], found["const"]["finish"]) == (f"OK{END}", "stop")
    text = found["required"]["text"]
    assert text.startswith('<tool_call>\n{"name": "set", "arguments": {')
    assert text.endswith(f"}}\n</tool_call>{END}")
    call = json.loads(text.split("\n")[1])
    assert call["arguments"]["unit"] in ("celsius", "fahrenheit")
    assert 1 <= call["arguments"]["days"] <= 14
    assert set(found["regex"]["text"][:3]) <= set("abc")
    assert found["choice"]["text"] in (f"yes{END}", f"no{END}")
    assert found["schema"]["text"] == f"17{END}"
    assert (found["cut"]["finish"], len(found["cut"]["ids"])) == ("length", 5)
    assert found["free"]["text"] == f"The capital of France is Paris.{END}"


def test_a_banned_marker_stays_away_however_hard_it_is_pushed(answers: dict[str, Any]) -> None:
    found = answers["tags"]
    assert found["pushed"]["ids"] == [TOOL_CALL] * 4
    assert TOOL_CALL not in found["banned"]["ids"]
    assert "<tool_call>" not in found["banned"]["text"]
    assert found["banned"]["finish"] == "stop"


def test_what_the_job_says_of_reasoning_decides_where_the_grammar_begins(
    answers: dict[str, Any],
) -> None:
    found = answers["reasoning"]
    assert found["ended"]["text"] == f"OK{END}"
    assert found["open"]["ids"][0] == END_THINK
    assert found["open"]["text"] == f"</think>OK{END}"
    assert found["never"]["text"].startswith("The capital")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("invalid", "Format type not recognized: nope"),
        ("no_json", "Invalid structural tag"),
        ("bias", "out-of-vocab"),
        ("heat", "temperature"),
        ("empty", "the prompt is empty"),
        ("long", "tokens, the context 1024"),
        ("strange", "outside the vocabulary"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_reason(
    answers: dict[str, Any], name: str, message: str
) -> None:
    assert answers["failures"][name]["error"] == "RefusedError"
    assert message in answers["failures"][name]["message"]


def test_a_tag_that_does_not_compile_fails_its_run_and_no_other(answers: dict[str, Any]) -> None:
    found = answers["failures"]
    assert (found["uncompiled"]["finish"], found["uncompiled"]["ids"]) == ("error", [])
    assert found["uncompiled"]["why"]
    assert found["well"]["finish"] == "stop"


def test_logprobs_hold_the_chosen_id_and_the_asked_number_of_others(
    answers: dict[str, Any],
) -> None:
    found = answers["sampling"]
    for entry, token_id in zip(
        found["logprobs"]["logprobs"], found["logprobs"]["ids"], strict=True
    ):
        assert entry["id"] == token_id == entry["top"][0][0]
        assert len(entry["top"]) == 2
        assert 0 >= entry["logprob"] == entry["top"][0][1] >= entry["top"][1][1]
    assert [entry["top"] for entry in found["chosen_only"]["logprobs"]] == [[], []]


def test_seeds_stop_ids_and_ignored_ends_are_obeyed(answers: dict[str, Any]) -> None:
    found = answers["sampling"]
    assert found["seed_1"]["ids"] == found["seed_1_again"]["ids"] != found["seed_2"]["ids"]
    assert found["stop_id"]["stop_token_id"] == found["stop_id"]["ids"][-1]
    assert found["stop_id"]["text"] == "The capital of France"
    assert (found["ignore"]["finish"], len(found["ignore"]["ids"])) == ("length", 12)


def test_many_seeded_prompts_at_once_do_not_kill_it_and_share_their_prefix(
    answers: dict[str, Any],
) -> None:
    found = answers["sampling"]
    assert [found[f"many_{n}"]["finish"] in ("stop", "length") for n in range(12)] == [True] * 12
    assert found["cached"]["cached"] >= 128


def test_an_aborted_run_ends_and_frees_its_slot(answers: dict[str, Any]) -> None:
    found = answers["aborting"]
    assert found["mid"]["finish"] == "abort"
    assert 3 <= len(found["mid"]["ids"]) < 20
    assert (found["early"]["finish"], found["early"]["ids"]) == ("abort", [])
    assert found["unfinished"] == 0


def test_a_second_run_of_a_live_choice_is_refused(answers: dict[str, Any]) -> None:
    found = answers["duplicates"]
    assert found["refused"]["error"] == "DuplicateRunError"
    assert found["first_ids"] == 30
    assert found["again"]["finish"] == "stop"


@pytest.mark.parametrize("name", ["plain", "tagged", "seeded", "counted"])
def test_a_resumed_run_goes_on_as_if_it_had_never_stopped(
    answers: dict[str, Any], name: str
) -> None:
    whole = answers["resuming"]["whole"][name]
    cuts = [key for key in answers["resuming"]["resumed"] if key.startswith(f"{name}@")]
    assert len(cuts) == 3
    for key in cuts:
        cut = int(key.split("@")[1])
        resumed = answers["resuming"]["resumed"][key]
        assert resumed["ids"] == whole["ids"][cut:], key
        assert resumed["finish"] == whole["finish"]
        assert resumed["logprobs"] == whole["logprobs"][cut:]


def test_a_run_that_was_over_is_not_run_again(answers: dict[str, Any]) -> None:
    found = answers["resuming"]["resumed"]
    assert (found["over"]["finish"], found["over"]["ids"]) == ("stop", [])
    assert (found["full"]["finish"], found["full"]["ids"]) == ("length", [])


def test_ids_that_the_grammar_rejects_fail_the_run(answers: dict[str, Any]) -> None:
    assert answers["resuming"]["resumed"]["wrong"]["finish"] == "error"


def test_its_spans_are_part_of_the_callers_trace(answers: dict[str, Any]) -> None:
    (span,) = answers["tracing"]["spans"]
    assert (span["name"], span["parent_id"]) == ("llm_request", CALLER)
    assert "capital" not in str(span)


def test_when_its_process_dies_every_run_and_the_health_check_say_so(
    answers: dict[str, Any],
) -> None:
    found = answers["dying"]
    assert found["in_flight"] == found["health"] == found["new"]["error"] == "EngineDeadError"
