from __future__ import annotations

import dataclasses
import logging
import re

import pytest

from toolrail.errors import ConfigError
from toolrail.flags import help_text
from toolrail.settings import (
    CommonSettings,
    GatewaySettings,
    PostprocessorSettings,
    PreprocessorSettings,
    WorkerSettings,
    load,
    parse_structural_tag,
)
from toolrail.structural_tag import TagOptions

ALL = [GatewaySettings, PreprocessorSettings, PostprocessorSettings, WorkerSettings]

SECRET = re.compile(r"key|secret|password|passwd|credential|seed|(?<!special_)token(?!s)")
FILES = {"tls_key", "nats_tls_key"}
"""These are names of files too."""


@pytest.mark.parametrize("record", ALL)
def test_without_flags_and_variables_the_defaults_hold(record: type[CommonSettings]) -> None:
    assert load(record, [], {"PATH": "/bin", "TOOLRAIL_OTHER": "x"}) == record()


@pytest.mark.parametrize("record", ALL)
def test_a_secret_is_given_as_a_file(record: type[CommonSettings]) -> None:
    """Command lines can be read by whoever is on the machine, variables end up in reports."""
    names = {field.name for field in dataclasses.fields(record) if field.type == "str"}
    secret = {name for name in names if SECRET.search(name)}
    assert {name for name in secret if not name.endswith("_file")} <= FILES
    assert "nats_nkey_file" in secret


def test_flags_win_over_variables_and_the_last_flag_wins() -> None:
    env = {"TOOLRAIL_PORT": "1", "TOOLRAIL_HOST": "0.0.0.0", "TOOLRAIL_DRAIN_S": ""}
    settings = load(GatewaySettings, ["--port", "2", "--port=3"], env)
    assert (settings.port, settings.host, settings.drain_s) == (3, "0.0.0.0", 30.0)


def test_types_follow_the_record() -> None:
    argv = ["--heartbeat-s", "1.5", "--max-streams", "7", "--log-format", "json", "--instance=a-1"]
    settings = load(GatewaySettings, argv, {})
    assert (settings.heartbeat_s, settings.max_streams) == (1.5, 7)
    assert (settings.log_format, settings.instance) == ("json", "a-1")


@pytest.mark.parametrize(
    ("argv", "env", "expected"),
    [
        (["--obey-tag"], {}, True),
        (["--no-obey-tag"], {"TOOLRAIL_OBEY_TAG": "1"}, False),
        (["--obey-tag=off"], {}, False),
        ([], {"TOOLRAIL_OBEY_TAG": "Yes"}, True),
    ],
)
def test_a_boolean_is_a_switch(argv: list[str], env: dict[str, str], expected: bool) -> None:
    assert load(WorkerSettings, argv, env).obey_tag is expected


@pytest.mark.parametrize(
    ("argv", "env", "field"),
    [
        (["--prot", "1"], {}, "--prot"),
        (["port"], {}, "port"),
        (["--port"], {}, "--port"),
        (["--port", "--host", "x"], {}, "--port"),
        (["--port", "eighty"], {}, "--port"),
        (["--port", "1.5"], {}, "--port"),
        (["--port", "65536"], {}, "--port"),
        (["--port", "-1"], {}, "--port"),
        (["--max-streams", "0"], {}, "--max-streams"),
        (["--request-timeout-s", "0"], {}, "--request-timeout-s"),
        (["--request-timeout-s", "nan"], {}, "--request-timeout-s"),
        (["--trace-sample-ratio", "1.1"], {}, "--trace-sample-ratio"),
        (["--log-format", "xml"], {}, "--log-format"),
        (["--registration-ttl-s", "1"], {}, "registration_ttl_s"),
        (["--instance", "a.b"], {}, "instance"),
        (["--no-port"], {}, "--no-port"),
        ([], {"TOOLRAIL_PORT": "x"}, "TOOLRAIL_PORT"),
    ],
)
def test_what_is_wrong_is_named_as_it_was_spelt(
    argv: list[str], env: dict[str, str], field: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(GatewaySettings, argv, env)
    assert caught.value.field == field


def test_an_infinite_deadline_is_none_and_therefore_refused() -> None:
    with pytest.raises(ConfigError):
        load(GatewaySettings, ["--request-timeout-s", "inf"], {})


@pytest.mark.parametrize("record", ALL)
def test_help_describes_every_field_with_its_default(record: type[CommonSettings]) -> None:
    text = help_text(record, "toolrail-x")
    fields = record.__dataclass_fields__
    for name in fields:
        flag = "--" + name.replace("_", "-")
        line = next(
            i
            for i, line in enumerate(text.splitlines())
            if line.split()[:1] == [flag] or line.strip().startswith(flag + ",")
        )
        description = text.splitlines()[line + 1].strip()
        assert not description.startswith("["), name


# --- the worker's other spellings


def test_the_specifications_spellings_are_aliases() -> None:
    argv = ["--dyn-tool-call-parser", "hermes", "--dyn-reasoning-parser", "qwen3"]
    settings = load(WorkerSettings, argv, {"DYN_PARSER_VERSION": "2"})
    assert (settings.tool_call_parser, settings.reasoning_parser) == ("hermes", "qwen3")
    assert settings.dyn_parser_version == "2"


def test_our_own_variable_wins_over_the_specifications() -> None:
    env = {"DYN_STRUCTURAL_TAG": "false", "TOOLRAIL_STRUCTURAL_TAG": "true"}
    assert load(WorkerSettings, [], env).structural_tag == "true"
    assert load(WorkerSettings, [], {"DYN_STRUCTURAL_TAG": "false"}).structural_tag == "false"


def test_worker_spellings_are_unknown_to_other_services() -> None:
    for flag in ("--dyn-structural-tag", "--dyn-enable-structural-tag", "--structural-tag"):
        with pytest.raises(ConfigError, match="unknown flag"):
            load(GatewaySettings, [flag], {})


@pytest.mark.parametrize("flag", ["--structural-tag", "--dyn-structural-tag"])
def test_structural_tag_without_a_value_means_the_defaults(flag: str) -> None:
    settings = load(WorkerSettings, [flag, "--slots", "2"], {"DYN_STRUCTURAL_TAG": "false"})
    assert parse_structural_tag(settings.structural_tag) == TagOptions()
    assert settings.slots == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", TagOptions()),
        ("False", None),
        ("{}", TagOptions()),
        ('{"scope":"auto"}', TagOptions(scope="auto")),
        (
            '{"scope":"always","schema":"strict","allow_tool_calls_with_structured_output":true,'
            '"exclude_special_tokens":false,"reasoning_boundary":"backend",'
            '"tool_arguments_any_order":true}',
            TagOptions(
                scope="always",
                schema="strict",
                allow_tool_calls_with_structured_output=True,
                exclude_special_tokens=False,
                reasoning_boundary="backend",
                tool_arguments_any_order=True,
            ),
        ),
        ('{"exclude_special_tokens":null}', TagOptions(exclude_special_tokens=None)),
    ],
)
def test_structural_tag_is_a_boolean_or_an_object(text: str, expected: TagOptions | None) -> None:
    assert (
        parse_structural_tag(load(WorkerSettings, [f"--structural-tag={text}"], {}).structural_tag)
        == expected
    )


@pytest.mark.parametrize(
    "text",
    [
        "maybe",
        "null",
        "[]",
        '"auto"',
        '{"scope":"sometimes"}',
        '{"scop":"auto"}',
        '{"scope":',
        "3",
        '{"tool_arguments_any_order":"yes"}',
    ],
)
def test_a_bad_structural_tag_stops_the_worker_and_names_the_flag(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(WorkerSettings, ["--dyn-structural-tag", text], {})
    assert caught.value.field == "--dyn-structural-tag"
    with pytest.raises(ConfigError) as caught:
        load(WorkerSettings, [], {"DYN_STRUCTURAL_TAG": text})
    assert caught.value.field == "DYN_STRUCTURAL_TAG"


@pytest.mark.parametrize(
    ("argv", "env", "expected"),
    [
        (["--dyn-enable-structural-tag"], {}, TagOptions()),
        (["--no-dyn-enable-structural-tag"], {}, None),
        (["--dyn-structural-tag-scope", "auto"], {}, TagOptions(scope="auto")),
        (["--dyn-structural-tag-schema=strict"], {}, TagOptions(schema="strict")),
        (
            ["--dyn-enable-structural-tag", "--dyn-structural-tag-scope", "auto"],
            {},
            TagOptions(scope="auto"),
        ),
        ([], {"DYN_ENABLE_STRUCTURAL_TAG": "false"}, None),
        ([], {"DYN_STRUCTURAL_TAG_SCOPE": "auto"}, TagOptions(scope="auto")),
        ([], {"DYN_STRUCTURAL_TAG_SCHEMA": "strict"}, TagOptions(schema="strict")),
        (["--dyn-enable-structural-tag"], {"DYN_STRUCTURAL_TAG": "false"}, TagOptions()),
    ],
)
def test_legacy_spellings_work_and_warn(
    argv: list[str],
    env: dict[str, str],
    expected: TagOptions | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        settings = load(WorkerSettings, argv, env)
    assert parse_structural_tag(settings.structural_tag) == expected
    assert "deprecated" in caplog.text


def test_a_legacy_spelling_loses_against_the_new_one_beside_it() -> None:
    argv = ["--no-dyn-enable-structural-tag", "--structural-tag", '{"scope":"auto"}']
    assert load(WorkerSettings, argv, {}).structural_tag == '{"scope":"auto"}'


def test_a_bad_legacy_value_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        load(WorkerSettings, ["--dyn-structural-tag-scope", "some"], {})
    assert caught.value.field == "--dyn-structural-tag-scope"
