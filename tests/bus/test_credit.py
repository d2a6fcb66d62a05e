from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolrail.bus.credit import Credit


class Server:
    """What a NATS server does with the requests of one pull."""

    def __init__(self, queued: int) -> None:
        self.queued = queued
        self.requests: list[int] = []
        self.most_requests = 0

    def take(self, items: int) -> None:
        self.requests.append(items)
        self.most_requests = max(self.most_requests, len(self.requests))

    def send_one(self) -> bool:
        if not self.queued or not self.requests:
            return False
        self.queued -= 1
        self.requests[0] -= 1
        if not self.requests[0]:
            self.requests.pop(0)
        return True


def ask(credit: Credit, server: Server) -> None:
    if missing := credit.missing():
        credit.request(missing)
        server.take(missing)


@given(
    st.lists(
        st.sampled_from(["grant 1", "grant 7", "send", "job", "expire", "reconnect"]), max_size=200
    )
)
def test_whatever_happens_the_server_never_owes_more_than_was_granted(steps: list[str]) -> None:
    credit, server = Credit(), Server(0)
    granted = taken = 0
    for step in steps:
        match step:
            case "grant 1" | "grant 7":
                amount = int(step[-1])
                credit.granted += amount
                granted += amount
            case "job":
                server.queued += 1
            case "send" if server.send_one():
                assert credit.deliver()
                taken += 1
            case "expire" if server.requests:
                credit.expire(server.requests.pop(0))
            case "reconnect":
                server.requests.clear()
                credit.lose()
            case _:
                pass
        ask(credit, server)
        assert sum(server.requests) == credit.asked <= credit.granted == granted - taken
        assert credit.granted == 0 or credit.asked > 0, "credit that nobody was told of"


def test_an_item_beyond_the_credit_is_refused() -> None:
    credit = Credit()
    credit.granted = 1
    credit.request(2)
    assert credit.deliver()
    assert not credit.deliver()
    assert credit.granted == 0


def test_slots_that_become_free_one_by_one_leave_few_requests_waiting() -> None:
    credit, server = Credit(), Server(0)
    for _ in range(256):
        credit.granted += 1
        ask(credit, server)
    assert server.most_requests <= 9
    assert sum(server.requests) > 128


def test_a_long_queue_is_worked_off_with_less_than_a_request_an_item() -> None:
    credit, server = Credit(), Server(10_000)
    requests = items = 0
    credit.granted = 64
    while server.queued or server.requests:
        if missing := credit.missing():
            credit.request(missing)
            server.take(missing)
            requests += 1
        if not server.send_one():
            break
        assert credit.deliver()
        items += 1
        credit.granted += 1
    assert items == 10_000
    assert requests <= 10_000 // 32 + 10
