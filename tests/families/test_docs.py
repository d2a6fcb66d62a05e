"""The example of `docs/adding-a-family.md` is the family that it says it is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import toolrail.syntax as parts
from tests.families import table
from toolrail.families import qwen3_coder
from toolrail.families.hermes import THINK
from toolrail.templated import templated

DOCUMENT = Path(__file__).parents[2] / "docs" / "adding-a-family.md"


def test_the_example_is_the_family() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    names = {**vars(parts), "Final": Final, "THINK": THINK, "templated": templated}
    exec(compile(example, str(DOCUMENT), "exec"), names)
    assert names["SYNTAX"] == qwen3_coder.SYNTAX
    written, real = names["FAMILY"], qwen3_coder.FAMILY
    functions = {"parser": real.parser, "tag": real.tag, "render": real.render}
    assert replace(written, **functions) == real


@pytest.mark.walk
def test_the_table_of_families_is_what_the_records_do() -> None:
    assert table.DOCUMENT.read_text("utf-8") == table.document(), (
        "run python -m tests.families.table and commit docs/families.md"
    )
