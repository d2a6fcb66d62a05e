from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Tests marked `anyio` run on the loop that the services run on."""
    return "asyncio", {"use_uvloop": True}
