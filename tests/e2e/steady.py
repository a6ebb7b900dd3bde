"""Requests at a steady rate, each by itself."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.e2e.stand import WITHIN_S, Stand


class Requests:
    """So many requests a second, each by itself, until the end of the `with` block."""

    def __init__(self, stand: Stand, rate: float) -> None:
        elb = stand.operator.session.client("elbv2")
        (group,) = elb.describe_target_groups(TargetGroupArns=[stand.spec.target_group_arn])["TargetGroups"]
        (front,) = elb.describe_load_balancers(LoadBalancerArns=group["LoadBalancerArns"])["LoadBalancers"]
        self._host = str(front["DNSName"])
        self._address = urlsplit(stand.cloud.endpoint).netloc
        self._every_s = 1 / rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.statuses: Counter[int] = Counter()

    def send(self) -> int:
        """Send one now; the status of its answer."""
        connection = http.client.HTTPConnection(self._address, timeout=WITHIN_S)
        try:
            connection.request("GET", "/health", headers={"Host": self._host})
            return connection.getresponse().status
        finally:
            connection.close()

    def chat(self) -> int:
        """Send one that takes seconds to answer, and wait for its end; the status."""
        connection = http.client.HTTPConnection(self._address, timeout=WITHIN_S)
        question = {"model": "spotrelay-demo", "messages": [{"role": "user", "content": "Hello"}]}
        try:
            connection.request(
                "POST",
                "/v1/chat/completions",
                body=json.dumps(question),
                headers={"Host": self._host, "Content-Type": "application/json"},
            )
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def _send(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self.statuses[self.send()] += 1
            due += self._every_s
            self._stop.wait(due - time.monotonic())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
