"""How much of a prompt the next turn shares with it, under each policy: what a prefix cache reuses.

`python -m benchmarks.prefix_share [MODEL ...]`: model directories or demo names (default: demo).
A conversation with ten tools is rendered by the product's own code with the model's own template
and tokenizer, then again one turn later with something changed. Printed: shared ids at the start,
as a share of the first prompt. No engine is needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from toolrail.chat_template import ChatTemplate
from toolrail.cli.prompt import Models, today
from toolrail.errors import CallerError, FaultError
from toolrail.families.family import PromptPolicy
from toolrail.openai.chat import check_chat
from toolrail.openai.prompt import render_prompt

TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": f"Reads or writes part {number} of a document store, with care.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Where the document is."},
                    "limit": {"type": "integer", "description": "How many lines.", "minimum": 1},
                    "mode": {"enum": ["read", "write"], "description": "What to do with it."},
                },
                "required": ["path"],
            },
        },
    }
    for number in range(10)
]


def conversation(turns: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You look after documents."}]
    for turn in range(turns):
        call = {
            "id": f"call_{turn}",
            "type": "function",
            "function": {"name": "tool_3", "arguments": json.dumps({"path": f"/notes/{turn}.md"})},
        }
        messages += [
            {"role": "user", "content": f"What does note {turn} say? Sum it up in one sentence."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": "Milk, eggs, flour. " * 20},
            {"role": "assistant", "content": f"Note {turn} is a shopping list for a cake."},
        ]
    return [*messages, {"role": "user", "content": "And the next one?"}]


def reordered(value: Any) -> Any:
    """The same JSON with the keys of its objects in another order, `properties` apart."""
    if isinstance(value, list):
        return [reordered(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: {name: reordered(below) for name, below in value[key].items()}
        if key == "properties"
        else reordered(value[key])
        for key in reversed(value)
    }


def edited(tools: Sequence[Any], number: int) -> list[Any]:
    changed = json.loads(json.dumps(list(tools)))
    changed[number]["function"]["description"] += " Now with more care."
    return changed


CHANGES: Final[dict[str, dict[str, Any]]] = {
    "same tools": {},
    "tool_choice none, tools kept": {"tool_choice": "none", "exclude": False},
    "tool_choice none, tools excluded": {"tool_choice": "none", "exclude": True},
    "tool_choice required": {"tool_choice": "required"},
    "keys in another order": {"tools": reordered(TOOLS)},
    "one tool appended": {"tools": [*TOOLS, edited(TOOLS, 0)[0] | {"cache_control": {}}]},
    "description of tool 5 edited": {"tools": edited(TOOLS, 5)},
    "tools in reverse order": {"tools": list(reversed(TOOLS))},
}
CHANGES["one tool appended"]["tools"][-1]["function"]["name"] = "tool_10"


def shared(first: Sequence[int], second: Sequence[int]) -> float:
    same = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        same += 1
    return same / len(first)


def prompts(models: Models, model: str) -> Callable[..., list[int]]:
    policy = PromptPolicy()
    template, habits = models.template(model, today(), policy)
    assert isinstance(template, ChatTemplate)

    def ids(turns: int, *, exclude: bool = True, **fields: Any) -> list[int]:
        body = {"model": "m", "messages": conversation(turns), "tools": TOOLS, **fields}
        text = render_prompt(
            check_chat(json.dumps(body).encode()),
            template,
            habits,
            policy,
            exclude_tools_when_none=exclude,
        )
        return models.tokenizer(model).encode_now(text)

    return ids


def main(arguments: Sequence[str]) -> int:
    names = list(arguments) or ["demo"]
    models = Models()
    made = {name: prompts(models, name) for name in names}
    print("| next turn, with | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    print("| prompt, ids | " + " | ".join(str(len(made[n](4))) for n in names) + " |")
    for change, fields in CHANGES.items():
        cells: list[str] = []
        for name in names:
            try:
                cells.append(f"{shared(made[name](4), made[name](5, **fields)):.0%}")
            except (CallerError, FaultError) as error:
                cells.append(type(error).__name__)
        print(f"| {change} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
