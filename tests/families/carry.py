"""Carries published rows over into a case file: `python -m tests.families.carry ROWS > CASES`.

Adds the kinds that a row's name stands for; everything else stays as published.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.families.kinds import kinds_of

if __name__ == "__main__":
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        order = ("family", "case", "name")
        head = {key: row[key] for key in order} | {"kinds": kinds_of(row["name"])}
        kept = {key: value for key, value in row.items() if key not in head}
        sys.stdout.write(json.dumps(head | kept, ensure_ascii=False) + "\n")
