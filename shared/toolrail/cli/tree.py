"""Parts of the services that a command runs in its own process, by name.

The library imports no service; a command may run a service's code as it may start its process.
Where there is no tree (the wheel alone is installed), there is nothing to run.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

TREE: Final = Path(__file__).resolve().parents[3]
"""The checkout: `services/` lies beside `shared/`."""


def service_module(name: str) -> ModuleType | None:
    """The module `services.<name>`, or None without a tree."""
    if not (TREE / "services").is_dir():
        return None
    if str(TREE) not in sys.path:
        sys.path.append(str(TREE))
    return importlib.import_module(f"services.{name}")
