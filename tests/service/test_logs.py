from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from toolrail.service.logs import OneLine
from toolrail.telemetry import attached

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


def record(message: str = "took %d", *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("toolrail.x", logging.WARNING, __file__, 1, message, arguments, None)
    vars(made).update(extra)
    return made


def failed() -> logging.LogRecord:
    made = record("failed")
    try:
        raise ValueError("a secret\nprompt")
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


def test_json_has_the_process_the_trace_and_the_fields_given() -> None:
    style = OneLine("gateway", "g1", "json", messages=False)
    with attached(PARENT):
        line = style.format(record("took %d", 3, request_id="r1", size=7))
    fields = json.loads(line)
    assert fields.pop("time").endswith("Z")
    assert fields == {
        "level": "WARNING",
        "service": "gateway",
        "instance": "g1",
        "logger": "toolrail.x",
        "message": "took 3",
        "trace_id": TRACE,
        "request_id": "r1",
        "size": 7,
    }


def test_console_is_one_line_whatever_the_message_holds() -> None:
    style = OneLine("gateway", "g1", "console", messages=False)
    line = style.format(record("a\nb", request_id="r 1", empty=""))
    assert "\n" not in line
    assert line.endswith('WARNING g1 toolrail.x: a\\nb request_id="r 1" empty=""')


@pytest.mark.parametrize("odd", ["\r", "\x1b[2J", "\u2028", "\x00", "\t", "\x9b"])
def test_nothing_that_a_terminal_obeys_is_shown(odd: str) -> None:
    line = OneLine("gateway", "g1", "console", messages=False).format(
        record(f"a{odd}b", name_of=f"a{odd}b=c")
    )
    assert line.isprintable()
    assert odd.encode("unicode_escape").decode() in line


def test_a_trace_context_that_cannot_be_read_is_not_repeated() -> None:
    script = (
        "from toolrail.service.logs import configure\n"
        "from toolrail.telemetry import attached\n"
        "configure('gateway', 'g1', 'console', 'INFO')\n"
        f"with attached({PARENT} | {{'tracestate': 'a secret'}}): pass\n"
        "import logging; logging.warning('said')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert "said" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize("style", ["console", "json"])
def test_an_exception_is_its_type_and_its_places(style: str) -> None:
    line = OneLine("gateway", "g1", style, messages=False).format(failed())  # type: ignore[arg-type]
    assert "ValueError" in line
    assert "service/test_logs.py" in line
    assert ":failed" in line
    assert "secret" not in line
    assert "\n" not in line


def test_the_message_of_an_exception_is_for_debugging() -> None:
    line = OneLine("gateway", "g1", "json", messages=True).format(failed())
    assert json.loads(line)["error_message"] == "a secret\nprompt"
