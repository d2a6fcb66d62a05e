"""The arithmetic of a standing pull: what may come, what was asked for, what to ask for now.

Sans I/O. A worker grants credit slot by slot, but a pull request for each slot would leave as many
requests waiting at the server as there are idle slots (it bounds them for all workers together). So
more is asked for only when what was asked is down to half of what is granted: something is always
on its way when it may be, and at most about log2(slots) requests wait.
"""

from __future__ import annotations


class Credit:
    """Counts of one pull. All operations O(1).

    Attributes:
        granted: items the worker still takes.
        asked: items the server may still send for the requests that are open.
    """

    def __init__(self) -> None:
        self.granted = 0
        self.asked = 0

    def missing(self) -> int:
        """How many items to ask for now; 0: enough is asked for."""
        return self.granted - self.asked if 2 * self.asked <= self.granted else 0

    def request(self, items: int) -> None:
        """A request for `items` was sent."""
        self.asked += items

    def deliver(self) -> bool:
        """An item came. False: it is beyond the credit and must go back."""
        self.asked = max(0, self.asked - 1)
        if self.granted <= 0:
            return False
        self.granted -= 1
        return True

    def expire(self, unserved: int) -> None:
        """A request ended with `unserved` items not sent."""
        self.asked = max(0, self.asked - unserved)

    def lose(self) -> None:
        """All open requests are void."""
        self.asked = 0
