"""The parts a family's record is made of: plain data that parser, tag and renderer all read.

A call is written as a sequence of parts, perhaps inside a section. Write the canonical spelling;
it is read tolerantly (whitespace runs, optional closers). Nothing here does anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Marker:
    """A control string. `special`: one vocabulary token that skip-special decoding would drop."""

    text: str
    special: bool = False


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """How reasoning is written. `after`: the separator that templates write after `end`.

    Attributes:
        begins, ends: further spellings, read but never written.
        label: an optional word eaten right after `begin` (gemma4's `thought` line).
        boundaries: tool openers that end open reasoning by themselves.
        strays: further control strings that are eaten wherever they stand.
        calls_inside: whether a well-formed call inside reasoning is a call. False: reasoning and
            calls belong to different models, and only what a boundary ends is left.
        unopened: whether a closer that nothing opened means that all before it was reasoning.
            Text then waits until that is decided, unless the prompt decides it.
        special: whether the markers are single vocabulary tokens.
    """

    begin: str
    end: str
    after: str = ""
    begins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    label: str = ""
    boundaries: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    calls_inside: bool = True
    unopened: bool = False
    special: bool = True


@dataclass(frozen=True, slots=True)
class Lit:
    """Literal text. Read with any whitespace where it has some, and before each of its words."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """The function's name. `quotes`: any of these may surround it; the first is written."""

    quotes: str = ""


@dataclass(frozen=True, slots=True)
class Index:
    """The running number of the call in the turn, decimal, from `start`.

    A family that writes one has wire ids: the header from `Name`'s prefix to here is the id.
    """

    start: int = 0


@dataclass(frozen=True, slots=True)
class TypeAttribute:
    """An attribute between key and value that says whether the value is raw text or JSON.

    Written `before + (raw | json) + after`. `bad_json`: what a value announced as JSON that is
    not becomes: the raw text as a string, or a malformed call. `kinds`: where the attribute names
    the JSON type itself, the word for each.
    """

    before: str
    raw: str
    json: str
    after: str
    bad_json: Literal["text", "malformed"] = "text"
    kinds: tuple[tuple[str, str], ...] = ()

    def word(self, kind: str) -> str:
        """What is written for a value of this JSON type."""
        return self.raw if kind == "string" else dict(self.kinds).get(kind, self.json)


@dataclass(frozen=True, slots=True)
class XmlStyle:
    """Arguments as one element per parameter.

    `open key [attribute] key_end value_open frame VALUE frame close after`.

    Attributes:
        style: xgrammar's name of the style.
        open: what precedes the key, `<parameter=`.
        key_end: what ends the key (and, without `value_open`, the opening tag), `>`.
        close: what ends a value, `</parameter>`.
        value_open: a second opening tag between key and value (glm), or "".
        frame: framing that the template writes around a value; one is eaten on each side.
        after: what the canonical text has after each parameter.
        empty: what it has where there are none.
        quotes: quotes that may surround the key (in the order tried); the first is written.
        entities: what characters of a key are written as, in the order of writing.
        attribute: the type attribute on the wire; None: values are typed by the schema.
        prefer: how a text that is both a string constant and a typed value is read.
        follow: what must come (after whitespace) for a `close` to count; empty: any `close` does.
        quoted: opener and closer of a call that a value may quote whole: between them a `close`
            does not count. An opener that only is quoted, without its closer, proves nothing.
        json_body: whether a call may have one JSON object in place of the elements.
        missing_close: closers of the call that may end a value whose own `close` is missing,
        missing_follow: what must come after such a one for it to count (or the end of stream).
        missing_ends: whether the value is complete then; else its call is malformed.
        next_ends: whether the opener of another declared parameter ends a value as well.
        values: `text`: raw text, read by the schema; `json_or_text`: a value that is JSON is that
            JSON, and strings that would be are written as JSON.
        framed: whether the frame is always written; else only around values that need it.
        engine: whether the grammar engine knows the style; else parameters are spelled out.
        counted: the closer, or what it begins with: where a tag counts the characters of a value,
            the value cannot contain it; "": lengths are not counted beside a closer.
        reserved: what no value may contain under a tag, although the parser would read it: the
            start of a closer, with which a value might go on to the limit. Not where the
            deployment turns exclusions off.
    """

    style: str
    open: str
    key_end: str
    close: str
    value_open: str = ""
    frame: str = ""
    after: str = ""
    empty: str = ""
    quotes: str = ""
    entities: tuple[tuple[str, str], ...] = ()
    attribute: TypeAttribute | None = None
    prefer: Literal["typed", "string"] = "typed"
    json_body: bool = False
    follow: tuple[str, ...] = ()
    quoted: tuple[str, str] | None = None
    missing_close: tuple[str, ...] = ()
    missing_follow: tuple[str, ...] = ()
    missing_ends: bool = True
    next_ends: bool = False
    values: Literal["text", "json_or_text"] = "text"
    framed: bool = True
    engine: bool = True
    counted: str = ""
    reserved: str = ""


@dataclass(frozen=True, slots=True)
class JsonStyle:
    """Arguments as one JSON object, verbatim."""

    style: str = "json"


@dataclass(frozen=True, slots=True)
class Notation:
    """How values of any depth are spelled out, where neither JSON nor one element a value does it.

    Attributes:
        object: what surrounds the members of an object.
        array: what surrounds the items of an array.
        separator: what stands between two members or items.
        member: what precedes a key, follows it, and follows the value; `{key}` stands for the key.
        item: what precedes and what follows an item of an array.
        gap: framing that may follow a member or item; read, never written.
        bare: characters that a key may not have to be written as it is; None: no key is.
        quoted: whether any other key is written as a string; else it cannot be written.
        quotes: what surrounds a string; the first is written, the others are read.
        escaped: whether strings have JSON's escapes; else they are raw text.
        guard: what no string can hold, because it ends one.
        constants: how true, false and null are written.
        loose: whether a space of the spelling may be left out.
        typed: whether the text itself tells a string from another value.
    """

    object: tuple[str, str] = ("{", "}")
    array: tuple[str, str] = ("[", "]")
    separator: str = ", "
    member: tuple[str, str, str] = ("", ": ", "")
    item: tuple[str, str] = ("", "")
    gap: str = ""
    bare: str | None = None
    quoted: bool = True
    quotes: tuple[str, ...] = ('"',)
    escaped: bool = True
    guard: str = ""
    constants: tuple[str, str, str] = ("true", "false", "null")
    loose: bool = True
    typed: bool = True


@dataclass(frozen=True, slots=True)
class NotationStyle:
    """Arguments in a notation of the family's own, nested values included.

    Attributes:
        style: its name, for what a schema becomes in it.
        arguments: how the arguments themselves are written.
        values: how what is below them is written.
        inner: how a value is written that `values` cannot say; None: it can say all.
        reads: what reads them: literals between delimiters, or elements typed by the schema; a
            family that reads its own says `block`.
        strays: where the grammar cannot spell out arguments of any names: what ends such arguments,
            and what else they may not contain; they are free text then.
        sorts: whether the template sorts keys, so that a model may write them in that order.
    """

    style: str
    arguments: Notation
    values: Notation
    inner: Notation | None = None
    reads: Literal["delimited", "elements", "block"] = "block"
    strays: tuple[str, ...] = ()
    sorts: bool = False


ArgumentStyle: TypeAlias = JsonStyle | XmlStyle | NotationStyle


JSON: Final = JsonStyle()


@dataclass(frozen=True, slots=True)
class Args:
    """The arguments, in a style."""

    style: ArgumentStyle = JSON


@dataclass(frozen=True, slots=True)
class Objects:
    """Calls as JSON objects with a name and arguments: the whole body of a section.

    Written `{"name": NAME, "arguments": ARGUMENTS}`; read with keys in any order, aliases, other
    keys ignored, one object or several, with or without the brackets of an array.

    Attributes:
        name: the key of the name.
        arguments: keys of the arguments; the first is written.
        id: the key of the wire id, or "".
        array: whether the canonical text is an array.
        separator: what stands between two objects.
    """

    name: str = "name"
    arguments: tuple[str, ...] = ("arguments", "parameters")
    id: str = ""
    array: bool = False
    separator: str = ", "


Part: TypeAlias = Lit | Name | Index | Args | Objects


@dataclass(frozen=True, slots=True)
class Section:
    """What surrounds calls. `each`: one section a call when writing (any number when reading).

    `begins` and `ends` are further spellings that are read but never written. `word`: `begin` is a
    word of prose too, and opens calls only with the array's bracket right after it.
    """

    begin: str
    end: str
    each: bool = False
    begins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    word: bool = False


@dataclass(frozen=True, slots=True)
class Syntax:
    """How a turn is written: everything the template machine, tag and renderer need.

    Attributes:
        call: the parts of one call; `Objects` alone when the calls are JSON objects.
        section: what surrounds calls, or None.
        separator: between calls (sections, when there is one a call).
        trail: framing eaten after tool markup, as much of it as is there; None: the separator.
        lead: what the template writes between text and the first call; eaten before a call.
        lead_in_part: whether any end of the lead is eaten where not all of it is there.
        always_led: whether the template writes it also where no text precedes.
        loose: whether a newline at the end of a literal may be left out under a tag, too.
        closer_required: a call (section, for `Objects`) without its closer is no call.
        bare: whether a call without its section is recovered.
        prose_after_opener: what follows an opener without a call: `dropped` up to the closer,
            `kept` (only the opener is eaten), or `literal` (the opener is prose too).
        strays: further control strings that are eaten wherever they are not expected.
        inner: control strings that stand inside calls only: eaten like strays, but where a call
            broke off they do not end its rest.
        reserved: further strings that free text must not contain under a tag.
        bans: strings that keep calls out under `tool_choice: none`; empty: the openers.
    """

    call: tuple[Part, ...]
    section: Section | None = None
    separator: str = ""
    trail: str | None = None
    lead: str = ""
    lead_in_part: bool = False
    always_led: bool = False
    loose: bool = False
    closer_required: bool = False
    bare: bool = True
    prose_after_opener: Literal["dropped", "kept", "literal"] = "dropped"
    strays: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    bans: tuple[str, ...] = ()

    @property
    def trailing(self) -> str:
        """The framing after tool markup."""
        return self.separator if self.trail is None else self.trail


@dataclass(frozen=True, slots=True)
class MessageSpelling:
    """A message of a turn that is made of messages: its header, and what may close its body.

    The first of `ends` is written.
    """

    begin: str
    ends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallSpelling:
    """A call as a message of its own.

    `begin` and `end` surround the arguments; `{name}` in `begin` stands for the function's name.
    `ends` may close the message, `last` the turn with it; the first of each is written.
    """

    begin: str
    end: str
    ends: tuple[str, ...]
    last: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TurnSpelling:
    """How the messages of a turn are written, for tag and renderer.

    Attributes:
        between: what begins every message but the first, whose beginning is in the prompt.
        thought: a message of reasoning.
        remark: visible text before something else.
        answer: visible text that ends the turn.
        call: a call.
        markers: the control strings; no text contains one under a tag.
    """

    between: str
    thought: MessageSpelling
    remark: MessageSpelling
    answer: MessageSpelling
    call: CallSpelling
    markers: tuple[str, ...]
