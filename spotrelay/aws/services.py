"""`ports.Services` on Parameter Store: one parameter per service, written by its stack."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from botocore.exceptions import ClientError

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import PARAMETER_NOT_FOUND, code_of, translated
from spotrelay.model import ServiceSpec, SpecError
from spotrelay.ports import Telemetry

KEPT_S = 60.0
"""A burst of signals doesn't read a document once for each; a tick reads it afresh anyway."""

PAGE = 10
"""Parameters per page: the most that Parameter Store gives."""


class ParameterServices:
    """See `ports.Services`."""

    def __init__(
        self,
        clients: Clients,
        path: str,
        telemetry: Telemetry,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients = clients
        self._path = path.rstrip("/")
        self._telemetry = telemetry
        self._monotonic_s = monotonic_s
        self._kept: dict[str, tuple[float, ServiceSpec]] = {}

    def names(self) -> Sequence[str]:
        """See `ports.Services.names`.

        The documents come along and are kept for `get`. A service whose document can't be read is deployed
        all the same: it is named, so that its tick fails where an alarm sees it, and the others' go on.
        """
        with translated():
            pages = self._clients.ssm.get_paginator("get_parameters_by_path").paginate(
                Path=self._path, PaginationConfig={"PageSize": PAGE}
            )
            found = {p["Name"].rsplit("/", 1)[-1]: p["Value"] for page in pages for p in page["Parameters"]}
        self._kept.clear()
        for service, text in found.items():
            try:
                self._keep(service, text)
            except SpecError as error:
                self._telemetry.record("unreadable_document", service=service, error=str(error))
        return sorted(found)

    def get(self, service: str, *, fresh: bool = False) -> ServiceSpec | None:
        """See `ports.Services.get`.

        Raises:
            SpecError: it can't be read. Not the same as None, which would end the service's replicas.
        """
        kept = self._kept.get(service)
        if kept and not fresh and self._monotonic_s() - kept[0] < KEPT_S:
            return kept[1]
        self._kept.pop(service, None)
        try:
            with translated():
                answer = self._clients.ssm.get_parameter(Name=f"{self._path}/{service}")
        except ClientError as error:
            if code_of(error) != PARAMETER_NOT_FOUND:
                raise
            return None
        return self._keep(service, answer["Parameter"]["Value"])

    def _keep(self, service: str, text: str) -> ServiceSpec:
        spec = ServiceSpec.from_json(text)
        if spec.service != service:
            raise SpecError(
                f"parameter {self._path}/{service} is about {spec.service!r}: deploy {service!r} again"
            )
        self._kept[service] = (self._monotonic_s(), spec)
        return spec
