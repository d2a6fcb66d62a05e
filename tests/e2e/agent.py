"""An agent's conversation of many turns: what the model says in each, and what the tools answer.

The model's turns are written by the family's own renderer; the scripted engine says the one whose
question is the last in the prompt, so a turn comes only if the history was replayed up to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import pipeline
from toolrail.events import Call, Item, Reasoning, Text
from toolrail.families import dialect, family
from toolrail.parsing.custom import wrapped

TURNS = 20
FAMILIES = ("hermes", "qwen3_coder", "deepseek_v41", "glm47", "harmony")
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
PYTHON: dict[str, Any] = {
    "type": "custom",
    "custom": {"name": "run_python", "description": "Runs it.", "format": {"type": "text"}},
}
TOOLS = [WEATHER, PYTHON]


@dataclass(frozen=True)
class Turn:
    """What the model says in one turn; `calls` in order: name and arguments or raw input."""

    text: str | None
    reasoning: str | None
    calls: tuple[tuple[str, str], ...]

    def items(self) -> list[Item]:
        """As the family writes it."""
        found: list[Item] = [Reasoning(self.reasoning)] if self.reasoning else []
        found += [Text(self.text)] if self.text else []
        return found + [
            Call(name, wrapped(said) if name == "run_python" else said) for name, said in self.calls
        ]


def turn(number: int) -> Turn:
    """The turn of this number."""
    weather = (
        "get_weather",
        json.dumps({"city": f"Zürich {number}", "days": number}, ensure_ascii=False),
    )
    python = ("run_python", f'print("{number}")\n# <b> \\ é \U0001f600 {{}}\n')
    kinds = [(weather,), (python,), (weather, python), (python, python), (python, weather)]
    return Turn(
        f"Step {number}." if number % 3 == 0 else None,
        f"Thinking of {number}." if number % 2 else None,
        kinds[number % len(kinds)],
    )


LAST = Turn("All done.", None, ())


def result(number: int, position: int) -> str:
    """What the call of a turn gives."""
    return f"(result {number:02} of call {position})"


def script(name: str) -> list[dict[str, Any]]:
    """The rows of the scripted engine. The first that is found in the prompt wins."""
    rows = [{"match": result(TURNS - 1, 0), "text": _written(name, LAST)}]
    for number in range(TURNS - 1, 0, -1):
        text = _written(name, turn(number))
        rows.append({"match": result(number - 1, 0), "text": text, "chunk_tokens": 3})
    return [*rows, {"match": "", "text": _written(name, turn(0))}]


def _written(name: str, said: Turn) -> str:
    if not family(name).reasoning:
        said = Turn(said.text, None, said.calls)
    return family(name).render(said.items())


@contextmanager
def serving(name: str, folder: Path) -> Iterator[pipeline.Pipeline]:
    """The pipeline in which a model of this family says the turns."""
    file = folder / "script.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in script(name)), encoding="utf-8")
    with pipeline.running("--script", str(file), *flags(name)) as running:
        yield running


def flags(name: str) -> tuple[str, ...]:
    """The worker's, for this family."""
    pair = dialect(name, family(name).reasoning_names[0])
    return ("--tool-call-parser", name, "--reasoning-parser", pair.family.reasoning_names[0])  # type: ignore[union-attr]


def said_by(call: Any) -> tuple[str, str]:
    """Name and arguments or input of a call as the API shows it."""
    if call["type"] == "custom":
        return call["custom"]["name"], call["custom"]["input"]
    return call["function"]["name"], call["function"]["arguments"]
