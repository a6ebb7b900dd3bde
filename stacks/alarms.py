"""What an operator must hear of. Each alarm says in its description what it means and what to do."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotrelay.names import METRICS_DIMENSION, METRICS_NAMESPACE, METRICS_NO_SERVICE, Metric
from spotrelay.service import Service
from stacks.functions import ControlFunction
from stacks.validation import acknowledge

MINUTE = Duration.minutes(1)

TOPIC_NAME = "spotrelay-alarms"
"""Fixed, so that a service's stack can tell the topic's ARN. An export of the control plane's stack would say
it, too, and then forbid to change the topic while any service is deployed."""

SLOW_PERIOD, SLOW_PERIODS = Duration.minutes(5), 3
"""A quarter of an hour: one long answer is no habit, and the threshold is no emergency."""


class Alarms(Construct):
    """Alarms and the topic they go to."""

    def __init__(self, scope: Construct, id_: str, *, email: str | None) -> None:
        super().__init__(scope, id_)
        self.alarms: list[cloudwatch.Alarm] = []
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

    def on_failures(self, id_: str, control: ControlFunction) -> None:
        """A function that fails as a whole, or isn't let run. A single bad message is the queue's matter."""
        function = control.function
        errors = function.metric_errors(period=MINUTE, statistic="Sum")
        self._add(f"{id_}Errors", errors, 1, f"{control.name} failed or timed out. See its log group.")
        throttles = function.metric_throttles(period=MINUTE, statistic="Sum")
        self._add(
            f"{id_}Throttles",
            throttles,
            1,
            f"{control.name} was not let run: the account's concurrency is used up. Raise its quota.",
        )

    def on_metric(self, id_: str, metric: Metric, meaning: str, *, period: Duration = MINUTE) -> None:
        """Anything counted of what should never happen; `period` is how often it is looked for.

        What is looked for once an hour rings until an hour has gone by without it.
        """
        is_rare = period.to_seconds() > MINUTE.to_seconds()
        counted = cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=metric.value,
            dimensions_map={METRICS_DIMENSION: METRICS_NO_SERVICE},
            period=period,
            statistic="Sum",
        )
        # Two of its periods, or the alarm would go off and on again within each.
        self._add(id_, counted, 1, meaning, periods=2 if is_rare else 1, of_them=1)

    def on_silence(
        self, id_: str, control: ControlFunction, meaning: str, *, period: Duration = MINUTE, periods: int = 5
    ) -> None:
        """A function that should run in every period and hasn't in so many: nobody else does its work."""
        metric = control.function.metric_invocations(period=period, statistic="Sum")
        self._add(
            id_,
            metric,
            1,
            f"{control.name} hasn't run: {meaning}",
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            periods=periods,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )

    def _add(
        self,
        id_: str,
        metric: cloudwatch.IMetric,
        threshold: float,
        meaning: str,
        *,
        comparison: cloudwatch.ComparisonOperator = (
            cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
        ),
        periods: int = 1,
        of_them: int | None = None,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        alarm = cloudwatch.Alarm(
            self,
            id_,
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            datapoints_to_alarm=of_them,
            treat_missing_data=missing,
            alarm_description=meaning,
        )
        _notify(alarm, self.topic)
        self.alarms.append(alarm)


def on_slow_answers(
    scope: Construct, id_: str, service: Service, balancer: elbv2.ApplicationLoadBalancer
) -> None:
    """Answers that a drain would cut, in a service's stack: only it knows its load balancer."""
    stack = Stack.of(scope)
    topic_arn = stack.format_arn(service="sns", resource=TOPIC_NAME)
    alarm = cloudwatch.Alarm(
        scope,
        id_,
        metric=balancer.metrics.target_response_time(period=SLOW_PERIOD, statistic="p99"),
        threshold=service.drain_s,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
        evaluation_periods=SLOW_PERIODS,
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        alarm_description=(
            f"{service.name}: answers take longer than drain_seconds ({service.drain_s}): those in flight are"
            " cut when EC2 takes an instance. Raise it in the service file, or limit the answers. This is the"
            " time until an answer's headers: a streamed answer that runs for longer isn't seen here."
        ),
    )
    _notify(alarm, sns.Topic.from_topic_arn(scope, "AlarmTopic", topic_arn))


def _notify(alarm: cloudwatch.Alarm, topic: sns.ITopic) -> None:
    """Say it when the alarm goes off, and when all is well again."""
    alarm.add_alarm_action(actions.SnsAction(topic))
    alarm.add_ok_action(actions.SnsAction(topic))
