"""The strict preflight of a request: every schema that says `strict: true`, wherever it stands."""

from __future__ import annotations

from toolrail.openai.functions import invalid_schema
from toolrail.schema import preflight


def check_strict(schema: object, *, strict: bool | None, owner: str, param: str) -> None:
    """Returns unless the schema is strict and breaks a rule; None stands for no schema.

    Raises:
        CallerError: names the owner, the place (JSON Pointer) and the rule.
    """
    if strict is True and (fault := preflight.check(schema)):
        raise invalid_schema(owner, param, fault.path, fault.rule, fault.message)
