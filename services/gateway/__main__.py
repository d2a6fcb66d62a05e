"""`python -m services.gateway`."""

from __future__ import annotations

from services.gateway.main import main
from toolrail.service.process import run
from toolrail.settings import GatewaySettings

if __name__ == "__main__":
    run("gateway", GatewaySettings, main)
