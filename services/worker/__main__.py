"""`python -m services.worker`."""

from __future__ import annotations

from services.worker.main import main
from toolrail.service import run
from toolrail.settings import WorkerSettings

if __name__ == "__main__":
    run("worker", WorkerSettings, main)
