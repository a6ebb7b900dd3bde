"""`ports.Notices` on EventBridge's default bus."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.names import EVENT_SOURCE
from spotrelay.plane.core.ports import Unavailable

if TYPE_CHECKING:  # of ticks alone: a warning waits for every import of a cold start
    from spotrelay.plane.core.notices import Notice

MAX_ENTRIES = 10
"""EventBridge's limit for one PutEvents. All entries together may have 256 KiB: ten of ours have some 10."""

PUT_S = 8.0
"""The longest that one PutEvents takes: its time-outs, see `clients.TELLING`."""


class EventBridgeNotices:
    """`ports.Notices`, as events on EventBridge's default bus."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def publish(self, notices: Sequence[Notice]) -> Mapping[str, str]:
        """PutEvents, as many entries at a time as it takes.

        Raises:
            Unavailable: also if the invocation may end before EventBridge has answered.
        """
        refused: dict[str, str] = {}
        for start in range(0, len(notices), MAX_ENTRIES):
            some = notices[start : start + MAX_ENTRIES]
            if not self._clients.has_time(PUT_S):
                raise Unavailable("not enough time is left in this invocation: the next tick tells")
            with translated():
                answer = self._clients.events.put_events(
                    Entries=[
                        {
                            "Source": EVENT_SOURCE,
                            "DetailType": notice.kind.value,
                            "Time": notice.at,
                            "Detail": json.dumps(notice.detail, separators=(",", ":")),
                        }
                        for notice in some
                    ]
                )
            # Entries are answered in order, and each by itself: one may be throttled while others are taken.
            for notice, entry in zip(some, answer["Entries"], strict=True):
                if "ErrorCode" in entry:
                    refused[notice.id] = f"{entry['ErrorCode']}: {entry.get('ErrorMessage', '')}"
        return refused
