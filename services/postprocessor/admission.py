"""Whether there is room for one stream more, and whether its jobs must wait for their turn."""

from __future__ import annotations

from services.postprocessor.jobs import Jobs
from services.postprocessor.neighbours import Neighbours
from services.postprocessor.room import WaitingRoom
from services.postprocessor.stream import RequestStream
from services.postprocessor.streams import Streams
from toolrail.messages import Job, Stream
from toolrail.service import Runtime
from toolrail.settings import PostprocessorSettings


class Admission:
    """The bounds on what waits here, and the way into the waiting room.

    Attributes:
        jobs: the way from there to the work queue.
        neighbours: the other postprocessors.
    """

    def __init__(
        self,
        runtime: Runtime[PostprocessorSettings],
        streams: Streams,
        room: WaitingRoom,
        neighbours: Neighbours,
        jobs: Jobs,
    ) -> None:
        self.jobs = jobs
        self._directory = runtime.directory
        self._settings = runtime.settings
        self._streams = streams
        self._room = room
        self.neighbours = neighbours

    def full(self, stream: Stream) -> str | None:
        """Why there is no room for `stream`, if there is none.

        What others own has been accepted long ago: a take-over meets the bound on streams alone.
        """
        if len(self._streams) >= self._settings.max_streams:
            return "too many streams; try again"
        if stream.started is not None:
            return None
        if stream.owner and self._streams.in_line(stream.owner) >= self._share(stream.model):
            return "too many of your requests wait already; try again when some have been answered"
        unbegun = self._room.unbegun + self.neighbours.waiting()
        if unbegun + stream.num_choices > self._settings.max_queue_jobs:
            return "the queue of requests is full; try again"
        return None

    def enter(self, request: RequestStream, now_s: float) -> list[Job]:
        """The jobs of `request` that need not wait: the caller queues them."""
        self._room.enter(request, [run.job for run in request.runs])
        at_once: list[Job] = []
        for ticket in self._room.ready(now_s):
            if ticket.stream is request:
                at_once.append(ticket.job)
            else:
                self.jobs.move(ticket.job)
        return at_once

    def adopt(self, request: RequestStream) -> None:
        """`request` is taken over: its jobs are on the queue or with workers."""
        self._room.adopt(request)

    def leave(self, request: RequestStream) -> None:
        """`request` is over, or belongs to another."""
        self._room.settle(request)

    def _share(self, model: str) -> float:
        """How many streams of one owner may wait here."""
        slots = sum(card.slots for card in self._directory.workers(model))
        parts = len(self._directory.instances("postprocessor")) or 1
        return max(1.0, self._settings.max_waiting_per_slot * slots / parts)
