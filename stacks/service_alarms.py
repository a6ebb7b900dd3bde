"""What an operator must hear of a service: alarms in its own stack, whose names and texts say which it is.

One message for each incident and one when it is over. Most alarms hear of their incident from ticks, which
know more than metrics do: `spotrelay.plane.serving.incidents` decides, and has what explains what. Those on
answers look at the load balancer's own metrics, and ring without a controller, too.
"""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from spotrelay.file.service import Service
from spotrelay.plane.core.incidents import alarms_of
from spotrelay.plane.core.names import (
    ALARM_DIMENSION,
    INCIDENT,
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    Alarm,
    alarms_prefix,
)
from spotrelay.plane.core.timing import CRASH_LOOP_FAILURES, LONG_FALLBACK_S, LOW_SCORE, MOVE_SCORE_GAIN
from stacks.alarms import MINUTE, TOPIC_NAME, described
from stacks.dashboard import BLOCKED_TITLE
from stacks.entrance import Entrance

ERRORS_PERCENT = 5
ERRORS_OF_MINUTES = 3, 5
"""An instance that dies without a warning breaks off what it has and fails a share of the new requests for at
most 19 s (`entrance.UNHEALTHY_THRESHOLD`): that may touch two minutes. A service with one request a minute
rings with its third failure."""

SLOW_PERIODS = 3
"""A quarter of an hour, by `entrance.RESPONSE_PERIOD`: one long answer is no habit, and the threshold is no
emergency."""

WHERE_WORDS = f"EC2's own words and the remedy are on the dashboard, under '{BLOCKED_TITLE}', too."


class ServiceAlarms(Construct):
    """The alarms in a service's own stack: they name the service, and are set by what its file says."""

    def __init__(self, scope: Construct, id_: str, *, service: Service, entrance: Entrance) -> None:
        super().__init__(scope, id_)
        self._service = service
        topic_arn = Stack.of(self).format_arn(service="sns", resource=TOPIC_NAME)
        self._tell = actions.SnsAction(sns.Topic.from_topic_arn(self, "Topic", topic_arn))
        has = alarms_of(service, len(service.instance_types))
        for alarm, meaning in _meanings(service).items():
            if alarm in has:
                self._on_incident(alarm, meaning)
        if entrance.requests:
            self._on_errors(entrance)
        if entrance.response_time is not None:
            self._on_slow_answers(entrance.response_time)

    def _on_incident(self, alarm: Alarm, meaning: str) -> None:
        """What ticks tell: 1 while it lasts, 0 once it has ended. Nothing changes nothing.

        So an alarm that rings doesn't end because nobody looks any more.
        """
        name = self._service.name
        self._add(
            alarm,
            cloudwatch.Metric(
                namespace=METRICS_NAMESPACE,
                metric_name=INCIDENT,
                dimensions_map={METRICS_DIMENSION: name, ALARM_DIMENSION: alarm},
                period=MINUTE,
                statistic="Maximum",
            ),
            meaning,
            threshold=1,
            periods=1,
            missing=cloudwatch.TreatMissingData.IGNORE,
            command=f"spotrelay {'scores' if alarm in _ON_POOLS else 'status'} {name}",
        )

    def _on_errors(self, entrance: Entrance) -> None:
        """Answers of 5xx, a share of all, in a minute in which any request found a target.

        Where none does, nothing is ready: that has an alarm of its own, or is a first start. What the
        balancer answers itself is in no request count where it had no target to choose. Missing values count
        as 0.
        """
        errors = " + ".join(entrance.errors)
        all_ = " + ".join(entrance.answers)
        of_them, periods = ERRORS_OF_MINUTES
        self._add(
            Alarm.ELB_5XX,
            cloudwatch.MathExpression(
                expression=f"IF(requests > 0, 100 * ({errors}) / ({all_}), 0)",
                using_metrics={id_: m.with_(period=MINUTE) for id_, m in entrance.requests.items()},
                period=MINUTE,
                label="percent of answers that are 5xx",
            ),
            f"of all answers, {ERRORS_PERCENT} % and more were 5xx in {of_them} of {periods} minutes, though"
            " replicas are there. 502 and 504: a server broke off or took too long, or is unhealthy as all"
            " others are. 503: no target was registered. 500: the server's own, see the instance's console"
            " output.",
            threshold=ERRORS_PERCENT,
            periods=periods,
            of_them=of_them,
        )

    def _on_slow_answers(self, response_time: cloudwatch.IMetric) -> None:
        """Answers that a drain would cut."""
        drain_s = self._service.drain_s
        self._add(
            Alarm.SLOW_ANSWERS,
            response_time,
            f"answers take longer than drain_seconds ({drain_s}): those in flight are cut when EC2 takes an"
            " instance. Raise it in the service file, or limit the answers. This is the time until an"
            " answer's headers: a streamed answer that runs for longer isn't seen here.",
            threshold=drain_s,
            comparison=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            periods=SLOW_PERIODS,
        )

    def _add(
        self,
        alarm: Alarm,
        metric: cloudwatch.IMetric,
        meaning: str,
        *,
        threshold: float,
        comparison: cloudwatch.ComparisonOperator = (
            cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
        ),
        periods: int,
        of_them: int | None = None,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
        command: str = "",
    ) -> None:
        """Rings if `of_them` of so many periods are beyond the threshold, by default all.

        It tells the topic when it goes off, and when it is over.
        """
        name = self._service.name
        made = cloudwatch.Alarm(
            self,
            f"On{alarm}",
            alarm_name=f"{alarms_prefix(name)}{alarm}",
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            datapoints_to_alarm=of_them,
            treat_missing_data=missing,
            alarm_description=described(command or f"spotrelay status {name}", f"{name}: {meaning}", alarm),
        )
        made.add_alarm_action(self._tell)
        made.add_ok_action(self._tell)


_ON_POOLS = frozenset({Alarm.FALLBACK_TOO_LONG, Alarm.BETTER_ELSEWHERE})
"""What other pools would mend: the command to run first shows those."""


def _meanings(service: Service) -> dict[Alarm, str]:
    """What each alarm says that hears of its incident from ticks, the worst first."""
    name = service.name
    # What is missing is counted of an operator's number while one is asked for.
    number = f"{service.replicas}" if service.scaling is None else "as many as the load asks for"
    desired = f"{number}, unless `spotrelay scale {name}` shows another number"
    return {
        Alarm.NOTHING_READY: (
            f"no replica is ready to serve, of those desired ({desired}): clients get errors. What is missing"
            " is being replaced; the status says what keeps it."
        ),
        Alarm.CRASH_LOOPING: (
            "a replica tells that its server keeps ending before it is ready; or its replicas have failed to"
            f" start {CRASH_LOOP_FAILURES} times in a row, so no more are launched. `spotrelay status {name}`"
            f" has what it said last, and `spotrelay logs {name} ID` what the instance printed. Deploy a"
            " version that starts, and launches go on."
        ),
        Alarm.CANNOT_LAUNCH: (
            f"replicas that are desired ({desired}) get no instance. Either EC2 refuses launches until"
            " somebody mends the cause (a quota, a permission, a key, the request), or it lacks capacity:"
            f" then more accelerators, types or zones in the service file widen the choice. {WHERE_WORDS}"
            " Launches are tried again by themselves."
        ),
        Alarm.NOT_WHOLE: (
            f"fewer replicas than desired ({desired}) have been ready for longer than one takes to"
            f" start ({service.initial_delay_s:.0f} s, from initial_delay_seconds). The status says what each"
            " of them does; if they fail, the log of the functions says why, and the instance's console"
            f" output what it did. If they have no instance: {WHERE_WORDS}"
        ),
        Alarm.ROLLOUT_STOPPED: (
            # A version that doesn't start, while the one before serves on: nothing else rings for that.
            "the deployed version was given up: two of its replicas never became ready, one stopped"
            " answering, or EC2 can't hold both versions at once. The version before serves on, and replaces"
            " what is lost. The log of the functions says why replicas fail, in the lines Fail. Deploy a"
            f" version that starts; `spotrelay rollback {name} --reset` tries this one again."
        ),
        Alarm.FALLBACK_TOO_LONG: (
            f"an on-demand instance has stood in for Spot for more than {LONG_FALLBACK_S / 3600:.0f} h: the"
            " service serves, at the on-demand price. More accelerators, types or zones in the service file"
            " widen the choice."
        ),
        Alarm.BETTER_ELSEWHERE: (
            # No emergency: the service may run on, on demand or by luck, and nothing else rings for that.
            f"in two surveys in a row EC2 scored all of its zones {LOW_SCORE} or less of 10 for Spot, and a"
            " zone that it doesn't use, or another region that its file allows, at least"
            f" {MOVE_SCORE_GAIN} more. The line better_elsewhere of the log says which. A subnet in that zone"
            f" (-c subnets) lets {name} go there; another region takes a deployment there."
        ),
    }
