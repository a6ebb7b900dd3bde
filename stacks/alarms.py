"""What an operator must hear of. Each alarm says in its description what it means and what to do."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotrelay.names import METRICS_DIMENSION, METRICS_NAMESPACE, METRICS_NO_SERVICE, Metric
from stacks.functions import ControlFunction
from stacks.validation import acknowledge

MINUTE = Duration.minutes(1)


class Alarms(Construct):
    """Alarms and the topic they go to."""

    def __init__(self, scope: Construct, id_: str, *, email: str | None) -> None:
        super().__init__(scope, id_)
        self.alarms: list[cloudwatch.Alarm] = []
        self.topic = sns.Topic(self, "Topic", display_name="SpotRelay", enforce_ssl=True)
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

    def on_metric(self, id_: str, metric: Metric, meaning: str) -> None:
        """Anything counted of what should never happen."""
        counted = cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=metric.value,
            dimensions_map={METRICS_DIMENSION: METRICS_NO_SERVICE},
            period=MINUTE,
            statistic="Sum",
        )
        self._add(id_, counted, 1, meaning)

    def on_silence(self, id_: str, control: ControlFunction) -> None:
        """A function that should run every minute and doesn't: it heals all else, and nothing heals it."""
        metric = control.function.metric_invocations(period=MINUTE, statistic="Sum")
        self._add(
            id_,
            metric,
            1,
            f"{control.name} hasn't run for five minutes: lost replicas are not being replaced."
            " Is its schedule's rule, or its event source mapping, disabled?",
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            periods=5,
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
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        alarm = cloudwatch.Alarm(
            self,
            id_,
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            treat_missing_data=missing,
            alarm_description=meaning,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        alarm.add_ok_action(actions.SnsAction(self.topic))
        self.alarms.append(alarm)
