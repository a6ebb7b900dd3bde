"""`ports.Notices`, and the entries that EventBridge takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.stub import Stubber

from spotrelay.plane.aws.clients import TELLING, Clients
from spotrelay.plane.aws.notices import MAX_ENTRIES, PUT_S, EventBridgeNotices
from spotrelay.plane.core.notices import Notice, NoticeKind
from spotrelay.plane.core.ports import Notices, Throttled, Unavailable
from spotrelay.plane.memory import MemoryNotices
from tests.contract.rows import NOW


def notices_of(count: int) -> list[Notice]:
    """As many as wanted."""
    return [
        Notice(NoticeKind.REPLICA_READY, "demo", str(id_), NOW, {"replica": id_})
        for id_ in range(1, count + 1)
    ]


@pytest.fixture
def events(clients: Clients) -> Iterator[Stubber]:
    """Answers for EventBridge's calls."""
    with Stubber(clients.events) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def request(notices: list[Notice]) -> dict[str, Any]:
    """What is sent for them: on the default bus, which is meant where none is named."""
    return {
        "Entries": [
            {
                "Source": "spotrelay",
                "DetailType": n.kind.value,
                "Time": n.at,
                "Detail": json.dumps(n.detail, separators=(",", ":")),
            }
            for n in notices
        ]
    }


@pytest.fixture(params=["memory", "aws"])
def port(request: pytest.FixtureRequest) -> Callable[[], Notices]:
    """Both kinds, the one of AWS on moto's EventBridge."""
    if request.param == "memory":
        return MemoryNotices
    clients = request.getfixturevalue("aws")
    return lambda: EventBridgeNotices(clients)


@pytest.mark.parametrize("count", [0, 1, 25])
def test_what_is_taken_is_not_refused(port: Callable[[], Notices], count: int) -> None:
    """Any number of them, also none."""
    assert port().publish(notices_of(count)) == {}


def test_ten_go_in_a_call(clients: Clients, events: Stubber) -> None:
    """EventBridge takes no more; each entry has source, kind, time and detail, and none names a bus."""
    notices = notices_of(MAX_ENTRIES + 1)
    for some in (notices[:MAX_ENTRIES], notices[MAX_ENTRIES:]):
        answer = {"FailedEntryCount": 0, "Entries": [{"EventId": "e"} for _ in some]}
        events.add_response("put_events", answer, request(some))
    assert EventBridgeNotices(clients).publish(notices) == {}


def test_an_entry_that_is_refused_is_named(clients: Clients, events: Stubber) -> None:
    """The answers come in the entries' order, and one may fail while the others are taken."""
    notices = notices_of(3)
    failure = {"ErrorCode": "ThrottlingException", "ErrorMessage": "Rate exceeded"}
    answer = {"FailedEntryCount": 1, "Entries": [{"EventId": "a"}, failure, {"EventId": "c"}]}
    events.add_response("put_events", answer, request(notices))
    assert EventBridgeNotices(clients).publish(notices) == {
        "demo/ReplicaReady/2": "ThrottlingException: Rate exceeded"
    }


def test_a_call_that_fails_is_in_our_words(clients: Clients, events: Stubber) -> None:
    """Then nobody knows what was taken."""
    events.add_client_error("put_events", "ThrottlingException", http_status_code=400)
    with pytest.raises(Throttled):
        EventBridgeNotices(clients).publish(notices_of(1))


def test_nothing_is_begun_that_would_not_end_in_time(clients: Clients, events: Stubber) -> None:
    """Not even the second of two calls: Lambda would end the tick in the middle of it."""
    times: dict[str, float] = vars(TELLING)
    assert times["connect_timeout"] + times["read_timeout"] < PUT_S
    with clients.in_use(PUT_S - 1), pytest.raises(Unavailable, match="not enough time"):
        EventBridgeNotices(clients).publish(notices_of(1))
