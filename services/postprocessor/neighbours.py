"""What the other postprocessors have of the models' work.

Each says it a few times a second, while it has any: how many jobs it has out and how many wait,
and what it gave to owners that wait (Wang and Merchant, 2007: a queue that is spread over several
servers is fair as a whole if each charges an owner also for what the others gave it). Where nobody
is heard, each decides as if it were alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import anyio

from services.postprocessor.absences import Absences
from services.postprocessor.room import WaitingRoom
from toolrail.bus import subjects
from toolrail.bus.port import Bus
from toolrail.directory import Directory
from toolrail.messages import SCHEMA_VERSION, Cancel, Room, Rooms, encode

TELL_S: Final = 0.1
_FRESH_S: Final = 1.0


class Neighbours:
    """The last word of each."""

    def __init__(self, bus: Bus, directory: Directory, instance: str) -> None:
        self._bus = bus
        self._directory = directory
        self._instance = instance
        self._heard: dict[str, tuple[float, tuple[Room, ...]]] = {}
        self._gone = Absences()

    def look(self) -> None:
        """Who is there now. To be called regularly."""
        self._gone.update(self._present(), anyio.current_time())

    def let_go(self, request_id: str, term: int) -> None:
        """Tell all that this process owns a stream from now on, whoever may have it.

        Also those that were there: the registration of one that hangs lapses, and it goes on.
        """
        cancel = encode(Cancel(request_id=request_id, reason="taken over", term=term))
        for other in self._present() | self._gone.longer_than(0.0, anyio.current_time()):
            if other != self._instance:
                self._bus.publish_soon(subjects.control(other), cancel)

    def _present(self) -> set[str]:
        return {known.instance for known in self._directory.instances("postprocessor")}

    def out(self, model: str) -> int:
        """Jobs of a model that they have on the queue or with workers."""
        return sum(room.out for room in self._rooms() if room.model == model)

    def waiting(self) -> int:
        """Jobs that they hold back."""
        return sum(room.waiting for room in self._rooms())

    def ready(self) -> bool:
        """Whether another one would take a stream."""
        return any(
            known.ready and not known.draining and known.instance != self._instance
            for known in self._directory.instances("postprocessor")
        )

    def hear(self, rooms: Rooms, here: WaitingRoom) -> None:
        """What one of them says."""
        if rooms.postprocessor == self._instance:
            return
        if rooms.rooms:
            self._heard[rooms.postprocessor] = anyio.current_time(), rooms.rooms
        else:
            self._heard.pop(rooms.postprocessor, None)
        here.heard(rooms.rooms)

    async def tell(self, here: WaitingRoom) -> None:
        """Tell them of `here`, while there is anything to tell; until cancelled."""
        said = False
        while True:
            await anyio.sleep(TELL_S)
            rooms = tuple(here.report())
            if (rooms or said) and len(self._directory.instances("postprocessor")) > 1:
                said = bool(rooms)
                report = Rooms(SCHEMA_VERSION, self._instance, rooms)
                self._bus.publish_soon(subjects.ROOMS, encode(report))

    def _rooms(self) -> Iterator[Room]:
        """What holds now; who has not spoken for long has nothing, or is gone."""
        now = anyio.current_time()
        for name, (at_s, rooms) in list(self._heard.items()):
            if now - at_s > _FRESH_S:
                del self._heard[name]
            else:
                yield from rooms
