"""What the control plane logged about a service, in sentences: one for each record.

A record's name and facts are for machines, and stay as they are: `--verbose` and `--json` have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spotrelay.messages import few

Facts = Mapping[str, Any]

SHOWN = 3
"""Of what a sentence lists: more is for `--verbose`."""

ACTIONS = {
    "Adopt": "takes an instance over whose record was lost",
    "CloseIntent": "a launch has nothing left to wait for",
    "ComeBack": "comes back into rotation",
    "Drain": "leaves the rotation and finishes its requests",
    "End": "has ended",
    "Fail": "failed",
    "GiveUp": "its version is given up",
    "GoWithout": "gets no replacement",
    "Launch": "an instance is asked for",
    "LookAgain": "is looked at again when its time comes",
    "MarkReady": "is ready",
    "NoteHealth": "its health, as the load balancer sees it, has changed",
    "NoteMissing": "whether EC2 shows its instance has changed",
    "NoteRebalance": "EC2 recommends to leave its instance",
    "NoteSilence": "whether it answers its probe has changed",
    "NoteStart": "what its start has reached is noted",
    "NoteTrouble": "why it isn't ready has changed",
    "NoteWarning": "EC2 takes its instance back while it drains",
    "RaiseHighestId": "the highest ID on record was too low, and is raised",
    "Recount": "the table's count of serving replicas was wrong, and is corrected",
    "Register": "is put into rotation",
    "Replace": "a replacement is requested",
    "Request": "more replicas are requested",
    "Resume": "its stopped instance is started, to serve",
    "ServeOn": "EC2 takes its instance back; it serves until others do",
    "StandBy": "its instance is stopped, and stands by",
    "Start": "has its instance, and starts",
    "StartInstance": "its stopped instance is started",
    "StopInstance": "its instance is stopped, as it should have been",
    "TakeIn": "an instance that wasn't on record gets a row",
    "TakeOut": "its instance is taken out of rotation",
    "Terminate": "its instance is terminated",
    "TryOut": "its stopped instance is started once, to see that it comes back",
}
"""What is done to a replica, or to none, by the step's name (`plane/serving/steps.py`). What is held back
isn't done: it is a record of its own."""


def sentence(line: Facts) -> str:
    """A record of the log in one line, without its time."""
    name = str(line.get("message", ""))
    if found := SENTENCES.get(name):
        told = found(line)
    elif all(part in ACTIONS for part in name.split(", ")):
        told = _actions(name.split(", "), line)
    else:
        told = name.replace("_", " ")
        told += f": {why}" if (why := line.get("why") or line.get("reason") or line.get("error")) else ""
    return " ".join(told.split())


def _actions(names: Sequence[str], line: Facts) -> str:
    replica, instance, count = line.get("replica"), line.get("instance_id"), line.get("count")
    subject = f"replica {replica}: " if replica is not None else f"{instance}: " if instance else ""
    done = ", ".join(ACTIONS[name] for name in names)
    number = f" ({count})" if count else ""
    reason = f" ({line['reason']})" if line.get("reason") else ""
    where = f"; {instance} in {line.get('offering')}" if replica is not None and instance else ""
    return f"{subject}{done}{number}{reason}{where}"


def _listed(values: Any) -> str:
    """The first of several, and how many more."""
    if isinstance(values, Mapping):
        values = [f"{name} ({fact})" for name, fact in values.items()]
    if not isinstance(values, Sequence) or isinstance(values, str):
        return str(values)
    return few(values, SHOWN) or "none"


def _said(template: str) -> Callable[[Facts], str]:
    """A sentence with the record's facts in it; `?` where it lacks one."""
    return lambda line: template.format_map(_Shown(line))


class _Shown(dict[str, str]):
    def __init__(self, facts: Facts) -> None:
        super().__init__({name: _listed(fact) for name, fact in facts.items()})

    def __missing__(self, _: str) -> str:
        return "?"


def _replicas(line: Facts) -> str:
    ids = line.get("replicas") or ()
    return f"replica{'s' if len(ids) != 1 else ''} {_listed(ids)}"


def _launch(line: Facts) -> str:
    who, option = _replicas(line), line.get("purchase_option", "")
    if instances := line.get("instances"):
        return f"launched for {who}: {_listed(instances)}"
    if error := line.get("error"):
        return f"no instance for {who}, {option}: EC2's answer is unknown, or an error: {error}"
    if refusals := line.get("refusals"):
        return f"no instance for {who}, {option}: EC2 refused: {_listed(refusals)}"
    return f"no instance for {who}, {option}: {line.get('why_these', 'EC2 gave none')}"


def _resume(line: Facts) -> str:
    refused = f"; EC2 refused: {_listed(line['refused'])}" if line.get("refused") else ""
    return f"started again: {_listed(line.get('instances'))}{refused}"


def _probed(line: Facts) -> str:
    parts = [
        f"{len(line[name])} {words} ({_listed(line[name])})"
        for name, words in (
            ("answering", "answer"),
            ("silent", "don't"),
            ("refusing", "refuse"),
            ("crashing", "crash"),
        )
        if line.get(name)
    ]
    return f"probed: {', '.join(parts) or 'no replica'}"


def _told(line: Facts) -> str:
    about = str(line.get("id", "")).rpartition("/")[2]
    return f"the event {line.get('kind', '?')} is sent" + (f" ({about})" if about else "")


def _denied(line: Facts) -> str:
    on = f" {line['instance_id']}" if line.get("instance_id") else ""
    return f"AWS denied a call (step {line.get('step', '?')}{on}): {line.get('error', '?')}"


SENTENCES: Mapping[str, Callable[[Facts], str]] = {
    "accounting_failed": _said("the days' costs weren't written down: {error}"),
    "alarms_not_told": _said("its alarms got no new data: {error}"),
    "announced": _said("EC2 has announced events for {instances}"),
    "better_elsewhere": _said("Spot is likelier to be had elsewhere: {scores}; here {best_score} at best"),
    "conflict": _said("the rows changed at the same time, so this is decided anew: {detail}"),
    "crash_looping": _said("version {version} crashes again and again: {failures} failures in a row"),
    "crashing": _said("replicas {replicas} of version {version} crash while they start"),
    "denied": _denied,
    "document_unknown": _said("the service's document couldn't be read: {error}"),
    "drill": _said("a drill interrupts {instances} (experiment {experiment})"),
    "events_dropped": _said("{count} events are given up, after too many refusals: {ids}"),
    "events_unsent": _said("EventBridge refused {count} events; they are sent again: {why}"),
    "held_back": _said("held back: {what}, because {why}; {remedy}"),
    "ids_mended": _said("the highest ID on record was {was}, and is raised to {highest_id}"),
    "image_gone": _said("image {image} of version {version} is gone: nothing can be launched from it"),
    "last_survey_unread": _said("the last survey couldn't be read: {error}"),
    "launch": _launch,
    "launch_blocked": _said("no retry gets {purchase_option} instances ({code}): {error}; {remedy}"),
    "launch_overtaken": _said("the replicas' rows changed during the launch: {detail}"),
    "launches_held": _said("{replicas} launches wait: the file allows no more in this minute"),
    "lessons_lost": _said("what was learned about pools couldn't be stored: {error}"),
    "load_unknown": _said("the load couldn't be read: {error}"),
    "not_accounted": _said("the days' costs weren't written down: {why}"),
    "not_appraised": _said("what it costs wasn't counted: {error}"),
    "not_noted": _said("what is held back couldn't be put on record: {error}"),
    "console_read": _said("replica {replica}: what its instance told of its start is read"),
    "console_unknown": _said("replica {replica}: what its instance told of its start stays unknown: {error}"),
    "starts_not_kept": _said("what instances told of their starts couldn't be put on record: {error}"),
    "not_surveyed": _said("no survey: {why}"),
    "not_told": _said("events couldn't be sent: {error}"),
    "ongoing_not_kept": _said("the number of ongoing requests couldn't be stored: {error}"),
    "ongoing_unknown": lambda line: _said(
        "the number of ongoing requests isn't known: {error}"
        if "error" in line
        else "the number of ongoing requests of {replicas} replicas isn't known: {why}"
    )(line),
    "overridden": _said("an operator's override was carried out; no longer: {no_longer}"),
    "override_lapsed": _said("an operator's override wasn't carried out: {why}; {remedy}"),
    "prices_missing": _said("no price was found for {types}"),
    "probe_failed": _said("the replicas couldn't be probed: {error}"),
    "probed": _probed,
    "quota_short": _said("the quota {quota} is too small: {vcpus} vCPU, {needed} needed; {remedy}"),
    "region_scores": _said("Spot placement scores of regions: {scores}"),
    "requests_unknown": _said("the load balancer's counts couldn't be read: {error}"),
    "resume": _resume,
    "rollout_stopped": _said("version {version} isn't rolled out any further: {failures} failures in a row"),
    "rows_unread": _said("the replicas couldn't be read for the survey: {error}"),
    "scaled": _said("the load asks for {count} replicas instead of {before}"),
    "scores_not_asked": _said("no placement score was asked for: {why}"),
    "signals_failed": _said("EC2's events couldn't be handled, and come again: {error}"),
    "standbys": _said("{count} standbys instead of {before}: {reason}"),
    "step_failed": _said("a step failed, and is taken again ({step}): {error}"),
    "survey_failed": _said("the survey failed: {error}"),
    "survey_refused": _said("AWS refused to tell {asked_for}: {error}"),
    "survey_unanswered": _said("AWS didn't tell {asked_for}: {error}"),
    "surveyed": _said("surveyed {pools} pools; the best placement score is {best_score}"),
    "tick_failed": _said("a tick failed, and comes again: {error}"),
    "to_mend": _said("somebody must fix this ({kind}): {found}"),
    "told": _told,
    "zones_looked_at": _said("EC2 described instances only zone by zone: {error}"),
}
"""By the record's name."""
