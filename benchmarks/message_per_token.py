"""The worker with a bus message for each token, to measure what frames save."""

from __future__ import annotations

from services.worker import runner
from services.worker.main import main
from services.worker.outbox import Outbox
from toolrail.messages import TokenDelta
from toolrail.service import run
from toolrail.settings import WorkerSettings


class Unjoined(Outbox):
    """Sends every delta by itself."""

    def add(self, subject: str, delta: TokenDelta) -> None:
        """Send `delta` at once."""
        super().add(subject, delta)
        self.flush()


if __name__ == "__main__":
    runner.Outbox = Unjoined  # type: ignore[misc]
    run("worker", WorkerSettings, main)
