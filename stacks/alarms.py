"""What an operator must hear of, the control plane's part: `service_alarms` has each service's.

Each alarm's description begins with a command to run, says what it means, and names its section of the
runbook, docs/operations.md, which has its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotrelay.plane.core.names import (
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    METRICS_NO_SERVICE,
    Metric,
    alarms_prefix,
)
from stacks.functions import ControlFunction
from stacks.validation import acknowledge

MINUTE = Duration.minutes(1)

TOPIC_NAME = "spotrelay-alarms"
"""Fixed, so that a service's stack can tell the topic's ARN. An export of the control plane's stack would say
it, too, and then forbid to change the topic while any service is deployed."""

RUNBOOK = "docs/operations.md"

CERTIFICATE_EXPIRES = events.EventPattern(
    source=["aws.acm"], detail_type=["ACM Certificate Approaching Expiration"]
)
"""Daily of each certificate of the account and region, from 45 days before its end, of a public one that ACM
issued from 30. Source: https://docs.aws.amazon.com/acm/latest/userguide/supported-events.html"""


def described(command: str, meaning: str, id_: str) -> str:
    """An alarm's description: what to run, what it means, where the runbook is."""
    return f"Run `{command}`. {meaning} Runbook: {RUNBOOK}, {id_}."


def ours(metric: Metric, of: str, period: Duration, statistic: str) -> cloudwatch.Metric:
    """A metric of ours, of a service or of none."""
    return cloudwatch.Metric(
        namespace=METRICS_NAMESPACE,
        metric_name=metric.value,
        dimensions_map={METRICS_DIMENSION: of},
        period=period,
        statistic=statistic,
    )


def log_search(group: logs.ILogGroup, *words: str) -> str:
    """The command that shows an hour of a function's log, of all lines or those with one of the words."""
    pattern = " ".join(f"?{word}" for word in words)
    return f"aws logs tail {group.log_group_name} --since 1h" + (
        f" --filter-pattern '{pattern}'" if words else ""
    )


class Alarms(Construct):
    """The control plane's alarms, and the topic that all alarms go to."""

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

    def on_certificates(self, undelivered: sqs.IQueue) -> None:
        """Tell of each certificate that is about to expire, daily until it was renewed.

        By a rule and no alarm: nothing counts certificates, and what is over isn't told the next day.
        """
        name, days = (
            events.EventField.from_path(f"$.detail.{field}") for field in ("CommonName", "DaysToExpiry")
        )
        # In the form of Amazon Q Developer in chat applications, which shows no message that it doesn't know.
        said = {
            "version": "1.0",
            "source": "custom",
            "content": {
                "title": "A certificate expires",
                "description": f"The certificate for {name} expires in {days} days. Run `aws acm"
                " list-certificates`: renew it, unless no load balancer uses it."
                f" Runbook: {RUNBOOK}, Certificates.",
            },
        }
        rule = events.Rule(self, "CertificateExpires", event_pattern=CERTIFICATE_EXPIRES)
        # The target also lets EventBridge publish. It may have no condition: EventBridge tells SNS nothing of
        # the rule, and one on it would never hold. Source:
        # https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-use-resource-based.html#eb-sns-permissions
        rule.add_target(
            targets.SnsTopic(
                self.topic, message=events.RuleTargetInput.from_object(said), dead_letter_queue=undelivered
            )
        )

    def on_dead_letters(self, id_: str, queue: sqs.Queue, meaning: str) -> None:
        """Anything in a dead-letter queue.

        SQS measures a queue for six hours after the last call to it, and up to a quarter of an hour late when
        it is used again: the survey asks it for something every hour. Should that fail, what is missing means
        nothing: only a queue that is seen to be empty ends it.
        """
        metric = queue.metric_approximate_number_of_messages_visible(period=MINUTE, statistic="Maximum")
        command = (
            f"aws sqs receive-message --queue-url {queue.queue_url} --max-number-of-messages 10"
            " --attribute-names All --message-attribute-names All"
        )
        text = f"{meaning} Read the queue, mend the cause, then redrive or purge it."
        self._add(id_, metric, 1, command, text, missing=cloudwatch.TreatMissingData.IGNORE)

    def on_waiting(
        self, id_: str, queue: sqs.Queue, longest: Duration, control: ControlFunction, meaning: str
    ) -> None:
        """Messages that wait longer than `longest` for the function."""
        metric = queue.metric_approximate_age_of_oldest_message(period=MINUTE, statistic="Maximum")
        command = f"aws lambda list-event-source-mappings --function-name {control.function.function_name}"
        self._add(id_, metric, longest.to_seconds(), command, meaning)

    def on_failures(self, id_: str, control: ControlFunction, *, of_minutes: int) -> None:
        """A function that goes on failing as a whole. A bad message is the dead-letter queue's matter.

        What fails is done again by itself: it rings if there are failures in `of_minutes` of five.
        """
        self._add(
            id_,
            control.function.metric_errors(period=MINUTE, statistic="Sum"),
            1,
            log_search(control.log_group, "ERROR", "timeout"),
            f"{control.name} fails or times out again and again. It is tried again by itself; its log has the"
            " traceback, or of a time-out platform.report with the status timeout.",
            periods=5,
            of_them=of_minutes,
        )

    def on_throttles(self, id_: str, controls: Sequence[ControlFunction]) -> None:
        """Functions that Lambda doesn't let run. What it drops for a loop becomes a dead letter instead."""
        throttles: dict[str, cloudwatch.IMetric] = {
            control.name: control.function.metric_throttles(period=MINUTE, statistic="Sum")
            for control in controls
        }
        self._add(
            id_,
            cloudwatch.MathExpression(
                expression=" + ".join(throttles),
                using_metrics=throttles,
                period=MINUTE,
                label="invocations that Lambda refused",
            ),
            1,
            "aws lambda get-account-settings",
            f"{' or '.join(throttles)} was not let run: the account's concurrency is used up. Ask for more of"
            " Lambda's quota Concurrent executions (L-B99A9384): new accounts have 10.",
        )

    def on_metric(self, id_: str, metric: Metric, command: str, meaning: str, *, of_minutes: int = 1) -> None:
        """Anything counted of what should never happen.

        It ends once `of_minutes` have gone by without: two, where each minute's tick counts what lasts, and
        comes a second sooner or later.
        """
        counted = ours(metric, METRICS_NO_SERVICE, MINUTE, "Sum")
        self._add(id_, counted, 1, command, meaning, periods=of_minutes, of_them=1)

    def on_silence(self, id_: str, control: ControlFunction, meaning: str) -> None:
        """A function that should run every minute and hasn't for five: nobody else does its work.

        A function that doesn't run has no invocations, not zero of them. To call what is missing breaching
        would ring for every new alarm, since CloudWatch looks back to before it was made. To have too little
        data, instead, is how each alarm begins, and only one that had enough comes to lack it.
        """
        alarm = self._add(
            id_,
            control.function.metric_invocations(period=MINUTE, statistic="Sum"),
            1,
            log_search(control.log_group),
            f"INSUFFICIENT_DATA: {control.name} doesn't run any more. {meaning}",
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            periods=5,
            missing=cloudwatch.TreatMissingData.MISSING,
        )
        alarm.add_insufficient_data_action(actions.SnsAction(self.topic))

    def _add(
        self,
        id_: str,
        metric: cloudwatch.IMetric,
        threshold: float,
        command: str,
        meaning: str,
        *,
        periods: int = 1,
        of_them: int | None = None,
        comparison: cloudwatch.ComparisonOperator = (
            cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
        ),
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> cloudwatch.Alarm:
        """Rings when it goes off, and again when all is well."""
        alarm = cloudwatch.Alarm(
            self,
            id_,
            alarm_name=alarms_prefix() + id_,
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            datapoints_to_alarm=of_them,
            treat_missing_data=missing,
            alarm_description=described(command, meaning, id_),
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        alarm.add_ok_action(actions.SnsAction(self.topic))
        self.alarms.append(alarm)
        return alarm
