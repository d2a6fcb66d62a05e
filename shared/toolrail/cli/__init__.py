"""The `toolrail` command: one table of subcommands, each imported only when it is called.

A subcommand lives in the module of its name and is a function of its name that takes the arguments
after it and returns an exit code.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import Final

from toolrail.errors import ConfigError

COMMANDS: Final[dict[str, str]] = {
    "up": "run the whole stack on this machine: NATS and every service, each its own process",
    "parse": "parse model outputs (JSON lines) into reasoning, content and tool calls",
    "tag": "show the structural tag and the enforcement report of chat requests (JSON lines)",
    "check": "validate requests (JSON lines) as the server does before it prepares them",
    "doctor": "look at a running or broken deployment from the bus, and say what to do",
    "key": "make an API key: the key, shown once, and the entry for the gateway's file of keys",
    "nats": "secure the bus: users with least rights for a NATS server; its streams, made once",
    "prompt": "render the prompt of chat requests (JSON lines): text, token ids, prefix hash",
}

USAGE_ERROR: Final = 2
"""Exit status of a command line or setting that cannot work."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command's exit status; a setting that cannot work is named in one line on stderr."""
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        status = _run(name, rest)
        sys.stdout.flush()
    except ConfigError as error:
        print(f"toolrail {name}: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has what it wanted (`toolrail parse … | head`); nothing is left to flush into.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _run(name: str, arguments: Sequence[str]) -> int:
    if name in COMMANDS:
        command = getattr(importlib.import_module(f"toolrail.cli.{name}"), name)
        return command(arguments)
    if name in ("-h", "--help"):
        print(_overview())
    elif name == "--version":
        print(importlib.metadata.version("toolrail"))
    else:
        print(f"toolrail: no command {name!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return USAGE_ERROR
    return 0


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        ["usage: toolrail COMMAND …", "", *lines, "", "`toolrail COMMAND --help` tells more."]
    )
