"""What each keyword asks of a value.

Drafts 4 to 2020-12 and OpenAPI's `nullable`, as the normaliser reads them; `format` is an
annotation.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from toolrail.schema.constants import key_of
from toolrail.schema.judging import Outcome, Place, Rules, Run, Schema
from toolrail.schema.kinds import OF_TYPE, kind_of
from toolrail.schema.locations import as_array, as_object
from toolrail.schema.numbers import number


def _reference(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    target = run.resolved(schema["$ref"], at, "$ref")
    if target is not None:
        run.join(outcome, run.apply(target, value, at))


def _type(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    declared = schema["type"]
    names = [declared] if isinstance(declared, str) else as_array(declared) or []
    known = [OF_TYPE[name] for name in names if isinstance(name, str) and name in OF_TYPE]
    if not known or len(known) < len(names) or (value is None and schema.get("nullable") is True):
        return
    admitted = kind_of(value) in frozenset[str]().union(*known)
    run.require(outcome, admitted, at, "type", f"is not of type {' or '.join(map(str, names))}")


def _enum(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    values = as_array(schema["enum"])
    if values is not None:
        run.step(len(values))
        key = key_of(value)
        held = any(key_of(member) == key for member in values)
        run.require(outcome, held, at, "enum", "is none of the listed values")


def _const(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    held = key_of(value) == key_of(schema["const"])
    run.require(outcome, held, at, "const", "is not the one value allowed")


def _bounds(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    exact = number(value)
    if exact is None:
        return
    for keyword, sign in (("minimum", 1), ("maximum", -1)):
        bound = number(schema.get(keyword))
        exclusive = schema.get("exclusive" + keyword.capitalize())
        if bound is not None:
            gap = (exact - bound) * sign
            held = gap > 0 if exclusive is True else gap >= 0
            run.require(outcome, held, at, keyword, f"is beyond the {keyword}")
        bound = number(exclusive)
        if bound is not None:
            held = (exact - bound) * sign > 0
            run.require(
                outcome,
                held,
                at,
                "exclusive" + keyword.capitalize(),
                f"is not within the {keyword}",
            )


def _multiple(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    exact, factor = _decimal(value), _decimal(schema["multipleOf"])
    if exact is not None and factor is not None and factor > 0:
        held = (exact / factor).denominator == 1
        run.require(outcome, held, at, "multipleOf", "is not a multiple")


def _decimal(value: object) -> Fraction | None:
    """A number as it was written, not as the nearest binary fraction."""
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(repr(value))
    return number(value)


def _length(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    if isinstance(value, str):
        run.join(outcome, _within(run, schema, len(value), at, "Length"))


def _within(run: Run, schema: Schema, count: int, at: Place, of: str) -> Outcome:
    """Holds a count to the `min` and the `max` of a noun, `Length` of a string for one."""
    outcome = Outcome()
    least, most = number(schema.get(f"min{of}")), number(schema.get(f"max{of}"))
    run.require(outcome, least is None or count >= least, at, f"min{of}", "is too short")
    run.require(outcome, most is None or count <= most, at, f"max{of}", "is too long")
    return outcome


def _pattern(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    if isinstance(value, str):
        found = run.found(schema["pattern"], value, at, "pattern")
        run.require(outcome, found is not False, at, "pattern", "does not match the expression")


def _all_of(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    for member in as_array(schema["allOf"]) or ():
        run.join(outcome, run.apply(member, value, at))


def _any_of(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    members = as_array(schema["anyOf"])
    if not members:
        return
    found = [run.quietly(member, value, at) for member in members]
    for other in found:
        outcome.take(other)
    held = any(other.valid for other in found)
    run.require(outcome, held, at, "anyOf", "satisfies none of the alternatives")


def _one_of(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    members = as_array(schema["oneOf"])
    if not members:
        return
    found = [run.quietly(member, value, at) for member in members]
    satisfied = sum(other.valid for other in found)
    for other in found:
        outcome.take(other)
    message = (
        "satisfies several alternatives" if satisfied else "satisfies none of the alternatives"
    )
    held = satisfied == 1 or not all(other.sure for other in found)
    run.require(outcome, held, at, "oneOf", message)


def _not(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    inner = run.quietly(schema["not"], value, at)
    run.require(outcome, not inner.valid or not inner.sure, at, "not", "satisfies what it must not")


def _if(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    condition = run.quietly(schema["if"], value, at)
    outcome.take(condition)
    branch = "then" if condition.valid else "else"
    if branch in schema and condition.sure:
        run.join(outcome, run.apply(schema[branch], value, at))


def _required(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    members = as_object(value)
    for name in as_array(schema["required"]) or ():
        held = members is None or name in members
        run.require(outcome, held, at, "required", f"lacks {str(name)[:40]!r}")


def _properties(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    """`properties`, `patternProperties` and `additionalProperties`, which look at each other."""
    members = as_object(value)
    if members is None:
        return
    declared = as_object(schema.get("properties")) or {}
    patterns = as_object(schema.get("patternProperties")) or {}
    for name, member in members.items():
        schemas = [declared[name]] if name in declared else []
        found = [run.found(pattern, name, at, "patternProperties") for pattern in patterns]
        schemas += [s for s, is_found in zip(patterns.values(), found, strict=True) if is_found]
        if not schemas and None not in found and "additionalProperties" in schema:
            schemas = [schema["additionalProperties"]]
        for inner in schemas:
            outcome.names.add(name)
            other = run.apply(inner, member, (*at, name))
            outcome.valid = outcome.valid and other.valid


def _property_names(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    for name in as_object(value) or {}:
        held = run.quietly(schema["propertyNames"], name, at).valid
        run.require(outcome, held, at, "propertyNames", f"may not have the name {name[:40]!r}")


def _property_count(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    members = as_object(value)
    if members is not None:
        run.join(outcome, _within(run, schema, len(members), at, "Properties"))


def _dependent(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    members = as_object(value)
    if members is None:
        return
    for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
        for name, needed in (as_object(schema.get(keyword)) or {}).items():
            names = as_array(needed)
            if name not in members:
                continue
            if names is None:
                run.join(outcome, run.apply(needed, value, at))
                continue
            held = all(other in members for other in names)
            run.require(outcome, held, at, keyword, f"lacks what {name[:40]!r} asks for")


def _items(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    """`prefixItems` and `items`, or `items` as an array and `additionalItems`."""
    values = as_array(value)
    if values is None:
        return
    prefix, rest = as_array(schema.get("prefixItems")), "items"
    if as_array(schema.get("items")) is not None:
        prefix, rest = as_array(schema.get("items")), "additionalItems"
    schemas = list(prefix or ())
    if rest in schema and as_array(schema[rest]) is None:
        schemas += [schema[rest]] * (len(values) - len(schemas))
        outcome.items = math.inf
    outcome.items = max(outcome.items, min(len(schemas), len(values)))
    for index, (inner, member) in enumerate(zip(schemas, values, strict=False)):
        other = run.apply(inner, member, (*at, str(index)))
        outcome.valid = outcome.valid and other.valid


def _item_count(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    values = as_array(value)
    if values is not None:
        run.join(outcome, _within(run, schema, len(values), at, "Items"))


def _unique(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    values = as_array(value)
    if values is not None and schema["uniqueItems"] is True:
        run.step(len(values))
        held = len(set(map(key_of, values))) == len(values)
        run.require(outcome, held, at, "uniqueItems", "holds an item twice")


def _contains(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    values = as_array(value)
    if values is None:
        return
    looked = [run.quietly(schema["contains"], member, at) for member in values]
    found = {index for index, other in enumerate(looked) if other.valid}
    outcome.contained |= found
    least, most = number(schema.get("minContains", 1)), number(schema.get("maxContains"))
    held = least is None or len(found) >= least
    run.require(outcome, held, at, "contains", "holds too few of the items asked for")
    held = most is None or sum(other.valid and other.sure for other in looked) <= most
    run.require(outcome, held, at, "maxContains", "holds too many of the items named")


def _unevaluated_items(
    run: Run, schema: Schema, value: object, at: Place, outcome: Outcome
) -> None:
    for index, member in enumerate(as_array(value) or ()):
        if index >= outcome.items and index not in outcome.contained:
            other = run.apply(schema["unevaluatedItems"], member, (*at, str(index)))
            outcome.valid = outcome.valid and other.valid
    if as_array(value) is not None:
        outcome.items = math.inf


def _unevaluated_properties(
    run: Run, schema: Schema, value: object, at: Place, outcome: Outcome
) -> None:
    for name, member in (as_object(value) or {}).items():
        if name not in outcome.names:
            other = run.apply(schema["unevaluatedProperties"], member, (*at, name))
            outcome.valid = outcome.valid and other.valid
            outcome.names.add(name)


def _dynamic(run: Run, schema: Schema, value: object, at: Place, outcome: Outcome) -> None:
    keyword = "$dynamicRef" if "$dynamicRef" in schema else "$recursiveRef"
    run.resolved(None, at, keyword)


RULES: Final[Rules] = (
    (frozenset({"$ref"}), _reference),
    (frozenset({"$dynamicRef", "$recursiveRef"}), _dynamic),
    (frozenset({"type"}), _type),
    (frozenset({"enum"}), _enum),
    (frozenset({"const"}), _const),
    (frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}), _bounds),
    (frozenset({"multipleOf"}), _multiple),
    (frozenset({"minLength", "maxLength"}), _length),
    (frozenset({"pattern"}), _pattern),
    (frozenset({"allOf"}), _all_of),
    (frozenset({"anyOf"}), _any_of),
    (frozenset({"oneOf"}), _one_of),
    (frozenset({"not"}), _not),
    (frozenset({"if"}), _if),
    (frozenset({"required"}), _required),
    (frozenset({"properties", "patternProperties", "additionalProperties"}), _properties),
    (frozenset({"propertyNames"}), _property_names),
    (frozenset({"minProperties", "maxProperties"}), _property_count),
    (frozenset({"dependentRequired", "dependentSchemas", "dependencies"}), _dependent),
    (frozenset({"prefixItems", "items", "additionalItems"}), _items),
    (frozenset({"minItems", "maxItems"}), _item_count),
    (frozenset({"uniqueItems"}), _unique),
    (frozenset({"contains"}), _contains),
    (frozenset({"unevaluatedItems"}), _unevaluated_items),
    (frozenset({"unevaluatedProperties"}), _unevaluated_properties),
)
"""What to do for which keywords, those last that ask what others have looked at."""
