"""What an operator must hear of a service: alarms in its own stack, whose names and texts say which it is.

One message for each incident and one when it is over. So what tells somebody is a composite alarm where
another alarm may have the same cause: while that one rings, this one's messages are suppressed, and its state
stays true. Parts of composite alarms tell nobody.

    NothingReady  suppresses  CannotLaunch
    NothingReady, CannotLaunch, CrashLooping  suppress  NotWhole
    CrashLooping  is why nothing is launched: CannotLaunch doesn't ring for it
"""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from spotrelay.core.names import Alarm, Metric, alarms_prefix
from spotrelay.core.pools import LEAST_TYPES
from spotrelay.core.spec import OnUpdate
from spotrelay.core.timing import CRASH_LOOP_FAILURES, LOW_SCORE, MOVE_SCORE_GAIN
from spotrelay.service import Service
from stacks.alarms import MINUTE, TOPIC_NAME, described, ours
from stacks.dashboard import BLOCKED_TITLE
from stacks.entrance import Entrance

BLOCKED_PERIODS = 20
"""Minutes after the last refusal until it counts as mended. EC2 is asked again after 15 minutes at most: that
is a quota's longest cooldown."""

UNLAUNCHED_PERIODS = 2
"""Minutes beyond those that the launches take, `max_launches_per_minute` at a time: a request takes seconds,
and a fallback is asked for a second after Spot refuses. Three in all, so that it rings within five."""

TICK_PERIODS = 3
"""Of what is counted with every tick, so at least once a minute: one may be lost."""

STARTED_WITHIN_S = 180
"""Beyond the time that a start may take: a minute for the launch and the boot, which `initial_delay_seconds`
doesn't count, one for the health checks, one for the tick that sees them passed."""

MISSING_AT_LEAST_S = 300

LONGEST_S = 86_400
"""CloudWatch lets an alarm look back one day, or a week in periods of an hour and more."""

WAS_READY_PERIOD, WAS_READY_PERIODS = Duration.hours(1), 7 * 24
"""The longest that CloudWatch looks back. It does so once an hour: a service that has just become ready for
the first time rings NothingReady an hour later at the latest, and NotWhole until then."""

SUPPRESSED_WITHIN = Duration.minutes(2)
"""A refusal is seen in the minute in which it happens; that nothing is ready, only when a whole minute was
so, after the one in which something still was."""

ERRORS_PERCENT = 5
ERRORS_OF_MINUTES = 3, 5
"""An instance that dies without a warning breaks off what it has and fails a share of the new requests for at
most 19 s (`entrance.UNHEALTHY_THRESHOLD`): that may touch two minutes. A service with one request a minute
rings with its third failure."""

FALLBACK_S = 7200
"""An hour or two is what a fallback is for. Beyond, somebody should know that it costs more."""

FALLBACK_PERIODS = 5
"""It is counted with every tick while there is one: some may be lost."""

SURVEYS, BETTER_PERIODS = Duration.hours(1), 2
"""Surveys come by the hour, and two of them have seen it when it is counted. One that is a minute late leaves
an hour without a value, which is no end of it."""

SLOW_PERIODS = 3
"""A quarter of an hour, by `entrance.RESPONSE_PERIOD`: one long answer is no habit, and the threshold is no
emergency."""

UNCHANGED = cloudwatch.TreatMissingData.IGNORE
"""No tick, no news: an alarm that rings must not end because nobody counts any more."""

WHERE_WORDS = f"EC2's own words and the remedy are on the dashboard, under '{BLOCKED_TITLE}', too."


class ServiceAlarms(Construct):
    """The alarms in a service's own stack: they name the service, and are set by what its file says."""

    def __init__(self, scope: Construct, id_: str, *, service: Service, entrance: Entrance) -> None:
        super().__init__(scope, id_)
        self.alarms: list[cloudwatch.IAlarm] = []
        """Those that tell somebody, the worst first."""
        self._service = service
        # What is missing is counted of an operator's number while one is asked for.
        number = f"{service.replicas}" if service.scaling is None else "as many as the load asks for"
        self._desired = f"{number}, unless `spotrelay scale {service.name}` shows another number"
        topic_arn = Stack.of(self).format_arn(service="sns", resource=TOPIC_NAME)
        self._tell = actions.SnsAction(sns.Topic.from_topic_arn(self, "Topic", topic_arn))
        self._start_s = min(max(service.initial_delay_s + STARTED_WITHIN_S, MISSING_AT_LEAST_S), LONGEST_S)
        nothing_ready = self._on_nothing_ready()
        crash_looping = self._on_crash_loops()
        cannot_launch = self._on_impossible_launches(nothing_ready, crash_looping)
        self._on_missing_replicas(nothing_ready, cannot_launch, crash_looping)
        if entrance.requests:
            self._on_errors(entrance)
        if service.use_spot and service.on_demand_fallback:
            self._on_long_fallbacks()
        if service.on_update is not OnUpdate.KEEP:
            self._on_stopped_rollouts()
        if service.use_spot and len(service.instance_types) >= LEAST_TYPES:
            self._on_better_places()
        if entrance.response_time is not None:
            self._on_slow_answers(entrance.response_time)

    def _on_nothing_ready(self) -> cloudwatch.CompositeAlarm:
        """An outage: nothing serves, and something did before. What never served yet is only starting.

        A service that the load may bring to zero has nothing ready each time it is woken: there it waits for
        as long as a start may take.
        """
        sleeps = self._service.scaling is not None and self._service.scaling.extremes.least == 0
        now = self._alarm(
            Alarm.NOTHING_READY,
            cloudwatch.MathExpression(
                expression="ready < 1 AND missing > 0",
                using_metrics={
                    "ready": self._counted(Metric.REPLICAS_READY, MINUTE, "Maximum"),
                    "missing": self._counted(Metric.REPLICAS_MISSING, MINUTE, "Minimum"),
                },
                period=MINUTE,
                label="nothing is ready, and something should be",
            ),
            "nothing is ready, and something should be.",
            part="Now",
            periods=_minutes(self._start_s) if sleeps else 1,
            missing=UNCHANGED,
        )
        never = self._alarm(
            Alarm.NOTHING_READY,
            self._counted(Metric.REPLICAS_READY, WAS_READY_PERIOD, "Maximum"),
            "nothing was ready for a week, or ever: what isn't ready then is starting, which is no outage.",
            part="NeverBefore",
            periods=WAS_READY_PERIODS,
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )
        return self._composite(
            Alarm.NOTHING_READY,
            cloudwatch.AlarmRule.all_of(
                _rings(now), cloudwatch.AlarmRule.from_alarm(never, cloudwatch.AlarmState.OK)
            ),
            f"no replica is ready to serve, of those desired ({self._desired}): clients get errors. What is"
            " missing is being replaced; the status says what keeps it.",
        )

    def _on_crash_loops(self) -> cloudwatch.IAlarm:
        """Nobody but a person ends it, so it is told even while nothing is ready."""
        name = self._service.name
        return self._alarm(
            Alarm.CRASH_LOOPING,
            self._counted(Metric.CRASH_LOOPING, MINUTE, "Sum"),
            "a replica tells that its server keeps ending before it is ready; or its replicas have failed to"
            f" start {CRASH_LOOP_FAILURES} times in a row, so no more are launched. `spotrelay status {name}`"
            f" has what it said last, and `spotrelay logs {name} ID` what the instance printed. Deploy a"
            " version that starts, and launches go on.",
            periods=TICK_PERIODS,
            of_them=1,
        )

    def _on_impossible_launches(
        self, nothing_ready: cloudwatch.IAlarm, crash_looping: cloudwatch.IAlarm
    ) -> cloudwatch.CompositeAlarm:
        """What no retry mends, at once, though something else may serve; and what long has no instance."""
        service = self._service
        blocked = self._alarm(
            Alarm.CANNOT_LAUNCH,
            self._counted(Metric.LAUNCHES_BLOCKED, MINUTE, "Sum"),
            "EC2 refuses launches until somebody mends the cause.",
            part="Blocked",
            periods=BLOCKED_PERIODS,
            of_them=1,
        )
        launching = -(-service.most_replicas // service.max_launches_per_minute)
        unlaunched = self._alarm(
            Alarm.CANNOT_LAUNCH,
            self._counted(Metric.REPLICAS_UNLAUNCHED, MINUTE, "Minimum"),
            "not all replicas that are desired have an instance, and there is no on-demand fallback either.",
            part="Unlaunched",
            periods=UNLAUNCHED_PERIODS + max(launching, 1),
            missing=UNCHANGED,
        )
        return self._composite(
            Alarm.CANNOT_LAUNCH,
            cloudwatch.AlarmRule.any_of(
                _rings(blocked),
                cloudwatch.AlarmRule.all_of(
                    _rings(unlaunched), cloudwatch.AlarmRule.not_(_rings(crash_looping))
                ),
            ),
            f"replicas that are desired ({self._desired}) get no instance. Either EC2 refuses launches until"
            " somebody mends the cause (a quota, a permission, a key, the request), or it lacks capacity:"
            f" then more accelerators, types or zones in the service file widen the choice. {WHERE_WORDS}"
            " Launches are tried again by themselves.",
            suppressor=nothing_ready,
            extension_s=self._start_s,
        )

    def _on_missing_replicas(self, *causes: cloudwatch.IAlarm) -> None:
        """What isn't ready in the time that a start may take, whatever the reason."""
        service = self._service
        missing = self._alarm(
            Alarm.NOT_WHOLE,
            self._counted(Metric.REPLICAS_MISSING, MINUTE, "Minimum"),
            "fewer replicas than desired have been ready, for longer than one takes to start.",
            part="Missing",
            periods=_minutes(self._start_s),
            missing=UNCHANGED,
        )
        explained = cloudwatch.CompositeAlarm(
            self,
            f"{Alarm.NOT_WHOLE}Explained",
            composite_alarm_name=self._name(Alarm.NOT_WHOLE, "Explained"),
            alarm_rule=cloudwatch.AlarmRule.any_of(*(_rings(cause) for cause in causes)),
            alarm_description=self._described(
                Alarm.NOT_WHOLE, "another alarm rings for the same: while it does, NotWhole says nothing."
            ),
        )
        self._composite(
            Alarm.NOT_WHOLE,
            cloudwatch.AlarmRule.any_of(_rings(missing)),
            f"fewer replicas than desired ({self._desired}) have been ready for longer than one takes to"
            f" start ({service.initial_delay_s:.0f} s, from initial_delay_seconds). The status says what each"
            " of them does; if they fail, the log of the functions says why, and the instance's console"
            f" output what it did. If they have no instance: {WHERE_WORDS}",
            suppressor=explained,
            extension_s=self._start_s,
        )

    def _on_errors(self, entrance: Entrance) -> None:
        """Answers of 5xx, a share of all, while something is ready: without, NothingReady rings.

        What the balancer answers itself is in no request count where it had no target to choose. Missing
        values count as 0, and a division by 0 gives no value.
        """
        errors = " + ".join(entrance.errors)
        all_ = " + ".join(entrance.answers)
        of_them, periods = ERRORS_OF_MINUTES
        self._alarm(
            Alarm.ELB_5XX,
            cloudwatch.MathExpression(
                expression=f"100 * ({errors}) / ({all_}) - IF(ready < 1 AND missing > 0, 101, 0)",
                using_metrics={
                    **{id_: metric.with_(period=MINUTE) for id_, metric in entrance.requests.items()},
                    "ready": self._counted(Metric.REPLICAS_READY, MINUTE, "Maximum"),
                    "missing": self._counted(Metric.REPLICAS_MISSING, MINUTE, "Minimum"),
                },
                period=MINUTE,
                label="percent of answers that are 5xx",
            ),
            f"of all answers, {ERRORS_PERCENT} % and more were 5xx in {of_them} of {periods} minutes, though"
            " replicas are ready. 502 and 504: a server broke off or took too long, or is unhealthy as all"
            " others are. 503: no target was registered. 500: the server's own, see the instance's console"
            " output.",
            threshold=ERRORS_PERCENT,
            periods=periods,
            of_them=of_them,
        )

    def _on_long_fallbacks(self) -> None:
        self._alarm(
            Alarm.FALLBACK_TOO_LONG,
            self._counted(Metric.LONGEST_FALLBACK_S, MINUTE, "Maximum"),
            f"an on-demand instance has stood in for Spot for more than {FALLBACK_S // 3600} h: the service"
            " serves, at the on-demand price. More accelerators, types or zones in the service file widen the"
            " choice.",
            threshold=FALLBACK_S,
            periods=FALLBACK_PERIODS,
            of_them=1,
            command=f"spotrelay scores {self._service.name}",
        )

    def _on_better_places(self) -> None:
        """No emergency: the service may run on, on demand or by luck, and nothing else rings for that."""
        name = self._service.name
        self._alarm(
            Alarm.BETTER_ELSEWHERE,
            self._counted(Metric.BETTER_ELSEWHERE, SURVEYS, "Sum"),
            f"in two surveys in a row EC2 scored all of its zones {LOW_SCORE} or less of 10 for Spot, and a"
            " zone that it doesn't use, or another region that its file allows, at least"
            f" {MOVE_SCORE_GAIN} more. The line better_elsewhere of the log says which. A subnet in that zone"
            f" (-c subnets) lets {name} go there; another region takes a deployment there.",
            periods=BETTER_PERIODS,
            of_them=1,
            command=f"spotrelay scores {name}",
        )

    def _on_stopped_rollouts(self) -> None:
        """A version that doesn't start, while the one before serves on: nothing else rings for that."""
        name = self._service.name
        self._alarm(
            Alarm.ROLLOUT_STOPPED,
            self._counted(Metric.ROLLOUT_STOPPED, MINUTE, "Sum"),
            "the deployed version was given up: two of its replicas never became ready, one stopped"
            " answering, or EC2 can't hold both versions at once. The version before serves on, and replaces"
            " what is lost. The log of the functions says why replicas fail, in the lines Fail. Deploy a"
            f" version that starts; `spotrelay rollback {name} --reset` tries this one again.",
            periods=TICK_PERIODS,
            of_them=1,
        )

    def _on_slow_answers(self, response_time: cloudwatch.IMetric) -> None:
        """Answers that a drain would cut."""
        drain_s = self._service.drain_s
        self._alarm(
            Alarm.SLOW_ANSWERS,
            response_time,
            f"answers take longer than drain_seconds ({drain_s}): those in flight are cut when EC2 takes an"
            " instance. Raise it in the service file, or limit the answers. This is the time until an"
            " answer's headers: a streamed answer that runs for longer isn't seen here.",
            threshold=drain_s,
            comparison=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            periods=SLOW_PERIODS,
        )

    def _counted(self, metric: Metric, period: Duration, statistic: str) -> cloudwatch.Metric:
        return ours(metric, self._service.name, period, statistic)

    def _name(self, alarm: Alarm, part: str = "") -> str:
        return f"{alarms_prefix(self._service.name)}{alarm}" + (f"/{part}" if part else "")

    def _described(self, alarm: Alarm, meaning: str, command: str = "") -> str:
        name = self._service.name
        return described(command or f"spotrelay status {name}", f"{name}: {meaning}", alarm)

    def _alarm(
        self,
        alarm: Alarm,
        metric: cloudwatch.IMetric,
        meaning: str,
        *,
        part: str = "",
        threshold: float = 1,
        comparison: cloudwatch.ComparisonOperator = (
            cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
        ),
        periods: int,
        of_them: int | None = None,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
        command: str = "",
    ) -> cloudwatch.Alarm:
        """An alarm that tells somebody; or a `part`, which a composite alarm looks at and which tells nobody.

        It rings if `of_them` of so many periods are beyond the threshold, by default all.
        """
        made = cloudwatch.Alarm(
            self,
            f"{alarm}{part}",
            alarm_name=self._name(alarm, part),
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            datapoints_to_alarm=of_them,
            treat_missing_data=missing,
            alarm_description=self._described(alarm, meaning, command),
        )
        if not part:
            self._announce(made)
        return made

    def _composite(
        self,
        alarm: Alarm,
        rule: cloudwatch.IAlarmRule,
        meaning: str,
        *,
        suppressor: cloudwatch.IAlarm | None = None,
        extension_s: float = 0,
    ) -> cloudwatch.CompositeAlarm:
        """It tells somebody, unless the `suppressor` rings, or did until `extension_s` ago."""
        made = cloudwatch.CompositeAlarm(
            self,
            alarm,
            composite_alarm_name=self._name(alarm),
            alarm_rule=rule,
            alarm_description=self._described(alarm, meaning),
            actions_suppressor=suppressor,
            actions_suppressor_wait_period=SUPPRESSED_WITHIN if suppressor else None,
            actions_suppressor_extension_period=Duration.seconds(extension_s) if suppressor else None,
        )
        self._announce(made)
        return made

    def _announce(self, alarm: cloudwatch.Alarm | cloudwatch.CompositeAlarm) -> None:
        """Tell the topic when it goes off, and when it is over."""
        alarm.add_alarm_action(self._tell)
        alarm.add_ok_action(self._tell)
        self.alarms.append(alarm)


def _rings(alarm: cloudwatch.IAlarm) -> cloudwatch.IAlarmRule:
    return cloudwatch.AlarmRule.from_alarm(alarm, cloudwatch.AlarmState.ALARM)


def _minutes(seconds: float) -> int:
    return -(-int(seconds) // 60)
