"""Drives a local cloud from a script: take capacity away, warn an instance, lose an event, read the calls.

cloud = LocalCloud("http://127.0.0.1:4566")
cloud.warn(cloud.instances()[0]["instance_id"])
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Literal, cast

TIMEOUT_S = 30.0
"""No operation takes more than milliseconds; this is for a machine that is busy with something else."""

Rows = list[dict[str, Any]]


class LocalCloudError(RuntimeError):
    """The local cloud refused an operation, or isn't there; the text says which and why."""


class LocalCloud:
    """A local cloud at `endpoint`. Times in its answers are epoch seconds.

    Every method raises LocalCloudError if the local cloud refuses, or isn't there.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint.rstrip("/")
        # Loopback is never reached through a proxy, whatever the environment says.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def instances(self) -> Rows:
        """All instances, the terminated ones of the last hour, too.

        Each has instance_id, state, instance_type, zone, lifecycle ("spot" or "on-demand"),
        capacity_reservation (the ID of that which it uses, or None), service, launch, address, launched_at,
        warned_at.
        """
        return cast("Rows", self._call("instances"))

    def pools(self, zone: str | None = None, instance_type: str | None = None) -> Rows:
        """zone, instance_type, spot_ and on_demand_ capacity, in_use and price (USD per hour)."""
        return cast("Rows", self._call("pools", zone=zone, instance_type=instance_type))

    def dry_up(
        self, zone: str | None = None, instance_type: str | None = None, *, warn: bool = True
    ) -> list[str]:
        """Take all Spot capacity from the matching pools, None matching all; the IDs that were warned."""
        return cast("list[str]", self._call("dry_up", zone=zone, instance_type=instance_type, warn=warn))

    def bring_back(self, zone: str | None = None, instance_type: str | None = None) -> None:
        """Give dried-up pools their Spot capacity back."""
        self._call("bring_back", zone=zone, instance_type=instance_type)

    def set_capacity(
        self,
        zone: str | None = None,
        instance_type: str | None = None,
        *,
        spot: int | None = None,
        on_demand: int | None = None,
    ) -> None:
        """Change how many instances the matching pools can hold. Nothing is interrupted by it."""
        self._call("set_capacity", zone=zone, instance_type=instance_type, spot=spot, on_demand=on_demand)

    def set_quota(self, code: str, value: float | None) -> None:
        """Give the account another quota, of vCPUs mostly, by its code in Service Quotas, as in "L-3819A6DF".

        None: it is as if nobody had ever changed it.
        """
        self._call("set_quota", code=code, value=value)

    def reserve(self, group: str, zone: str, instance_type: str, count: int) -> str:
        """Reserve capacity of a pool, beside what it has, for who targets the resource group; its ID."""
        reserved = {"group": group, "zone": zone, "instance_type": instance_type, "count": count}
        return cast("str", self._call("reserve", **reserved))

    def warn(self, instance_id: str, *, deliver: Literal["once", "lost"] | int = "once") -> None:
        """Warn a Spot instance now; EC2 takes it when the warning is over.

        "lost": it takes it just the same, but the event never arrives. A number: it arrives so many times.
        """
        self._call("warn", instance_id=instance_id, deliver=deliver)

    def warn_all(self, instance_ids: Sequence[str]) -> None:
        """Warn Spot instances in one moment; of those behind one that can't be warned, none is."""
        self._call("warn_all", instance_ids=list(instance_ids))

    def retract(self, instance_id: str) -> None:
        """Have EC2 not take a warned instance: it runs on, its request is fulfilled, and no event says so."""
        self._call("retract", instance_id=instance_id)

    def rebalance(self, instance_id: str) -> None:
        """Recommend to move away from a Spot instance."""
        self._call("rebalance", instance_id=instance_id)

    def hang(self, instance_id: str) -> None:
        """Have what runs on an instance answer nothing any more, though it accepts connections (SIGSTOP)."""
        self._call("hang", instance_id=instance_id)

    def resume(self, instance_id: str) -> None:
        """Have a hung instance go on where it was."""
        self._call("resume", instance_id=instance_id)

    def shape(self, instance_id: str, *, rate_mbit: float | None = None, latency_s: float = 0.0) -> None:
        """Give a running instance so slow a network, until it is given another; without arguments a fast one.

        `rate_mbit`: megabits per second, each way. `latency_s`: how much later what it sends arrives.
        """
        self._call("shape", instance_id=instance_id, rate_mbit=rate_mbit, latency_s=latency_s)

    def network(self) -> str:
        """Whether instances have networks of their own; if not, why, and what can't be told apart."""
        return cast("str", self._call("network"))

    def let_die(self, code: str, count: int = 1) -> None:
        """Have the next instances end before they run, for EC2's reason `code`."""
        self._call("let_die", code=code, count=count)

    def announce(self, instance_id: str, code: str = "instance-retirement", *, in_s: float = 86_400) -> None:
        """Have EC2 announce an event for an instance, such as a retirement tomorrow; nothing comes of it."""
        self._call("announce", instance_id=instance_id, code=code, in_s=in_s)

    def call_off(self, instance_id: str) -> None:
        """Have EC2 call off what it announced for an instance. It is shown as before, as what is over."""
        self._call("call_off", instance_id=instance_id)

    def disrupt(self, zone: str) -> None:
        """Have a zone's service disrupted: what runs there hangs, nothing more starts, EC2 tells less."""
        self._call("disrupt", zone=zone)

    def mend(self, zone: str) -> None:
        """Have the zone work again, as after `disrupt`."""
        self._call("mend", zone=zone)

    def lose_image(self, image_id: str) -> None:
        """Have an image be gone, as when its owner deregisters it: what runs runs on, no launch finds it."""
        self._call("lose_image", image_id=image_id)

    def fail_image(self, image_id: str, why: str) -> None:
        """Have an image fail that is being made, with what EC2 says of it."""
        self._call("fail_image", image_id=image_id, why=why)

    def find_image(self, image_id: str) -> None:
        """Have a lost image be there again."""
        self._call("find_image", image_id=image_id)

    def publish_image(self, parameter: str, image_id: str) -> None:
        """Have a public parameter say another image, as AWS's own do every few nights."""
        self._call("publish_image", parameter=parameter, image_id=image_id)

    def calls(self, since: int = 0) -> Rows:
        """AWS calls after call number `since`.

        Each has n, t, service, action, role ("" for the operator), status, error_code.
        """
        return cast("Rows", self._call("calls", since=since))

    def decisions(self) -> Rows:
        """What roles asked IAM for since the start.

        Each has role, action (as in "ec2:RunInstances"), allowed and refused: how often. A call may ask for
        several actions: CreateFleet for that of each launch, a transaction for those of its writes.
        """
        return cast("Rows", self._call("decisions"))

    def requests(self, load_balancer_name: str) -> Rows:
        """The load balancer's requests, oldest first.

        Each has target, started, answered, ended, status, cut, draining_since, error.
        """
        return cast("Rows", self._call("requests", load_balancer=load_balancer_name))

    def counters(self, load_balancer_name: str) -> dict[str, int]:
        """The load balancer's totals, named like CloudWatch's metrics, and Cut and ClientClosed."""
        return cast("dict[str, int]", self._call("counters", load_balancer=load_balancer_name))

    def https_port(self, load_balancer_name: str) -> int | None:
        """The port of 127.0.0.1 at which the load balancer serves HTTPS; None before it has a certificate.

        On AWS it is port 443 of the addresses that the load balancer's name leads to. Here no name leads
        anywhere: connect to this port, and say in the handshake whom you mean to reach.
        """
        return cast("int | None", self._call("https_port", load_balancer=load_balancer_name))

    def certificate_expires(self, arn: str, common_name: str, days: int) -> None:
        """Have ACM say of a certificate that it expires in so many days, as it does daily."""
        self._call("certificate_expires", arn=arn, common_name=common_name, days=days)

    def age_metrics(self, by_s: float) -> None:
        """Have every datum that CloudWatch has, the load balancers' latest included, be so much older.

        A load balancer's minute counts once it has been over for a minute: nobody need wait for that here.
        """
        self._call("age_metrics", by_s=by_s)

    def look_back(self, periods: int) -> None:
        """Let so many periods before those that an alarm evaluates stand in for periods without data."""
        self._call("look_back", periods=periods)

    def bill(self) -> dict[str, Any]:
        """What CloudWatch would charge for metrics so far: by metric, how many hours, and together USD."""
        return cast("dict[str, Any]", self._call("bill"))

    def longest_chains(self) -> dict[str, int]:
        """By function: how often it was invoked in the longest chain of requests, dropped ones included."""
        return cast("dict[str, int]", self._call("longest_chains"))

    def interruptions(self) -> Rows:
        """instance_id, warned_at, deregistered_at, reclaimed_at, event ("once", "lost" or a number).

        And terminated_at: when somebody terminated the warned instance before EC2 could take it, or None; and
        retracted_at: when the warning was retracted, or None.
        """
        return cast("Rows", self._call("interruptions"))

    def inject_fault(
        self,
        action: str,
        error_code: str = "",
        *,
        count: int = 1,
        status: int = 400,
        delay_s: float = 0.0,
        role: str | None = None,
        after: bool = False,
        kill: bool = False,
        for_s: float | None = None,
        answer: Literal["", "empty", "partial"] = "",
        about: str = "",
    ) -> None:
        """Let the next `count` calls of an AWS action, or all for `for_s`, go wrong.

        A call waits `delay_s` and then, given a code, fails with it; with `kill`, its function's process is
        killed instead. With `after`, it has taken effect by then. `action` may be "dynamodb:*", too. `role`:
        only calls of the role with this name, which `kill` needs. `about`: only calls whose parameters have
        this text, for actions of EC2 and load balancing: a service's name, or a target group's ARN.

        `answer` lets a call succeed and lie: "empty" leaves nothing of the instances, Spot requests, targets
        or parameters that there are, "partial" every second one. A parameter that GetParameter doesn't find
        is an error_code, ParameterNotFound.
        """
        self._call(
            "inject_fault",
            action=action,
            error_code=error_code,
            count=count,
            status=status,
            delay_s=delay_s,
            role=role,
            after=after,
            kill=kill,
            for_s=for_s,
            answer=answer,
            about=about,
        )

    def show_late(self, unseen_s: float, without_address_s: float) -> None:
        """Have EC2 not show new instances for so long, and then not their addresses for so long."""
        self._call("show_late", unseen_s=unseen_s, without_address_s=without_address_s)

    def deny(self, action: str, resource: str) -> None:
        """Have a service control policy deny an action on one resource, until `clear_faults`.

        For the actions on instances and targets: `deny("ec2:TerminateInstances", "i-…")`, or an ARN.
        """
        self._call("deny", action=action, resource=resource)

    def faults(self) -> Rows:
        """The faults that haven't happened as often, or for as long, as was asked; see `inject_fault`."""
        return cast("Rows", self._call("faults"))

    def clear_faults(self, *, about: str | None = None) -> None:
        """Forget the faults that haven't happened yet, and what is denied; or only those `about` this."""
        self._call("clear_faults", about=about)

    def settings(self) -> dict[str, float]:
        """warning_s, schedule_s, boot_s."""
        return cast("dict[str, float]", self._call("settings"))

    def _call(self, operation: str, **arguments: Any) -> Any:
        request = urllib.request.Request(  # noqa: S310 - the endpoint is the caller's own
            f"{self.endpoint}/_spotrelay/{operation}",
            data=json.dumps(arguments).encode(),
            headers={"content-type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                return json.load(response)["result"]
        except urllib.error.HTTPError as error:
            raise LocalCloudError(json.load(error)["error"]) from error
        except OSError as error:
            raise LocalCloudError(
                f"no local cloud answers at {self.endpoint} ({error}): start one: python -m lab.local"
            ) from error
