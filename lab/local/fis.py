"""AWS Fault Injection Service, as far as it sends Spot interruptions: six actions, one fault.

Names, states and errors are those of botocore's model. A template is checked when it is made; the targets
and what its role may do, when it is started, as AWS does.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lab.local.cloud import EmulatedCloud, NotPossibleError
from lab.local.context import Context, Handler, Result, request_tag_conditions
from lab.local.ec2 import instance_conditions
from lab.local.environment import ACCOUNT, EC2_WARNING_S, REGION
from lab.local.instances import LocalInstance, LocalInstanceState
from lab.local.ministack import MiniStack
from lab.local.wire import AwsError

_log = logging.getLogger(__name__)

ACTION = "aws:ec2:send-spot-instance-interruptions"
RESOURCE_TYPE = "aws:ec2:spot-instance"
ACTION_TARGET = "SpotInstances"
"""What the action calls its target."""

MOST_TARGETS = 5
"""Instances that one action interrupts at most."""

LEAST_MINUTES, MOST_MINUTES = 2, 15
"""Of `durationBeforeInterruption`."""

MOST_RUNNING = 5
"""Experiments of an account that may run at once."""

ALARM = r"arn:aws:cloudwatch:[a-z0-9-]+:\d{12}:alarm:.+"
INSTANCE = re.compile(rf"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/(i-[0-9a-f]+)")
ROLE = r"arn:aws:iam::\d{12}:role/.+"

EMPTY = "Target resolution returned empty set"
"""Why an experiment fails that finds none of its targets."""

_OVER = frozenset({"completed", "stopped", "failed", "cancelled"})

After = Callable[[float, Callable[[], None]], object]


@dataclass(slots=True)
class _Template:
    """An experiment template: what the request said, and what FIS added."""

    id: str
    asked: Mapping[str, Any]
    created_at: datetime
    tags: Mapping[str, str]

    @property
    def action(self) -> Mapping[str, Any]:
        """The only action."""
        (action,) = self.asked["actions"].values()
        return dict(action)

    @property
    def target(self) -> Mapping[str, Any]:
        """What its action is about."""
        return dict(self.asked["targets"][self.action["targets"][ACTION_TARGET]])

    def shown(self) -> Result:
        """As the API shows it."""
        return {
            **{name: value for name, value in self.asked.items() if name != "clientToken"},
            "tags": dict(self.tags),
            "id": self.id,
            "arn": _arn("experiment-template", self.id),
            "creationTime": self.created_at,
            "lastUpdateTime": self.created_at,
            "experimentOptions": {"accountTargeting": "single-account", "emptyTargetResolutionMode": "fail"},
        }


@dataclass(slots=True)
class _Experiment:
    """One run of a template, which may be gone meanwhile."""

    id: str
    template: _Template
    tags: Mapping[str, str]
    token: str
    created_at: datetime
    status: str = "initiating"
    reason: str = "Experiment is initiating."
    action_status: str = "pending"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    arns: list[str] = field(default_factory=list)
    """The resolved targets."""

    def shown(self) -> Result:
        """As the API shows it."""
        asked = self.template.asked
        times = {"startTime": self.started_at, "endTime": self.ended_at}
        (name,) = asked["actions"]
        known = {key: at for key, at in times.items() if at is not None}
        (target,) = self.template.action["targets"].values()
        action = {**self.template.action, "state": {"status": self.action_status}, **known}
        return {
            "id": self.id,
            "arn": _arn("experiment", self.id),
            "experimentTemplateId": self.template.id,
            "roleArn": asked["roleArn"],
            "state": {"status": self.status, "reason": self.reason},
            "targets": {
                target: {**self.template.target, **({"resourceArns": self.arns} if self.arns else {})}
            },
            "actions": {name: action},
            "stopConditions": asked["stopConditions"],
            "creationTime": self.created_at,
            **known,
            "tags": dict(self.tags),
        }


class FaultInjection:
    """The handlers of Fault Injection Service. `after` runs a function so many seconds later."""

    def __init__(self, cloud: EmulatedCloud, ministack: MiniStack, after: After) -> None:
        self._cloud = cloud
        self._ministack = ministack
        self._after = after
        self._templates: dict[str, _Template] = {}
        self._experiments: dict[str, _Experiment] = {}

    @property
    def handlers(self) -> dict[str, Handler]:
        """By action."""
        return {
            "CreateExperimentTemplate": self._create,
            "DeleteExperimentTemplate": self._delete,
            "StartExperiment": self._start,
            "GetExperiment": self._get,
            "StopExperiment": self._stop,
            "TagResource": self._tag,
        }

    def _create(self, context: Context) -> Result:
        params = context.params
        tags = params.get("tags", {})
        _require(context, "CreateExperimentTemplate", _arn("experiment-template", "*"), tags)
        for action in params["actions"].values():
            context.require("fis:CreateExperimentTemplate", _arn("action", action["actionId"]))
        if tags:
            _require(context, "TagResource", _arn("experiment-template", "*"), tags)
        context.require("iam:PassRole", params["roleArn"], {"iam:PassedToService": "fis.amazonaws.com"})
        _check_template(params)
        for template in self._templates.values():
            if template.asked["clientToken"] == params["clientToken"]:
                if template.asked != params:
                    raise _conflict()
                return {"experimentTemplate": template.shown()}
        template = _Template(_id("EXT"), params, self._cloud.now(), tags)
        self._templates[template.id] = template
        return {"experimentTemplate": template.shown()}

    def _delete(self, context: Context) -> Result:
        template = self._template(context, "DeleteExperimentTemplate", context.params["id"])
        del self._templates[template.id]
        return {"experimentTemplate": template.shown()}

    def _start(self, context: Context) -> Result:
        params = context.params
        tags = params.get("tags", {})
        _require(context, "StartExperiment", _arn("experiment", "*"), tags)
        template = self._template(context, "StartExperiment", params["experimentTemplateId"], tags)
        if tags:
            _require(context, "TagResource", _arn("experiment", "*"), tags)
        for known in self._experiments.values():
            if known.token == params["clientToken"]:
                if known.template.id != template.id:
                    raise _conflict()
                return {"experiment": known.shown()}
        if sum(e.status not in _OVER for e in self._experiments.values()) >= MOST_RUNNING:
            raise AwsError(
                "ServiceQuotaExceededException", f"At most {MOST_RUNNING} experiments run at once", status=402
            )
        experiment = _Experiment(_id("EXP"), template, tags, params["clientToken"], self._cloud.now())
        self._experiments[experiment.id] = experiment
        self._after(0, lambda: self._begin(experiment))
        return {"experiment": experiment.shown()}

    def _get(self, context: Context) -> Result:
        return {"experiment": self._experiment(context, "GetExperiment").shown()}

    def _stop(self, context: Context) -> Result:
        """What an action has asked EC2 for by then is not taken back."""
        experiment = self._experiment(context, "StopExperiment")
        if experiment.status in _OVER:
            raise _invalid(f"Experiment {experiment.id} can't be stopped: it is {experiment.status}")
        self._end(experiment, "stopped", "Experiment stopped.")
        return {"experiment": experiment.shown()}

    def _tag(self, context: Context) -> Result:
        arn, tags = context.params["resourceArn"], context.params["tags"]
        kind, _, id_ = arn.rpartition(":")[2].partition("/")
        known: Mapping[str, _Template | _Experiment] = (
            self._templates if kind == "experiment-template" else self._experiments
        )
        found = known.get(id_)
        _require(context, "TagResource", arn, tags, found.tags if found else {})
        if found is None:
            raise _not_found(f"{arn} doesn't exist.")
        found.tags = {**found.tags, **tags}
        return {}

    def _template(
        self, context: Context, action: str, id_: str, tags: Mapping[str, str] | None = None
    ) -> _Template:
        """The template, if the caller may use it so; a request's tags count for each of its resources."""
        template = self._templates.get(id_)
        of = template.tags if template else {}
        _require(context, action, _arn("experiment-template", id_), tags, of)
        if template is None:
            raise _not_found(f"Experiment template {id_} doesn't exist.")
        return template

    def _experiment(self, context: Context, action: str) -> _Experiment:
        id_ = context.params["id"]
        experiment = self._experiments.get(id_)
        _require(context, action, _arn("experiment", id_), of=experiment.tags if experiment else {})
        if experiment is None:
            raise _not_found(f"Experiment {id_} doesn't exist.")
        return experiment

    def _begin(self, experiment: _Experiment) -> None:
        if experiment.status in _OVER:
            return
        experiment.started_at = self._cloud.now()
        found = self._resolved(experiment.template.target)
        experiment.arns = [instance.arn for instance in found]
        problem = self._problem(experiment, found)
        if problem:
            self._end(experiment, "failed", problem)
            return
        experiment.status, experiment.reason = "running", "Experiment is running."
        experiment.action_status = "running"
        for instance in found:
            self._cloud.rebalance(instance.id)
        minutes = _minutes(experiment.template.action)
        # Two minutes are left at the notice. What is before it shrinks as much as those do here.
        wait_s = (minutes * 60 - EC2_WARNING_S) * self._cloud.settings.warning_s / EC2_WARNING_S
        for instance in found:
            self._after(wait_s, lambda id_=instance.id: self._interrupt(id_))  # type: ignore[misc]
        # The rest is EC2's.
        self._after(0, lambda: self._end(experiment, "completed", "Experiment completed."))

    def _problem(self, experiment: _Experiment, found: list[LocalInstance]) -> str | None:
        """Why the experiment fails; None if it doesn't."""
        if not found:
            return EMPTY
        if len(found) > MOST_TARGETS:
            return f"Target resolution returned {len(found)} resources: {ACTION} takes {MOST_TARGETS}"
        role = experiment.template.asked["roleArn"]
        with self._ministack.scope():
            key = self._ministack.assumed_by(role, "fis.amazonaws.com", experiment.id)
            if key is None:
                return f"Unable to assume role {role}: it doesn't exist, or doesn't trust fis.amazonaws.com"
            # It sees with the role what it is to interrupt, by AWSFaultInjectionSimulatorEC2Access.
            denied = self._ministack.denial_of(key, "ec2:DescribeInstances", "*", {})
            if denied:
                return denied
            for instance in found:
                conditions = instance_conditions(instance)
                denied = self._ministack.denial_of(
                    key, "ec2:SendSpotInstanceInterruptions", instance.arn, conditions
                )
                if denied:
                    return denied
        return None

    def _resolved(self, target: Mapping[str, Any]) -> list[LocalInstance]:
        """Running Spot instances that the target means; on-demand ones are another type of resource."""
        there = [
            i
            for i in self._cloud.instances.values()
            if i.is_spot and i.state is LocalInstanceState.RUNNING and i.warned_at is None
        ]
        if arns := target.get("resourceArns"):
            there = [i for i in there if i.arn in arns]
        else:
            wanted = target["resourceTags"].items()
            there = [i for i in there if wanted <= i.tags.items()]
        return _selected(target["selectionMode"], there)

    def _interrupt(self, instance_id: str) -> None:
        try:
            self._cloud.warn(instance_id, by_experiment=True)
        except NotPossibleError as error:
            _log.warning("an experiment interrupts nothing: %s", error)

    def _end(self, experiment: _Experiment, status: str, reason: str) -> None:
        if experiment.status in _OVER:
            return
        has_begun = experiment.action_status == "running"
        experiment.status, experiment.reason, experiment.ended_at = status, reason, self._cloud.now()
        experiment.action_status = status if has_begun else "cancelled"


def _check_template(params: Mapping[str, Any]) -> None:
    """What the model doesn't say of a template.

    Raises:
        AwsError: FIS would refuse it.
    """
    if not re.fullmatch(ROLE, params["roleArn"]):
        raise _invalid(f"roleArn: {params['roleArn']} is no role's ARN")
    if not params["stopConditions"]:
        raise _invalid('stopConditions: at least one is needed, with source "none" if nothing stops it')
    for condition in params["stopConditions"]:
        _check_stop_condition(condition)
    if len(params["actions"]) != 1:
        raise _invalid("actions: the local cloud takes templates with one action")
    targets = params.get("targets", {})
    for name, action in params["actions"].items():
        if action["actionId"] != ACTION:
            raise _invalid(f"actions.{name}.actionId: {action['actionId']} isn't {ACTION}")
        _minutes(action)
        asked = action.get("targets", {})
        if set(asked) != {ACTION_TARGET}:
            raise _invalid(f"actions.{name}.targets: {ACTION} needs exactly one target, {ACTION_TARGET}")
        if asked[ACTION_TARGET] not in targets:
            raise _invalid(f"actions.{name}.targets: there is no target {asked[ACTION_TARGET]}")
    for name, target in targets.items():
        _check_target(name, target)


def _check_stop_condition(condition: Mapping[str, Any]) -> None:
    source, value = condition["source"], condition.get("value")
    if source not in ("none", "aws:cloudwatch:alarm"):
        raise _invalid(f"stopConditions: {source} is no source: none and aws:cloudwatch:alarm are")
    if (source == "none") == (value is not None):
        raise _invalid(f"stopConditions: a value {'needs an alarm' if value else 'is needed'}")
    if value is not None and not re.fullmatch(ALARM, value):
        raise _invalid(f"stopConditions: {value} is no alarm's ARN")


def _check_target(name: str, target: Mapping[str, Any]) -> None:
    if target["resourceType"] != RESOURCE_TYPE:
        raise _invalid(f"targets.{name}.resourceType: {ACTION} needs {RESOURCE_TYPE}")
    arns, tags = target.get("resourceArns"), target.get("resourceTags")
    if bool(arns) == bool(tags):
        raise _invalid(f"targets.{name}: either resourceArns or resourceTags")
    for arn in arns or ():
        if not INSTANCE.fullmatch(arn):
            raise _invalid(f"targets.{name}.resourceArns: {arn} is no instance's ARN in {REGION}, {ACCOUNT}")
    if target.get("filters") or target.get("parameters"):
        raise _invalid(f"targets.{name}: the local cloud takes neither filters nor parameters")
    _selected(target["selectionMode"], [])


def _selected(mode: str, instances: list[LocalInstance]) -> list[LocalInstance]:
    """As many as the selection mode says, at random."""
    match = re.fullmatch(r"ALL|COUNT\(([1-9]\d*)\)|PERCENT\(([1-9]\d?|100)\)", mode)
    if match is None:
        raise _invalid(f"selectionMode: {mode} isn't ALL, COUNT(n) or PERCENT(n)")
    count, percent = match.groups()
    most = int(count) if count else len(instances) * int(percent or 100) // 100
    return secrets.SystemRandom().sample(instances, min(most, len(instances)))


def _minutes(action: Mapping[str, Any]) -> int:
    duration = action.get("parameters", {}).get("durationBeforeInterruption", "")
    match = re.fullmatch(r"PT(\d{1,3})M", duration)
    minutes = int(match[1]) if match else 0
    if set(action.get("parameters", {})) != {"durationBeforeInterruption"} or not (
        LEAST_MINUTES <= minutes <= MOST_MINUTES
    ):
        raise _invalid(
            f"parameters: {ACTION} needs durationBeforeInterruption, PT{LEAST_MINUTES}M to PT{MOST_MINUTES}M,"
            f" and nothing else; not {duration!r}"
        )
    return minutes


def _require(
    context: Context,
    action: str,
    resource: str,
    tags: Mapping[str, str] | None = None,
    of: Mapping[str, str] | None = None,
) -> None:
    """`tags` are those that the request sets, `of` those that the resource has."""
    conditions = {
        **request_tag_conditions(tags or {}),
        **{f"aws:ResourceTag/{key}": value for key, value in (of or {}).items()},
    }
    context.require(f"fis:{action}", resource, conditions)


def _arn(kind: str, name: str) -> str:
    return f"arn:aws:fis:{REGION}:{ACCOUNT}:{kind}/{name}"


def _id(prefix: str) -> str:
    return f"{prefix}{secrets.token_urlsafe(24).replace('_', '').replace('-', '')[:15]}"


def _invalid(message: str) -> AwsError:
    return AwsError("ValidationException", message)


def _not_found(message: str) -> AwsError:
    return AwsError("ResourceNotFoundException", message, status=404)


def _conflict() -> AwsError:
    return AwsError(
        "ConflictException", "The client token was used before, with other parameters", status=409
    )
