"""What a request's constraint enforces, for the caller to see: nothing is weakened in silence.

A report per schema, keyword by keyword, is `toolrail.schema.enforcement`'s; here they are put
together with what holds the request as a whole.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from toolrail.schema.enforcement import Note, SchemaReport, Status
from toolrail.schema.normalise import free
from toolrail.tools import Tool

HeldBy: TypeAlias = Literal["structural_tag", "guided_json", "guided_field", "nothing"]


@dataclass(frozen=True, slots=True)
class HeldSchema:
    """One schema of the request: the arguments of a tool, or the answer.

    Attributes:
        name: the tool's, or the response format's.
        strict: as the request says it.
        report: its keywords.
        free_because: why the grammar leaves it open as a whole; None: the grammar holds it.
        checked: whether what the grammar does not hold is checked after generation.
    """

    name: str
    strict: bool | None = None
    report: SchemaReport = field(default_factory=SchemaReport)
    free_because: str | None = None
    checked: bool = True

    @classmethod
    def free(cls, tool: Tool, reason: str, detail: str) -> HeldSchema:
        """The arguments of `tool`, left open."""
        return cls(tool.name, tool.strict, free(tool.parameters, reason, detail), detail)

    @property
    def status(self) -> Status:
        """The weakest state of any of its keywords."""
        if self.free_because is None:
            return self.report.status
        return "checked_after" if self.checked else "dropped"

    def unchecked(self) -> HeldSchema:
        """The line where nothing is checked after generation."""
        return replace(self, report=self.report.unchecked(), checked=False)

    def to_json(self) -> dict[str, object]:
        """As `toolrail tag` prints it."""
        shown: dict[str, object] = {"strict": self.strict, **self.report.to_json()}
        shown["status"] = self.status
        if self.free_because is not None:
            shown["reason"] = self.free_because
        if not self.checked:
            shown["checked"] = False
        return shown


def without(report: SchemaReport, path: str, reason: str, detail: str) -> SchemaReport:
    """`report` where the grammar does not hold `path` and what is below it."""
    below = f"{path}/"
    lost = [known for known in report.enforced if known == path or known.startswith(below)]
    notes = [Note(known, "checked_after", reason, detail) for known in lost or [path]]
    return SchemaReport(
        tuple(known for known in report.enforced if known not in lost),
        (*report.notes, *(note for note in notes if note not in report.notes)),
    )


@dataclass(frozen=True, slots=True)
class Report:
    """What holds a request's output.

    Attributes:
        held_by: the kind of constraint.
        tools: the tools that may be called.
        answer: the schema of the answer, if one is held.
        reason: why nothing holds the output.
        notes: what the request asked for and does not get.
    """

    held_by: HeldBy
    tools: tuple[HeldSchema, ...] = ()
    answer: HeldSchema | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def schemas(self) -> tuple[HeldSchema, ...]:
        """All schemas of the request."""
        return self.tools if self.answer is None else (*self.tools, self.answer)

    def counts(self) -> Counter[Status]:
        """How many keywords of all schemas are in each state, for metrics and traces."""
        counted: Counter[Status] = Counter()
        for schema in self.schemas:
            counted.update(schema.report.counts())
        return counted

    def to_json(self) -> dict[str, object]:
        """As `toolrail tag` prints it."""
        shown: dict[str, object] = {"held_by": self.held_by}
        if self.reason is not None:
            shown["reason"] = self.reason
        shown["tools"] = {tool.name: tool.to_json() for tool in self.tools}
        if self.answer is not None:
            shown["response_format"] = self.answer.to_json()
        if self.notes:
            shown["notes"] = list(self.notes)
        return shown
