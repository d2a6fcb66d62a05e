"""Who of those that wait is next: weighted fair queueing between owners. Pure, no clock.

Start-time fair queueing (Goyal, Vin and Cheng, 1996). Each owner has a *tag*: the work that it was
given, divided by its weight. The owner with the smallest is next. One that comes after a while of
not waiting starts where the others are, so it is next at once, and has saved nothing up. Owners
that wait all the time get work in proportion to their weights: what two of them were given in any
stretch, each divided by its weight, differs by no more than their largest items.

What an item costs may be known only later: `charge` says so at any time, and takes back what was
charged too much. When there is nothing to do any more, all tags are to be forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Flow(Generic[K, V]):
    """One owner: what of it waits, first come first, and its tag."""

    __slots__ = ("items", "tag")

    def __init__(self, tag: float) -> None:
        self.items: OrderedDict[K, V] = OrderedDict()
        self.tag = tag


class FairQueue(Generic[K, V]):
    """Items by key, of owners. Everything is O(1) but `take`, which is O(owners), and `forget`.

    Attributes:
        period: counts the times that all was forgotten; charges of an older one mean nothing.
    """

    def __init__(self) -> None:
        self.period = 0
        self._flows: dict[str, _Flow[K, V]] = {}
        self._owners: dict[K, str] = {}
        self._tag = 0.0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._owners)

    def __contains__(self, key: K) -> bool:
        return key in self._owners

    def waiting(self, owner: str) -> int:
        """How many of `owner` wait."""
        flow = self._flows.get(owner)
        return 0 if flow is None else len(flow.items)

    def put(self, owner: str, key: K, item: V, *, first: bool = False) -> None:
        """`item` waits from now on, behind all others of `owner`, or before them."""
        flow = self._flow(owner)
        if not flow.items:
            flow.tag = max(flow.tag, self._tag)
        flow.items[key] = item
        if first:
            flow.items.move_to_end(key, last=False)
        self._owners[key] = owner

    def take(self) -> tuple[str, V]:
        """The next one and its owner. Raises IndexError where nobody waits."""
        waiting = ((flow.tag, owner) for owner, flow in self._flows.items() if flow.items)
        tag, owner = min(waiting, key=lambda one: one[0], default=(0.0, None))
        if owner is None:
            raise IndexError("nobody waits")
        self._tag = max(self._tag, tag)
        key, item = self._flows[owner].items.popitem(last=False)
        del self._owners[key]
        return owner, item

    def remove(self, key: K) -> V | None:
        """The item of that key, if it waits, which it does no more."""
        owner = self._owners.pop(key, None)
        return None if owner is None else self._flows[owner].items.pop(key)

    def charge(self, owner: str, work: float) -> None:
        """`owner` was given `work` (divided by its weight), here or elsewhere; or gave it back."""
        self._flow(owner).tag += work

    def forget(self) -> None:
        """Nobody waits, and nothing of what was taken is still at work: all start anew."""
        self._flows.clear()
        self._owners.clear()
        self._tag = 0.0
        self.period += 1

    def _flow(self, owner: str) -> _Flow[K, V]:
        flow = self._flows.get(owner)
        if flow is None:
            flow = self._flows[owner] = _Flow(self._tag)
        return flow
