"""What is blacked out, what is left, and that nothing of a secret survives."""

import base64
import hashlib
import itertools
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolrail.api_keys import new_key
from toolrail.errors import ConfigError
from toolrail.redaction import PatternRule, Redactor, Rules, redactor
from toolrail.redaction.walk import MAX_DEPTH

DEFAULT = Redactor()
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PRIVATE_KEY = (
    "-----BEGIN RSA PRIVATE KEY-----\nMIIBOgIBAAJBAKj34GkxFhD9\n-----END RSA PRIVATE KEY-----"
)
SECRETS = {
    "api_key": [
        new_key()[0],
        "sk-proj-abcdefghijklmnopqrstuvwx",
        "sk-ant-api03-abcdefghijklmnopqrstuvwx",
        "sk_live_abcdefghijklmnop",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2" * 9,
        "glpat-" + "a1B2" * 5,
        "xoxb-1234567890-abcdef",
        "AIza" + "a1B2c" * 7,
        "hf_" + "aB" * 17,
        "SUAN" + "ABCDEFG2" * 6 + "ABCDEF",
    ],
    "bearer": ["Authorization: Basic dXNlcjpwYXNzd29yZA=="],
    "jwt": [JWT],
    "private_key": [PRIVATE_KEY, PRIVATE_KEY[:60]],
    "email": ["jane.doe+x@mail.example.co.uk", "jürgen@exämple.de"],
    "card": ["4111111111111111", "4111 1111 1111 1111", "3782-822463-10005"],
    "iban": ["DE89370400440532013000", "GB82 WEST 1234 5698 7654 32"],
    "ssn": ["078-05-1120"],
    "phone": ["+14155552671", "+49 (0)30 901820", "(415) 555-2671", "415-555-2671"],
}
CASES = [(name, secret) for name, secrets in SECRETS.items() for secret in secrets]


@pytest.mark.parametrize(
    ("name", "secret"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)]
)
def test_a_secret_is_found_wherever_it_stands(name: str, secret: str) -> None:
    for text in (secret, f"It is {secret}, keep it.", f'"{secret}"', f"a\n{secret}\nb"):
        tally = Counter[str]()
        clean = DEFAULT.text(text, tally)
        assert secret not in clean
        assert f"[redacted:{name}]" in clean
        assert tally[name] == 1


@pytest.mark.parametrize("escape", ["\\n", "\\t", "\\r", "\\u00e9", "\\\\n", "\\\\"])
def test_a_secret_behind_an_escape_is_found(escape: str) -> None:
    for name, secret in CASES:
        for text in (
            f"{escape}{secret} a",
            f'{{"code": "a{escape}{secret}',
            f"print('{escape}{secret}')",
        ):
            clean = str(DEFAULT.body(text.encode()))
            assert secret not in clean, (name, text)
            assert DEFAULT.text(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The weather in Paris is 21.5 °C, 1013 hPa.",
        "task-force-of-twenty-five-people and risk-management-in-practice-now",
        "call 4111111111111112 or item 1234567890123",  # no check digit
        "DE00370400440532013000",
        "2026-11-30T04:23:26Z 192.168.0.1:8000 10.000.000",
        "def f(token: str, tokens: list[int]) -> None: ...",
        "user@host",
        "1 2 3 4 5 6 7 8 9 " * 20,
        "in 1990 1991 1992 1993 1994 1995 and 2019 2020 2021 2022 2023 2024",
        "1764476606123 1764476606123456789 and 100-200-3000",
        "a" * 600,
        "https://example.com/a:b@c?x=1",
        "0000000000000000",
        "password: at least 8 characters",
        "6d5f9c2e-3b8a-4f0e-9d1c-2a7b5e8f4c61",
    ],
)
def test_what_is_none_stays_the_same_object(text: str) -> None:
    assert DEFAULT.text(text) is text


def test_cards_are_found_in_longer_rows_of_digits() -> None:
    clean = DEFAULT.text("12 4111 1111 1111 1111 99, 4234 5678 9012 3457")
    assert clean == "12 [redacted:card] 99, 4234 5678 9012 3457"
    many = "1234 1678 " * 10
    assert DEFAULT.text(f"{many}5500 0000 0000 0004 {many}") == f"{many}[redacted:card] {many}"
    assert "0004" not in DEFAULT.text("5678 1234 5678 5500 0000 0000 0004")


def test_only_the_secret_of_a_phrase_goes() -> None:
    found = {
        "postgres://app:hunter2@db/x": "postgres://app:[redacted:url_password]@db/x",
        "Bearer abcdefghijklmnop123": "Bearer [redacted:bearer]",
        "export API_KEY='hunter22'": "export API_KEY='[redacted:password]'",
        '{"note": 1} "password": "hun\\"ter 2", x': (
            '{"note": 1} "password": "[redacted:field]", x'
        ),
    }
    assert {text: DEFAULT.text(text) for text in found} == found


def test_fields_go_whatever_they_hold_and_their_schemas_stay() -> None:
    schema = {"type": "object", "properties": {"password": {"type": "string"}}}
    body = {
        "api_key": "x",
        "nested": [{"clientSecret": {"a": [1]}, "Pass-Word": 7, "authorization": None}],
        "tools": [{"function": {"parameters": schema}}],
    }
    assert DEFAULT.value(body) == {
        "api_key": "[redacted:field]",
        "nested": [
            {
                "clientSecret": "[redacted:field]",
                "Pass-Word": "[redacted:field]",
                "authorization": None,
            }
        ],
        "tools": [{"function": {"parameters": schema}}],
    }


def test_json_inside_of_texts_is_gone_through() -> None:
    inner = json.dumps({"city": "Paris", "password": "p w", "to": "a\u0040b.co"})
    outer = json.dumps({"arguments": inner})
    clean = DEFAULT.value({"arguments": inner, "twice": outer, "plain": '{ "city": "Paris" }'})
    assert isinstance(clean, dict)
    hidden = {"city": "Paris", "password": "[redacted:field]", "to": "[redacted:email]"}
    assert json.loads(clean["arguments"]) == hidden
    assert json.loads(json.loads(clean["twice"])["arguments"]) == hidden
    assert clean["plain"] == '{ "city": "Paris" }'  # as it was written


@pytest.mark.parametrize(
    "cut",
    [
        '{"city": "Paris", "password": "hunter two',
        '{"password": {"value": "hunter", "more": "hunter"',
        '{"password":hunter',
        '[{"x": "{\\"password\\": \\"hunter',
    ],
)
def test_arguments_that_were_cut_keep_no_secret(cut: str) -> None:
    clean = DEFAULT.value({"arguments": cut})
    assert "hunter" not in str(clean)
    assert "[redacted:field]" in str(clean)


def test_a_secret_over_several_parts_of_a_message() -> None:
    parts = [
        {"type": "text", "text": "mail jane.d"},
        {"type": "image_url", "image_url": {"url": "https://x.example/y.png"}},
        {"type": "text", "text": "oe@exam"},
        {"type": "text", "text": "ple.com, now"},
    ]
    clean = DEFAULT.value([{"role": "user", "content": parts}])
    assert isinstance(clean, list)
    texts = [part.get("text") for part in clean[0]["content"]]
    assert texts == ["mail [redacted:email]", None, "[redacted:email]", "[redacted:email], now"]


def test_media_becomes_its_size_and_hash() -> None:
    data = bytes(range(256)) * 4
    encoded = base64.b64encode(data).decode()
    digest = hashlib.sha256(data).hexdigest()
    body = {
        "url": f"data:image/png;base64,{encoded}",
        "audio": {"data": encoded},
        "prose": f"![x](data:image/webp;base64,{encoded}) and more",
    }
    tally = Counter[str]()
    assert DEFAULT.value(body, tally) == {
        "url": f"[redacted:media image/png 1024 bytes sha256:{digest}]",
        "audio": {"data": f"[redacted:media base64 1024 bytes sha256:{digest}]"},
        "prose": f"![x]([redacted:media image/webp 1024 bytes sha256:{digest}]) and more",
    }
    assert tally == {"media": 3}


def test_logprobs_go_since_their_tokens_are_pieces_of_text() -> None:
    value = {"logprobs": [{"token": "hun"}], "top_logprobs": 5, "x": {"logprobs": True}}
    expected = {"logprobs": "[redacted:logprobs]", "top_logprobs": 5, "x": {"logprobs": True}}
    assert DEFAULT.value(value) == expected


def test_keys_and_numbers_are_texts_too() -> None:
    value = {"a@b.co": 1, "c@d.co": 4111111111111111, "n": 4111111111111112}
    assert DEFAULT.value(value) == {
        "[redacted:email]": 1,
        "[redacted:email]#1": "[redacted:card]",
        "n": 4111111111111112,
    }


def test_bodies_that_are_no_json_and_nesting_without_end() -> None:
    assert DEFAULT.body(b'{"password": "hunter\xff') == '{"password": "[redacted:field]'
    assert DEFAULT.body(b'{"a": 1}') == {"a": 1}
    deep: object = "a@b.co"
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    assert "a@b.co" not in str(DEFAULT.value(deep))
    assert "a@b.co" not in str(DEFAULT.body(b"[" * 5000 + b'"a@b.co"' + b"]" * 5000))


def test_an_operators_rules(tmp_path) -> None:
    file = tmp_path / "redaction.toml"
    file.write_text(
        """
        builtin = ["email"]
        fields = ["date_of_birth"]
        paths = ["$.metadata.*", "$..user['e-mail']", "$.messages[1].content", "$.tools[*].name"]
        [[patterns]]
        name = "customer"
        pattern = 'CUST-[0-9]{4}'
        [[patterns]]
        name = "room"
        pattern = 'room (?P<secret>[0-9]+)'
        """
    )
    clean = redactor(str(file)).value(
        {
            "metadata": {"a": "x", "b": {"c": 1}},
            "deep": [{"user": {"e-mail": "none", "name": "n"}}],
            "messages": [{"content": "CUST-1234 in room 12"}, {"content": [1]}],
            "tools": [{"name": "t"}],
            "dateOfBirth": "1970",
            "card": "4111111111111111",
        }
    )
    assert clean == {
        "metadata": {"a": "[redacted:path]", "b": "[redacted:path]"},
        "deep": [{"user": {"e-mail": "[redacted:path]", "name": "n"}}],
        "messages": [
            {"content": "[redacted:customer] in room [redacted:room]"},
            {"content": "[redacted:path]"},
        ],
        "tools": [{"name": "[redacted:path]"}],
        "dateOfBirth": "[redacted:field]",
        "card": "4111111111111111",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("what = 1", "what"),
        ('builtin = ["emails"]', "no built-in rule 'emails'"),
        ('paths = ["messages"]', "messages"),
        ('paths = ["$.a[?(@.b)]"]', r"\[\?"),
        ('paths = ["$"]', "no path"),
        ("[[patterns]]\nname = 'x'\npattern = '(a'", "pattern 'x': missing"),
        ("[[patterns]]\nname = 'x'\npattern = '(a)\\1'", "pattern 'x': invalid escape"),
        ("[[patterns]]\nname = 'x'\npattern = 'a*'", "every text"),
        ("[[patterns]]\nname = 'x'\npattern = '((a{1,99}){1,10}){1,99}'", "pattern 'x'"),
        ("[[patterns]]\nname = 'email'\npattern = 'a'", "'email' is taken"),
        ("[[patterns]]\nname = 'No Name'\npattern = 'a'", "name"),
    ],
)
def test_rules_that_cannot_be_used_are_refused(tmp_path, text: str, why: str) -> None:
    file = tmp_path / "redaction.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=why):
        redactor(str(file))


def test_a_missing_file_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match="redaction_file: cannot read"):
        redactor(str(tmp_path / "none.toml"))


def test_many_fields_do_not_switch_off_the_rest() -> None:
    rules = Rules(
        fields=tuple(f"a_rather_long_name_of_a_field_that_is_there_{n}" for n in range(100))
    )
    text = '{"a-ratherLong_name_of_a_field_that_is_there_99": "x", "to": "a@b.co"'
    clean = Redactor(rules).text(text)
    assert "x" not in clean
    assert "[redacted:email]" in clean


def test_what_uncovers_something_new_at_every_pass_goes_whole() -> None:
    """An expression at the text's edge finds another edge once it has taken one."""
    eater = Redactor(Rules(patterns=(PatternRule("edge", "^[a-z] "),)))
    assert eater.text("a b c d") == "[redacted:edge][redacted:edge][redacted:edge]d"
    assert eater.text("a " * 20) == "[redacted:text]"


def test_what_is_full_of_finds_goes_whole() -> None:
    mail, mails = "a@b.co ", "a@b.co " * 1100
    assert DEFAULT.text(mails) == "[redacted:text]"
    assert DEFAULT.value({"a": mails, "b": "fine"}) == {"a": "[redacted:text]", "b": "fine"}
    assert "4111" not in DEFAULT.text("4111 " * 5000)
    many = DEFAULT.value([mail * 900] * 12 + [mail, "fine"])
    assert isinstance(many, list)
    assert many[0].startswith("[redacted:email] [redacted:email]")
    assert many[-2:] == ["[redacted:text]", "fine"]
    parts = DEFAULT.value([{"text": mails}, {"text": "fine"}])
    assert parts == [{"text": "[redacted:text]"}, {"text": "[redacted:text]"}]


PIECES = st.one_of(
    st.sampled_from([secret for _, secret in CASES]),
    st.text(max_size=12),
    st.sampled_from(['"password": "', "[redacted:email]", "[redacted:", "]", " ", "\ud800", "{"]),
)
VALUES = st.recursive(
    st.lists(PIECES, max_size=4).map("".join) | st.none() | st.booleans() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "password", "x", "properties"]), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None)
@given(st.lists(PIECES, max_size=8).map("".join))
def test_redacting_again_changes_nothing_and_texts_stay_short(text: str) -> None:
    tally = Counter[str]()
    once = DEFAULT.text(text, tally)
    assert DEFAULT.text(once) == once
    assert len(once) <= len(text) + 32 * (sum(tally.values()) + 1)


@settings(max_examples=25, deadline=None)
@given(VALUES)
def test_values_redacted_again_stay_the_same(value: object) -> None:
    once = DEFAULT.value(value)
    assert DEFAULT.value(once) == once


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(SECRETS["api_key"] + SECRETS["jwt"] + SECRETS["email"] + SECRETS["card"]),
    st.lists(st.integers(0, 40), max_size=3),
    st.sampled_from([" ", "\n", '"', "'", "(", ",", ": ", "，"]),
)
def test_no_secret_survives_in_parts_or_in_json_in_json(secret, cuts, around) -> None:
    text = f"x{around}{secret}{around}y"
    at = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    parts = [{"text": text[a:b]} for a, b in itertools.pairwise(at)]
    clean = DEFAULT.value({"content": parts, "arguments": json.dumps({"q": json.dumps([text])})})
    assert isinstance(clean, dict)
    assert secret not in "".join(part["text"] for part in clean["content"])
    assert json.dumps(json.dumps(secret))[2:-2] not in clean["arguments"]
