"""`ports.Services` on Parameter Store: one parameter per service, written by its stack."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER
from spotrelay.plane.core.ports import OtherControlPlane, UnreadableDocument
from spotrelay.plane.core.spec import ServiceSpec, SpecError

KEPT_S = 60.0
"""A burst of signals doesn't read a document once for each; a tick reads it afresh anyway."""

PAGE = 10
"""Parameters per page: the most that Parameter Store gives."""


class ParameterServices:
    """`ports.Services`, in Parameter Store."""

    def __init__(
        self,
        clients: Clients,
        path: str,
        table: str,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients = clients
        self._path = path.rstrip("/")
        self._table = table
        self._monotonic_s = monotonic_s
        self._kept: dict[str, tuple[float, ServiceSpec]] = {}

    def names(self) -> Sequence[str]:
        """By one listing of the services' path.

        The documents come along, and are not kept: nothing came along that says whose services these are.
        """
        with translated():
            pages = self._clients.ssm.get_paginator("get_parameters_by_path").paginate(
                Path=self._path, PaginationConfig={"PageSize": PAGE}
            )
            return sorted(p["Name"].rsplit("/", 1)[-1] for page in pages for p in page["Parameters"])

    def get(self, service: str, *, fresh: bool = False) -> ServiceSpec | None:
        kept = self._kept.get(service)
        if kept and not fresh and self._monotonic_s() - kept[0] < KEPT_S:
            return kept[1]
        self._kept.pop(service, None)
        name = f"{self._path}/{service}"
        with translated():
            # One call for both: the claim is as fresh as the document.
            answer = self._clients.ssm.get_parameters(Names=[name, CONTROL_PLANE_PARAMETER])
        found = {parameter["Name"]: parameter["Value"] for parameter in answer["Parameters"]}
        self._check_claim(found.get(CONTROL_PLANE_PARAMETER))
        return self._keep(service, found[name]) if name in found else None

    def _check_claim(self, claim: str | None) -> None:
        """Raise if another control plane has these services. Unclaimed ones belong to whichever asks."""
        if claim is None:
            return
        try:
            table = json.loads(claim)["table"]
        # RecursionError: JSON as deep as Python's stack.
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise OtherControlPlane(
                f"parameter {CONTROL_PLANE_PARAMETER} can't be read: deploy the control plane again"
            ) from error
        if table != self._table:
            raise OtherControlPlane(
                f"parameter {CONTROL_PLANE_PARAMETER} says that the control plane with table {table}"
                f" looks after the services of this region; this one has table {self._table}"
            )

    def _keep(self, service: str, text: str) -> ServiceSpec:
        name = f"{self._path}/{service}"
        try:
            spec = ServiceSpec.from_json(text)
        except SpecError as error:
            raise UnreadableDocument(f"parameter {name}: {error}") from error
        if spec.service != service:
            raise UnreadableDocument(f"parameter {name} is about {spec.service!r}: deploy {service!r} again")
        self._kept[service] = (self._monotonic_s(), spec)
        return spec
