"""What reacts: rules and a schedule, the queues and functions behind them, their table, and the alarms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from spotrelay.plane.core import mending
from spotrelay.plane.core.names import (
    ALL_METRICS,
    CONTROL_PLANE_PARAMETER,
    DRILL_FUNCTION,
    METRICS_NO_SERVICE,
    SERVICES_PATH,
    TABLE_PARTITION_KEY,
    TABLE_SORT_KEY,
    TABLE_TTL,
    WIDGET_FUNCTION,
    Env,
    Metric,
    dashboard_name,
)
from stacks import drills, operators, permissions
from stacks.alarms import Alarms, log_search
from stacks.bundling import functions_code
from stacks.dashboard import dashboard
from stacks.functions import DRILL, ControlFunction, role_export
from stacks.permissions import Function
from stacks.queues import FunctionQueue, dead_letter_queue
from stacks.removal import SERVICES_GO_FIRST
from stacks.settings import OF_CONTROL_PLANE, AppSettings
from stacks.validation import acknowledge

EVENT_PATTERNS = {
    "InterruptionWarning": events.EventPattern(
        source=["aws.ec2"], detail_type=["EC2 Spot Instance Interruption Warning"]
    ),
    "RebalanceRecommendation": events.EventPattern(
        source=["aws.ec2"], detail_type=["EC2 Instance Rebalance Recommendation"]
    ),
    # Not `pending`: it says nothing that the launch's own answer didn't.
    "StateChange": events.EventPattern(
        source=["aws.ec2"],
        detail_type=["EC2 Instance State-change Notification"],
        detail={"state": ["running", "shutting-down", "terminated", "stopping", "stopped"]},
    ),
}

SERVICE_DEPLOYED = events.EventPattern(
    source=["aws.ssm"],
    detail_type=["Parameter Store Change"],
    detail={"name": [{"prefix": f"{SERVICES_PATH}/"}], "operation": ["Create", "Update", "Delete"]},
)
"""A service was deployed, changed or removed: its tick comes at once rather than within the minute."""

SURVEYED_AT_ONCE = events.EventPattern(
    source=["aws.ssm"],
    detail_type=["Parameter Store Change"],
    detail={"name": [{"prefix": f"{SERVICES_PATH}/"}], "operation": ["Create", "Update"]},
)
"""The same but for removals, of which there is nothing to ask."""

MAX_EVENT_AGE = Duration.minutes(2)
"""EventBridge gives up delivering then: an interruption is over, and the tick has seen the rest."""

SIGNAL_TIMEOUT = Duration.seconds(60)
"""As long as a tick's. To deregister takes milliseconds, but a launch may wait 45 s for EC2, and must not be
ended in the middle of it."""

SIGNAL_VISIBILITY = Duration.seconds(90)
"""What crashed comes back after this: a warning still has a second chance. AWS's rule, six time-outs, is
three times a warning. It is for functions that are throttled while they hold a batch: here such a message
might come twice, which is harmless."""

SIGNAL_BATCH = 10
"""The most that SQS hands over without waiting for more. A pool that dries up warns many at once. Lambda
begins with five batches, which is fifty warnings, and has more at work only while messages are left: nothing
else need bound them."""

SIGNAL_MEMORY_MIB = 1769
"""A whole processor: seldom called, it mostly starts cold, and spends that time on imports."""

TICK_TIMEOUT = Duration.seconds(60)
"""A tick looks at every replica of a service, and launches: seconds. A slow AWS may make it more."""

TICK_BATCH = 1
"""One service at a time: none waits for another's."""

TICK_CONCURRENCY = 5
"""Services at the same time; each service's own lease keeps its ticks apart. Every minute brings a tick of
each service, and a tick may wait half a minute for a replica that doesn't answer: unbounded, those of a fleet
would take the account's whole concurrency, also from signals, and meet EC2's request limits."""

LEAVE_VISIBILITY = TICK_TIMEOUT
"""The least that Lambda takes. A warned replica that didn't leave has no more than seconds left, and a tick
that finds it takes it out, too."""

TICK_MEMORY_MIB = 512
"""Called every minute, it stays warm; there is no hurry, and memory is what it is billed by."""

SURVEY_PERIOD = Duration.hours(1)
"""Spot prices move a few times a day and scores are no promise: docs/decisions has the reasons."""

SURVEY_TIMEOUT = Duration.minutes(5)
"""A service takes some twenty calls and seconds; a hundred services still fit."""

SURVEY_MEMORY_MIB = 512
"""A page of described instance types is a megabyte of XML."""

WIDGET_TIMEOUT = Duration.seconds(30)
"""Somebody looks on, and CloudWatch waits no longer."""

WIDGET_MEMORY_MIB = 512
"""Seldom called, it mostly starts cold; it reads a page of rows or two."""

LATE_SIGNAL = Duration.seconds(SIGNAL_VISIBILITY.to_seconds() + SIGNAL_TIMEOUT.to_seconds())
"""What a batch that failed once takes until it is done with. What fails again is told by other alarms, and
SQS stops counting its age at the third attempt."""

LATE_TICK = Duration.minutes(45)
"""No tick that is taken up gets older: it is announced for 15 minutes ahead at most, and if it fails it comes
four times more, after six minutes each. Older ones mean that ticks come faster than they are run."""


@dataclass(frozen=True)
class _Queues:
    signals: FunctionQueue
    ticks: FunctionQueue
    leaves: FunctionQueue
    dead_letters: sqs.Queue
    surveys_failed: sqs.Queue


@dataclass(frozen=True)
class _Functions:
    on_signal: ControlFunction
    reconcile: ControlFunction
    survey: ControlFunction
    widget: ControlFunction

    @property
    def logged(self) -> tuple[ControlFunction, ...]:
        """Those whose log tells what was decided."""
        return self.on_signal, self.reconcile, self.survey


class ControlPlaneStack(Stack):
    """Once per account and region, for all services."""

    def __init__(self, scope: Construct, id_: str, *, settings: AppSettings, **stack_options: Any) -> None:
        super().__init__(scope, id_, description="SpotRelay control plane", **stack_options)
        self.template_options.metadata = settings.kept(OF_CONTROL_PLANE)
        table = self._table()
        queues = self._queues()
        self._route_events(queues)
        drill_role = drills.drill_role(self, "InterruptionRole")
        code = functions_code()
        functions = self._functions(code, table, queues, settings)
        identity = self._identity(table, queues, functions)
        drill = drills.DrillFunction(self, "Drill", code=code, drill_role=drill_role)
        for function in (drill.function, *(control.function for control in functions.logged)):
            # They compare it with their own table, so it must be there before them. And where it is another
            # control plane's, the deployment ends here, before there is a second controller.
            function.node.add_dependency(identity)
        queues.signals.feed(functions.on_signal.function, batch_size=SIGNAL_BATCH)
        queues.ticks.feed(
            functions.reconcile.function, batch_size=TICK_BATCH, max_concurrency=TICK_CONCURRENCY
        )
        # Beside the ticks. A leave asks no replica and launches nothing: a few calls to AWS, and it is done.
        queues.leaves.feed(functions.reconcile.function, batch_size=TICK_BATCH)
        self._schedule_surveys(functions.survey.function, queues.dead_letters)
        alarms = self._alarms(queues, functions, settings)
        log_groups = [control.log_group for control in functions.logged]
        policies = operators.policies(
            self,
            table_arn=table.table_arn,
            log_groups=log_groups,
            drill_function_arn=drill.function.function_arn,
            widget_arn=functions.widget.function.function_arn,
            dead_letter_arn=queues.dead_letters.queue_arn,
        )
        board = dashboard(self, "Dashboard", alarms=alarms.alarms, logs=log_groups)
        self._outputs(
            functions,
            drill_role,
            {
                "TableName": table.table_name,
                "SignalQueueUrl": queues.signals.queue.queue_url,
                "LeaveQueueUrl": queues.leaves.queue.queue_url,
                "TickQueueUrl": queues.ticks.queue.queue_url,
                "DeadLetterQueueUrl": queues.dead_letters.queue_url,
                "OnSignalFunction": functions.on_signal.function.function_name,
                "ReconcileFunction": functions.reconcile.function.function_name,
                "SurveyFunction": functions.survey.function.function_name,
                "SurveyRole": functions.survey.role.role_name,
                "AlarmTopic": alarms.topic.topic_arn,
                "DashboardName": board.dashboard_name,
                "OperatorPolicy": policies.operator.managed_policy_arn,
                "DrillPolicy": policies.drill.managed_policy_arn,
                "DrillFunction": drill.function.function_name,
                "DrillRole": drill_role.role_arn,
            },
        )

    def _table(self) -> dynamodb.Table:
        return dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name=TABLE_PARTITION_KEY, type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name=TABLE_SORT_KEY, type=dynamodb.AttributeType.STRING),
            time_to_live_attribute=TABLE_TTL,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            # It knows which instances are ours, and the IDs given: losing the stack must not lose that. Only
            # a first deployment that fails takes its empty table away again.
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        )

    def _queues(self) -> _Queues:
        ticks = FunctionQueue(self, "Ticks", function_timeout=TICK_TIMEOUT)
        # One for all, since each alarm costs: every message in it says where it came from. It is the ticks'
        # own, so that what people said (an override, a removal) is still in it after an upgrade.
        dead_letters = ticks.dead_letters
        signals = FunctionQueue(
            self,
            "Signals",
            function_timeout=SIGNAL_TIMEOUT,
            visibility=SIGNAL_VISIBILITY,
            dead_letters=dead_letters,
        )
        leaves = FunctionQueue(
            self,
            "Leaves",
            function_timeout=TICK_TIMEOUT,
            visibility=LEAVE_VISIBILITY,
            dead_letters=dead_letters,
        )
        surveys_failed = dead_letter_queue(self, "SurveysFailed")
        acknowledge(surveys_failed, "AwsSolutions-SQS3", "It is itself a dead-letter queue: a function's.")
        return _Queues(signals, ticks, leaves, dead_letters, surveys_failed)

    def _functions(
        self, code: lambda_.Code, table: dynamodb.Table, queues: _Queues, settings: AppSettings
    ) -> _Functions:
        place = permissions.Place(
            partition=self.partition,
            region=self.region,
            account=self.account,
            table_arn=table.table_arn,
            tick_queue_arn=queues.ticks.queue.queue_arn,
            leave_queue_arn=queues.leaves.queue.queue_arn,
            dead_letter_queue_arn=queues.dead_letters.queue_arn,
            surveys_failed_arn=queues.surveys_failed.queue_arn,
            kms_key_arn=settings.kms_key_arn,
            template_conditions=settings.template_conditions,
        )
        environment: dict[str, str] = {
            Env.TABLE: table.table_name,
            Env.TICK_QUEUE_URL: queues.ticks.queue.queue_url,
            Env.LEAVE_QUEUE_URL: queues.leaves.queue.queue_url,
            Env.DEAD_LETTER_QUEUE_URL: queues.dead_letters.queue_url,
            Env.SERVICES_PATH: SERVICES_PATH,
            "POWERTOOLS_SERVICE_NAME": METRICS_NO_SERVICE,
            **({Env.METRICS: ALL_METRICS} if settings.all_metrics else {}),
        }
        on_signal = ControlFunction(
            self,
            "OnSignal",
            name=Function.ON_SIGNAL,
            code=code,
            memory_mib=SIGNAL_MEMORY_MIB,
            timeout=SIGNAL_TIMEOUT,
            environment=environment,
            place=place,
        )
        reconcile = ControlFunction(
            self,
            "Reconcile",
            name=Function.RECONCILE,
            code=code,
            memory_mib=TICK_MEMORY_MIB,
            timeout=TICK_TIMEOUT,
            environment=environment,
            place=place,
            # Each tick announces the next, two or three seconds apart while anything changes. What bounds
            # that: the table's claim lets one message in for each time, and at rest there is none.
            is_chained=True,
        )
        survey = ControlFunction(
            self,
            "Survey",
            name=Function.SURVEY,
            code=code,
            memory_mib=SURVEY_MEMORY_MIB,
            timeout=SURVEY_TIMEOUT,
            environment={n: value for n, value in environment.items() if n != Env.LEAVE_QUEUE_URL},
            place=place,
            dead_letters=queues.surveys_failed,
        )
        widget = ControlFunction(
            self,
            "Widget",
            name=Function.WIDGET,
            code=code,
            memory_mib=WIDGET_MEMORY_MIB,
            timeout=WIDGET_TIMEOUT,
            environment={Env.TABLE: table.table_name, Env.SERVICES_PATH: SERVICES_PATH},
            place=place,
            function_name=WIDGET_FUNCTION,
        )
        return _Functions(on_signal, reconcile, survey, widget)

    def _identity(self, table: dynamodb.Table, queues: _Queues, functions: _Functions) -> ssm.StringParameter:
        """Its name is fixed, so that CloudFormation refuses a second control plane for the same services."""
        return ssm.StringParameter(
            self,
            "Identity",
            parameter_name=CONTROL_PLANE_PARAMETER,
            description="SpotRelay's one control plane in this region",
            string_value=self.to_json_string(
                {
                    "table": table.table_name,
                    "tick_queue_url": queues.ticks.queue.queue_url,
                    "drill_function": DRILL_FUNCTION,
                    "dashboard": dashboard_name(self.region),
                    "log_groups": [control.log_group.log_group_name for control in functions.logged],
                }
            ),
        )

    def _alarms(self, queues: _Queues, functions: _Functions, settings: AppSettings) -> Alarms:
        on_signal, reconcile = functions.on_signal, functions.reconcile
        alarms = Alarms(self, "Alarms", email=settings.alarm_email)
        alarms.on_dead_letters(
            "DeadLetters",
            queues.dead_letters,
            "A message could not be handled, or EventBridge could not deliver an event. It says where it came"
            " from: DeadLetterQueueSourceArn, RULE_ARN, or source and why.",
        )
        alarms.on_certificates(queues.dead_letters)
        alarms.on_waiting(
            "LateSignals",
            queues.signals.queue,
            LATE_SIGNAL,
            on_signal,
            "Signals wait: interrupted replicas may stay in rotation. If on_signal fails or is throttled, its"
            " own alarms say so; else its event source mapping may be disabled.",
        )
        alarms.on_waiting(
            "LateTicks",
            queues.ticks.queue,
            LATE_TICK,
            reconcile,
            "Ticks wait: what went wrong is healed late. If reconcile fails or is throttled, its own alarms"
            " say so; else there are more services than it can look after every minute: raise"
            " TICK_CONCURRENCY in stacks/control_plane.py.",
        )
        # A message that failed comes back after SIGNAL_VISIBILITY: what fails again then isn't healed by it.
        alarms.on_failures("OnSignalErrors", on_signal, of_minutes=2)
        alarms.on_failures("ReconcileErrors", reconcile, of_minutes=3)
        alarms.on_throttles("Throttles", (on_signal, reconcile))
        alarms.on_silence(
            "ReconcileSilent",
            reconcile,
            "Lost replicas are not being replaced. Is its schedule's rule, or its event source mapping,"
            " disabled? Enable it again, or deploy the control plane again.",
        )
        # Not among a service's own: what is held back may be that its stack, and all alarms in it, are gone.
        alarms.on_metric(
            "HeldBack",
            Metric.HELD_BACK,
            log_search(reconcile.log_group, "held_back"),
            "The controller holds back what it would take away, because what it saw isn't credible. The log"
            " names it: held_back, with what, why and the command that lets it go on:"
            " spotrelay override NAME.",
        )
        alarms.on_metric(
            "ActionRequired",
            Metric.ACTION_REQUIRED,
            log_search(reconcile.log_group, *mending.WORDS),
            "Something in the account is to be mended by a person: what serves goes on serving. The log names"
            " it, its service and what to do: a call or a survey's question that AWS refuses, a quota that is"
            " too small, an image that is gone, surveys that don't come, a warned replica that left late.",
            of_minutes=2,
        )
        return alarms

    def _outputs(self, functions: _Functions, drill_role: iam.Role, values: dict[str, str]) -> None:
        for name, value in values.items():
            CfnOutput(self, name, value=value)
        exported = {"OnSignalRole": functions.on_signal, "ReconcileRole": functions.reconcile}
        for name, control in exported.items():
            # Always exported, used or not: an export in use can't be taken away.
            CfnOutput(self, name, value=control.role.role_name, export_name=role_export(control.name))
        CfnOutput(self, "DrillRoleName", value=drill_role.role_name, export_name=role_export(DRILL))
        # A fixed value: CloudFormation refuses to change an export that is in use, too.
        CfnOutput(
            self,
            "ServicesGoFirst",
            value=CONTROL_PLANE_PARAMETER,
            export_name=SERVICES_GO_FIRST,
            description="In use by every service's stack, so that this one can't be deleted before them",
        )

    def _route_events(self, queues: _Queues) -> None:
        """Lead EC2's events and the tick to their queues, and what can't be delivered to another."""
        signals, ticks, undelivered = queues.signals.queue, queues.ticks.queue, queues.dead_letters
        for id_, pattern in EVENT_PATTERNS.items():
            rule = events.Rule(self, id_, event_pattern=pattern)
            rule.add_target(
                targets.SqsQueue(signals, dead_letter_queue=undelivered, max_event_age=MAX_EVENT_AGE)
            )
        deployed = events.Rule(self, "ServiceDeployed", event_pattern=SERVICE_DEPLOYED)
        deployed.add_target(
            targets.SqsQueue(ticks, dead_letter_queue=undelivered, max_event_age=MAX_EVENT_AGE)
        )
        schedule = events.Rule(self, "EveryMinute", schedule=events.Schedule.rate(Duration.minutes(1)))
        schedule.add_target(
            targets.SqsQueue(ticks, dead_letter_queue=undelivered, max_event_age=MAX_EVENT_AGE)
        )

    def _schedule_surveys(self, survey: lambda_.Function, undelivered: sqs.Queue) -> None:
        """Every hour, and at once for a service that was deployed. No queue: Lambda has one of its own."""
        for rule in (
            events.Rule(self, "SurveyHourly", schedule=events.Schedule.rate(SURVEY_PERIOD)),
            events.Rule(self, "SurveyDeployed", event_pattern=SURVEYED_AT_ONCE),
        ):
            rule.add_target(
                targets.LambdaFunction(survey, dead_letter_queue=undelivered, max_event_age=MAX_EVENT_AGE)
            )
