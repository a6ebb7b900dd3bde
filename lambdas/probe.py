"""Asks replicas whether they are ready, with the request that their service file gives.

Load balancers check with GET only, and a model server may answer that long before it can generate a token.
The function runs in the service's network, and can do nothing but reach its replicas.
"""

from __future__ import annotations

import http.client
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MAX_AT_ONCE = 32
"""Threads, which only wait; more replicas than this are rarely starting at once, and then take turns."""


def handler(event: dict[str, Any], context: object) -> dict[str, list[str]]:  # noqa: ARG001 - Lambda's signature
    """Of `urls` (instance → URL) those that answer a POST of `post_data` with 200 within `timeout_s`."""
    urls: dict[str, str] = event["urls"]
    body = json.dumps(event["post_data"]).encode()

    def answers(url: str) -> bool:
        return _answers(url, body, event["timeout_s"])

    with ThreadPoolExecutor(min(len(urls), MAX_AT_ONCE) or 1) as threads:
        return {
            "answering": [
                id_ for id_, ok in zip(urls, threads.map(answers, urls.values()), strict=True) if ok
            ]
        }


def _answers(url: str, body: bytes, timeout_s: float) -> bool:
    if not url.startswith("http://"):
        raise ValueError(f"a replica is probed over http, not at {url!r}")
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - see above
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:  # noqa: S310 - see above
            response.read()
            return bool(response.status == 200)
    except (OSError, http.client.HTTPException):
        return False  # not up, not ready, or too slow: which of them makes no difference
