"""What a model directory says about its model, read without an engine.

Hugging Face layout: `config.json`, `tokenizer.json`, `tokenizer_config.json`, and perhaps
`generation_config.json` and `chat_template.jinja`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec

from toolrail.errors import ConfigError

_SHIPPED: Final = files("toolrail").joinpath("families", "templates")
"""Chat templates of models whose own does not do for tools."""
_SAMPLING_DEFAULTS: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_POSITIONS: Final = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """One model directory.

    Attributes:
        directory: where it is.
        tokenizer_json: content of `tokenizer.json`.
        chat_template: template source; "" when the model has none.
        context_length: positions the model was made for; 0 when it does not say.
        end_of_text_ids: ids that end a turn, the principal one first.
        bos_token: text of the token, or None.
        eos_token: text of the token, or None.
        default_sampling: what `generation_config.json` recommends.
    """

    directory: Path
    tokenizer_json: str
    chat_template: str
    context_length: int
    end_of_text_ids: tuple[int, ...]
    bos_token: str | None
    eos_token: str | None
    default_sampling: Mapping[str, float]


def read(directory: Path, *, custom_template: str = "") -> ModelFiles:
    """The files of `directory`; `custom_template` replaces the model's template.

    It is a file or, where there is no such file, the name of a template that ships with us
    (`gemma4_tool`, with or without folders and the ending).

    Raises:
        ConfigError: no such directory, or a file that is needed is missing or unreadable.
    """
    if not directory.is_dir():
        raise ConfigError("model", f"no model directory at {directory}")
    config = _json(directory / "config.json")
    text_config = config.get("text_config")
    if isinstance(text_config, dict):
        config = {**config, **text_config}
    tokenizer_config = _json(directory / "tokenizer_config.json", required=False)
    generation = _json(directory / "generation_config.json", required=False)
    tokenizer_json = _text(directory / "tokenizer.json", "model")
    eos_token = _token_text(tokenizer_config.get("eos_token"))
    return ModelFiles(
        directory=directory,
        tokenizer_json=tokenizer_json,
        chat_template=_given_template(custom_template)
        if custom_template
        else _template(directory, tokenizer_config),
        context_length=next(
            (value for key in _POSITIONS if isinstance(value := config.get(key), int)), 0
        ),
        end_of_text_ids=_ids(generation.get("eos_token_id"), config.get("eos_token_id")),
        bos_token=_token_text(tokenizer_config.get("bos_token")),
        eos_token=eos_token,
        default_sampling={
            key: float(value)
            for key in _SAMPLING_DEFAULTS
            if isinstance(value := generation.get(key), int | float)
        },
    )


def _given_template(name: str) -> str:
    path = Path(name).expanduser()
    shipped = {item.name: item for item in _SHIPPED.iterdir()}.get(f"{path.stem}.jinja")
    if shipped is not None and not path.exists():
        return shipped.read_text(encoding="utf-8")
    return _text(path, "custom-jinja-template")


def _template(directory: Path, tokenizer_config: Mapping[str, object]) -> str:
    own_file = directory / "chat_template.jinja"
    if own_file.exists():
        return _text(own_file, "model")
    match tokenizer_config.get("chat_template"):
        case str(template):
            return template
        case list(named):
            return _joined({entry["name"]: entry["template"] for entry in named})
        case _:
            return ""


def _joined(templates: Mapping[str, str]) -> str:
    """Several named templates as one: `tool_use` is meant for requests with tools."""
    default = templates.get("default") or next(iter(templates.values()), "")
    if "tool_use" not in templates:
        return default
    return f"{{% if tools %}}{templates['tool_use']}{{% else %}}{default}{{% endif %}}"


def _ids(*candidates: object) -> tuple[int, ...]:
    """The first candidate that holds ids."""
    for candidate in candidates:
        if isinstance(candidate, int):
            return (candidate,)
        if isinstance(candidate, list) and candidate:
            return tuple(int(token_id) for token_id in candidate)
    return ()


def _token_text(value: object) -> str | None:
    """A special token in `tokenizer_config.json`: its text, or an object that holds it."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _text(path: Path, field: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(field, f"cannot read {path}: {error}") from error


def _json(path: Path, *, required: bool = True) -> dict[str, object]:
    if not required and not path.exists():
        return {}
    try:
        return msgspec.json.decode(_text(path, "model"), type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise ConfigError("model", f"{path}: {error}") from error
