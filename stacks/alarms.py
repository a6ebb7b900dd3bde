"""What an operator must hear of. Each alarm says in its description what it means and what to do."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotrelay.core.names import METRICS_DIMENSION, METRICS_NAMESPACE, METRICS_NO_SERVICE, Metric
from spotrelay.core.spec import OnUpdate
from spotrelay.service import Service
from stacks.dashboard import BLOCKED_TITLE
from stacks.functions import ControlFunction
from stacks.validation import acknowledge

MINUTE = Duration.minutes(1)

TOPIC_NAME = "spotrelay-alarms"
"""Fixed, so that a service's stack can tell the topic's ARN. An export of the control plane's stack would say
it, too, and then forbid to change the topic while any service is deployed."""

SLOW_PERIODS = 3
"""A quarter of an hour, by `entrance.RESPONSE_PERIOD`: one long answer is no habit, and the threshold is no
emergency."""

BLOCKED_PERIODS = 20
"""Minutes after the last refusal until it counts as mended. EC2 is asked again after 15 minutes at most: that
is a quota's longest cooldown."""

UNLAUNCHED_PERIODS = 2
"""Minutes beyond those that the launches take, `max_launches_per_minute` at a time: a request takes seconds,
and a fallback is asked for a second after Spot refuses. Three in all, so that it rings within five."""

STOPPED_PERIODS = 3
"""It is counted with every tick, so at least once a minute; one may be lost."""

STARTED_WITHIN_S = 600
"""Beyond the time that a start may take: for the launch, the first health checks, and a second attempt's."""

MISSING_PERIOD = Duration.minutes(5)

LONGEST_S = 86_400
"""CloudWatch lets an alarm look back one day."""

WHERE_WORDS = (
    f"EC2's own words and the remedy are on the control plane's dashboard, under '{BLOCKED_TITLE}', and in"
    " the log of its functions, in the lines launch_blocked."
)


class _AlarmSet(Construct):
    """Alarms of one kind, and the topic that each of them goes to."""

    topic: sns.ITopic
    counted_of: str
    """Whose metrics: a service's name, or that of all in common."""
    about = ""
    """What each description begins with."""
    without_data = cloudwatch.TreatMissingData.NOT_BREACHING
    """What an alarm takes it for when nothing was counted."""

    def __init__(self, scope: Construct, id_: str) -> None:
        super().__init__(scope, id_)
        self.alarms: list[cloudwatch.Alarm] = []

    def _counted(self, metric: Metric, period: Duration, statistic: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=metric.value,
            dimensions_map={METRICS_DIMENSION: self.counted_of},
            period=period,
            statistic=statistic,
        )

    def _add(
        self,
        id_: str,
        metric: cloudwatch.IMetric,
        threshold: float,
        meaning: str,
        *,
        periods: int = 1,
        of_them: int | None = None,
        comparison: cloudwatch.ComparisonOperator = (
            cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
        ),
        missing: cloudwatch.TreatMissingData | None = None,
    ) -> cloudwatch.Alarm:
        """Rings when it goes off, and again when all is well."""
        alarm = cloudwatch.Alarm(
            self,
            id_,
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            datapoints_to_alarm=of_them,
            treat_missing_data=missing or self.without_data,
            alarm_description=self.about + meaning,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        alarm.add_ok_action(actions.SnsAction(self.topic))
        self.alarms.append(alarm)
        return alarm


class Alarms(_AlarmSet):
    """The control plane's alarms, and the topic that all alarms go to."""

    counted_of = METRICS_NO_SERVICE

    def __init__(self, scope: Construct, id_: str, *, email: str | None) -> None:
        super().__init__(scope, id_)
        self.topic = sns.Topic(
            self, "Topic", topic_name=TOPIC_NAME, display_name="SpotRelay", enforce_ssl=True
        )
        # A topic with a policy has lost the default one, which let the account's alarms publish. What
        # enforce_ssl writes only denies.
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[self.topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            )
        )
        if email:
            self.topic.add_subscription(subscriptions.EmailSubscription(email))
        acknowledge(
            self.topic,
            "AwsSolutions-SNS2",
            "CloudWatch can't publish to a topic under the AWS-managed key, and alarm texts hold nothing"
            " confidential that would be worth a key of its own.",
        )

    def on_dead_letters(self, id_: str, queue: sqs.Queue, meaning: str) -> None:
        """Anything in a dead-letter queue."""
        metric = queue.metric_approximate_number_of_messages_visible(period=MINUTE, statistic="Maximum")
        self._add(id_, metric, 1, f"{meaning} Read the queue, mend the cause, then redrive or purge it.")

    def on_waiting(self, id_: str, queue: sqs.Queue, longest: Duration, meaning: str) -> None:
        """Messages that wait longer than `longest` for the function."""
        metric = queue.metric_approximate_age_of_oldest_message(period=MINUTE, statistic="Maximum")
        self._add(id_, metric, longest.to_seconds(), meaning)

    def on_failures(self, id_: str, control: ControlFunction, *, is_repeated: bool) -> None:
        """A function that fails as a whole, or isn't let run. A single bad message is the queue's matter.

        What `is_repeated` within minutes anyway may fail once: it rings if it does so for the third time.
        """
        function = control.function
        errors = function.metric_errors(period=MINUTE, statistic="Sum")
        self._add(
            f"{id_}Errors",
            errors,
            1,
            f"{control.name} fails or times out. It is tried again by itself; its log group, linked from the"
            " function's page in the console, has the traceback.",
            periods=5 if is_repeated else 1,
            of_them=3 if is_repeated else 1,
        )
        throttles = function.metric_throttles(period=MINUTE, statistic="Sum")
        self._add(
            f"{id_}Throttles",
            throttles,
            1,
            f"{control.name} was not let run: the account's concurrency is used up. Ask for more of Lambda's"
            " quota Concurrent executions (L-B99A9384): new accounts have 10.",
        )

    def on_metric(self, id_: str, metric: Metric, meaning: str, *, period: Duration = MINUTE) -> None:
        """Anything counted of what should never happen; `period` is how often it is looked for.

        What is looked for once an hour rings until an hour has gone by without it.
        """
        is_rare = period.to_seconds() > MINUTE.to_seconds()
        counted = self._counted(metric, period, "Sum")
        # Two of its periods, or the alarm would go off and on again within each.
        self._add(id_, counted, 1, meaning, periods=2 if is_rare else 1, of_them=1)

    def on_silence(
        self, id_: str, control: ControlFunction, meaning: str, *, period: Duration = MINUTE, periods: int = 5
    ) -> None:
        """A function that should run in every period and hasn't in so many: nobody else does its work.

        A function that doesn't run has no invocations, not zero of them. To call what is missing breaching
        would ring for every new alarm, since CloudWatch looks back to before it was made. To have too little
        data, instead, is how each alarm begins, and only one that had enough comes to lack it.
        """
        metric = control.function.metric_invocations(period=period, statistic="Sum")
        alarm = self._add(
            id_,
            metric,
            1,
            f"INSUFFICIENT_DATA: {control.name} doesn't run any more. {meaning}",
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            periods=periods,
            missing=cloudwatch.TreatMissingData.MISSING,
        )
        alarm.add_insufficient_data_action(actions.SnsAction(self.topic))


class ServiceAlarms(_AlarmSet):
    """The alarms in a service's own stack: they name the service, and are set by what its file says."""

    # No tick, no news: an alarm that rings must not end because nobody counts any more.
    without_data = cloudwatch.TreatMissingData.IGNORE

    def __init__(
        self, scope: Construct, id_: str, *, service: Service, response_time: cloudwatch.IMetric | None
    ) -> None:
        """`response_time` is how long answers take; None: nobody counts that."""
        super().__init__(scope, id_)
        self._service = service
        # What is missing is counted of an operator's number while one is asked for.
        number = f"{service.replicas}" if service.scaling is None else "as many as the load asks for"
        self._desired = f"{number}, unless `spotrelay scale {service.name}` shows another number"
        self.counted_of = service.name
        self.about = f"{service.name}: "
        topic_arn = Stack.of(self).format_arn(service="sns", resource=TOPIC_NAME)
        self.topic = sns.Topic.from_topic_arn(self, "Topic", topic_arn)
        self._on_blocked_launches()
        self._on_missing_instances()
        self._on_missing_replicas()
        if response_time is not None:
            self._on_slow_answers(response_time)
        if service.on_update is not OnUpdate.KEEP:
            self._on_stopped_rollouts()

    def _on_blocked_launches(self) -> None:
        """What no retry mends, at once, and even if something else serves meanwhile."""
        self._add(
            "LaunchesBlocked",
            self._counted(Metric.LAUNCHES_BLOCKED, MINUTE, "Sum"),
            1,
            "EC2 refuses launches, and will until somebody mends the cause: a quota, a permission, a key or"
            f" the request itself. {WHERE_WORDS} Launches are tried again by themselves, so once the cause"
            " is mended nothing else is to be done.",
            periods=BLOCKED_PERIODS,
            of_them=1,
            missing=cloudwatch.TreatMissingData.NOT_BREACHING,
        )

    def _on_missing_instances(self) -> None:
        """A launch takes seconds, so what has no instance after minutes has none for a reason."""
        service = self._service
        launching = -(-service.most_replicas // service.max_launches_per_minute)
        self._add(
            "NoInstance",
            self._counted(Metric.REPLICAS_UNLAUNCHED, MINUTE, "Minimum"),
            1,
            f"not all replicas that are desired ({self._desired}) have an instance, and there is no on-demand"
            f" fallback either. {WHERE_WORDS} If it shows none, EC2 lacks capacity: the log of the functions"
            " names the pools that were asked, in the lines launch; more accelerators, types or zones in the"
            " service file widen the choice. If replicas never became ready, CrashLooping says so.",
            periods=UNLAUNCHED_PERIODS + max(launching, 1),
        )

    def _on_missing_replicas(self) -> None:
        """What has an instance and doesn't become ready in the time that its file gives it."""
        service = self._service
        quiet_s = min(service.initial_delay_s + STARTED_WITHIN_S, LONGEST_S)
        period_s = int(MISSING_PERIOD.to_seconds())
        self._add(
            "NotReady",
            self._counted(Metric.REPLICAS_MISSING, MISSING_PERIOD, "Minimum"),
            1,
            f"fewer replicas than desired ({self._desired}) have been ready, for longer than one takes to"
            f" start (initial_delay_seconds: {service.initial_delay_s:.0f}). If they have instances, see what"
            " those do: EC2's console has their system log, and the log of the functions says why replicas"
            " fail."
            f" If they have none: {WHERE_WORDS}",
            periods=-(-int(quiet_s) // period_s),
        )

    def _on_stopped_rollouts(self) -> None:
        """A version that doesn't start, while the one before serves on: nothing else rings for that."""
        name = self._service.name
        self._add(
            "RolloutStopped",
            self._counted(Metric.ROLLOUT_STOPPED, MINUTE, "Sum"),
            1,
            "the deployed version was given up: two of its replicas never became ready, one stopped"
            " answering, or EC2 can't hold both versions at once. The version before serves on, and replaces"
            " what is lost. The log of the functions says why replicas fail, in the lines Fail. Deploy a"
            f" version that starts; `spotrelay rollback {name} --reset` tries this one again.",
            periods=STOPPED_PERIODS,
            of_them=1,
            missing=cloudwatch.TreatMissingData.NOT_BREACHING,
        )

    def _on_slow_answers(self, response_time: cloudwatch.IMetric) -> None:
        """Answers that a drain would cut."""
        drain_s = self._service.drain_s
        self._add(
            "SlowAnswers",
            response_time,
            drain_s,
            f"answers take longer than drain_seconds ({drain_s}): those in flight are cut when EC2 takes an"
            " instance. Raise it in the service file, or limit the answers. This is the time until an"
            " answer's headers: a streamed answer that runs for longer isn't seen here.",
            comparison=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            periods=SLOW_PERIODS,
            missing=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
