"""The names that the stacks and the running code must agree on. No imports but the standard library."""

from enum import StrEnum
from hashlib import sha256

MAX_NAME = 24
"""Names of load balancers and target groups end at 32 characters; ours take eight of them."""

SERVICE_NAME = rf"[a-z](?:[a-z0-9-]{{0,{MAX_NAME - 2}}}[a-z0-9])?"
"""A service's name: lower-case letters, digits and hyphens, a letter first and no hyphen last."""

RESERVED_NAMES = frozenset({"services", "control-plane"})
"""No services: a service's secrets lie at `/spotrelay/<service>/`, and the documents of all of them, and what
the control plane is, beside those."""

SERVICES_PATH = "/spotrelay/services"
"""Parameter Store path under which every service has one parameter: its runtime document."""

TAG_SERVICE = "spotrelay:service"
"""Tag with the service's name: on all that is ours; IAM conditions rest on it."""

TAG_LAUNCH = "spotrelay:launch"
"""Tag with the launch intent's ID, by which an instance that nobody recorded is recognised."""

TAG_HIGHEST_ID = "spotrelay:highest-id"
"""Tag with the highest replica ID given when the instance was launched: what a table that was lost, or
restored from a backup, can't say any more."""

TAG_PEERS = "spotrelay:peers"
"""Tag of an instance that may fetch its models from others, which it names: see `placement.peers`."""

TAG_ADOPTED = "spotrelay:adopted"
"""Tag of what an operator handed over that SpotRelay didn't launch: it may be terminated like the rest."""

TAG_LAUNCH_TEMPLATE = "aws:ec2launchtemplate:id"
"""EC2's own tag with the launch template that the instance came from. Nobody can set a tag named `aws:`."""

TAG_LAUNCH_TEMPLATE_VERSION = "aws:ec2launchtemplate:version"
"""EC2's own tag with that template's version: a service's version."""

CONTROL_PLANE_STACK = "SpotRelay-ControlPlane"
NETWORK_STACK = "SpotRelay-Network"
SERVICE_STACK = "SpotRelay-Service-"
"""Names of the CloudFormation stacks; a service's name follows the last one."""

SETTINGS_METADATA = "SpotRelaySettings"
"""What a stack's template says, in its Metadata, about the settings that it was made with, for the next
deployment: name → value, as the context has it."""

IMAGE_RESOURCE = "Custom::SpotRelayImage"
VERSION_RESOURCE = "Custom::SpotRelayVersion"
"""What a service's stack asks of what a deployment keeps: see `stacks.kept`."""

CONTROL_PLANE_PARAMETER = "/spotrelay/control-plane"
"""Parameter with what the region's one control plane is: its table (whoever has another one keeps off), and
the tick queue, which the operator's commands write to."""

INSTANCE_ROLE_PATH = "/spotrelay/"
"""IAM path of the instances' roles: the functions may pass roles under this path and no others."""

PACK_ROLE_PATH = "/spotrelay-pack/"
"""IAM path of the roles that may write packs. It isn't below `INSTANCE_ROLE_PATH`: no function may pass one,
and what has one is launched by an operator's command alone."""

PACKS_OUTPUT = "Packs"
"""Output of a service's stack: where its packs are, as s3://bucket/prefix."""

PACK_PROFILE_OUTPUT = "PackProfile"
"""Output of a service's stack: ARN of the instance profile with which a pack is made."""

TAG_PACK = "spotrelay:pack"
"""Tag of an instance that makes a pack: the service's name. It has no `TAG_SERVICE`, so that the controller
neither sees nor ends it; it ends itself."""

TAG_BAKE = "spotrelay:bake"
"""The same of an instance from which an image is made, and of that image and its snapshots."""

TAG_BAKED_VERSION = "spotrelay:baked-version"
"""Tag of such an image: the version of the service whose set-up it has."""

TAG_BAKED_FROM = "spotrelay:baked-from"
"""Tag of such an image: the image that it was made on."""

EVENT_SOURCE = "spotrelay"
"""Source of our own events on EventBridge's default bus. AWS keeps `aws.` to itself, and no rule of ours
matches any other source: what we say can't wake us."""

METRICS_NAMESPACE = "SpotRelay"
METRICS_DIMENSION = "service"
"""Dimension of every metric, and the only one: the service's name, or `METRICS_NO_SERVICE`."""

METRICS_NO_SERVICE = "SpotRelay"
"""Value of the dimension for what belongs to no one service. Those names are lower case: no collision."""

COUNTED = "counted"
"""Message of the log line with all that an invocation counted of a service: the dashboard draws these."""

TOLD = "alarm_told"
"""Message of the log line with what an alarm is told."""

ALL_METRICS = "all"
"""Value of `Env.METRICS` with which everything that is counted is a metric of CloudWatch's, too."""


def instances_namespace(service: str) -> str:
    """Namespace of what a service's instances report: one for each, so that none can speak for another."""
    return f"{METRICS_NAMESPACE}/{service}"


def image_parameter(parameter: str) -> str:
    """The stack's parameter that says which image to have instead of the one kept for an SSM parameter."""
    return f"Image{sha256(parameter.encode()).hexdigest()[:8]}"


TABLE_PARTITION_KEY = "PK"
TABLE_SORT_KEY = "SK"
TABLE_TTL = "TTL"
"""Attribute with the epoch second after which DynamoDB may delete the row."""


class Partition(StrEnum):
    """How the table's partition keys begin: the functions' roles are limited to some of them by that.

    `spotrelay.plane.aws.items` says what is in each.
    """

    SERVICE = "SERVICE#"
    HISTORY = "HISTORY#"
    INSTANCE = "INSTANCE#"
    COOLDOWNS = "COOLDOWNS#"
    SURVEY = "SURVEY#"
    DAYS = "DAYS#"
    SERVICES = "SERVICES"
    """The whole key: the list of services."""


class Env(StrEnum):
    """Environment variables of the functions."""

    TABLE = "SPOTRELAY_TABLE"
    """Name of the table."""
    TICK_QUEUE_URL = "SPOTRELAY_TICK_QUEUE_URL"
    LEAVE_QUEUE_URL = "SPOTRELAY_LEAVE_QUEUE_URL"
    """Queue to which a function sends the next tick while something is in transition."""
    DEAD_LETTER_QUEUE_URL = "SPOTRELAY_DEAD_LETTER_QUEUE_URL"
    """Queue for messages that no retry would mend."""
    SERVICES_PATH = "SPOTRELAY_SERVICES_PATH"
    """Parameter Store path of the runtime documents."""
    METRICS = "SPOTRELAY_METRICS"
    """`ALL_METRICS`, or nothing: CloudWatch gets those that alarms look at."""
    DRILL_ROLE = "SPOTRELAY_DRILL_ROLE"
    """ARN of the role that FIS interrupts replicas with."""


class Unit(StrEnum):
    """What a metric is measured in: CloudWatch's own names. It has none for money, nor for points."""

    COUNT = "Count"
    MILLISECONDS = "Milliseconds"
    SECONDS = "Seconds"
    NONE = "None"


class Metric(StrEnum):
    """What is counted, of a service or of none. What each is measured in says `unit`.

    All are fields of the log line `COUNTED`. Some are metrics in `METRICS_NAMESPACE`, too, with the dimension
    `METRICS_DIMENSION` and no other: see `is_alarmed`.
    """

    SIGNALS_RECEIVED = "SignalsReceived"
    SIGNALS_IGNORED = "SignalsIgnored"
    """Events of a kind we don't know."""
    MESSAGES_MALFORMED = "MessagesMalformed"
    """Signals that lack what they must carry; they are put into the dead-letter queue at once."""
    TICKS_MALFORMED = "TicksMalformed"
    """The same of ticks."""
    FOREIGN_INSTANCES = "ForeignInstances"
    """Signals about instances that aren't ours."""
    INTERRUPTION_WARNINGS = "InterruptionWarnings"
    """Warnings about replicas of ours, duplicates not counted."""
    DEREGISTERED = "Deregistered"
    REPLICAS_LAUNCHED = "ReplicasLaunched"
    LAUNCH_REFUSALS = "LaunchRefusals"
    """Pools that refused a launch."""
    LAUNCH_ERRORS = "LaunchErrors"
    """Launch requests that EC2 didn't answer, or throttled; the tick takes them up."""
    LAUNCHES_BLOCKED = "LaunchesBlocked"
    """Launch requests, at least a part of which EC2 refuses until a person mends the cause: a quota, a
    permission, the request itself."""
    CONFLICTS = "Conflicts"
    """Decisions that another decider was faster with; normal in small numbers."""
    REPLICAS_FAILED = "ReplicasFailed"
    """Replicas that never became ready."""
    CRASH_LOOPING = "CrashLooping"
    """Services whose present version never became ready so often that launches have stopped."""
    ROLLOUT_STOPPED = "RolloutStopped"
    """A service whose deployed version was given up, while an earlier one serves on."""
    LAUNCHES_HELD = "LaunchesHeld"
    """Replicas that `max_launches_per_minute` made wait."""
    HELD_BACK = "HeldBack"
    """What the controller would have taken away and didn't, because what it saw isn't credible."""
    CALLS_DENIED = "CallsDenied"
    """Calls that AWS refuses whenever they are repeated: a permission, a protection, a bad request."""
    ACTION_REQUIRED = "ActionRequired"
    """What a person must mend in the account, see `core.mending`: counted for as long as it is found, by each
    minute's tick, or with the call that AWS refuses. Nothing while all is well, when it costs nothing."""
    ORPHANS_ADOPTED = "OrphansAdopted"
    ORPHANS_TERMINATED = "OrphansTerminated"
    REPLICAS_READY = "ReplicasReady"
    REPLICAS_MISSING = "ReplicasMissing"
    """Those desired that aren't ready, fallbacks taken into account."""
    REPLICAS_UNLAUNCHED = "ReplicasUnlaunched"
    """Those desired for which there isn't even an instance, nor one of a fallback."""
    ONGOING_REQUESTS = "OngoingRequests"
    """In progress or waiting at the replicas that told, once a minute; only of services that follow them."""
    ONGOING_UNKNOWN = "OngoingUnknown"
    """Replicas that serve and didn't tell how many requests they have, once a minute."""
    STANDBYS = "Standbys"
    """Those that can be resumed; only of services that may have any: a metric costs 0.30 USD a month."""
    ELIGIBLE_POOLS = "EligiblePools"
    """Capacity pools that EC2 has for the service."""
    BEST_PLACEMENT_SCORE = "BestPlacementScore"
    """Of the service's best zone: 1, Spot hardly to be had, to 10."""
    ALL_ZONES_SCORE_LOW = "AllZonesScoreLow"
    """Services without a zone in which Spot is likely to be had."""
    BETTER_ELSEWHERE = "BetterElsewhere"
    """A service whose best zone has scored low in two surveys in a row, while a zone that it doesn't use, or
    another region that its file allows, scores clearly better. Counted only when so, once a survey."""
    SURVEY_REFUSED = "SurveyRefused"
    """Questions of surveys that AWS refuses to answer: a limit, or a missing permission."""
    SURVEY_UNANSWERED = "SurveyUnanswered"
    """Questions of surveys that AWS failed to answer; the next survey asks again."""
    QUOTAS_SHORT = "QuotasShort"
    """Quotas that are too small for a service's replicas, as surveys find them."""
    IMAGES_GONE = "ImagesGone"
    """Images of services' versions that nothing can be launched from any more, as surveys find them."""
    WARNING_TO_DEREGISTERED_MS = "WarningToDeregisteredMs"
    WARNING_TO_LAUNCHED_MS = "WarningToLaunchedMs"
    WARNING_TO_READY_MS = "WarningToReadyMs"
    """From the warning of a replica until the one that replaces it serves."""
    REPLICAS_SPOT = "ReplicasSpot"
    """Replicas that serve on Spot instances."""
    REPLICAS_ON_DEMAND = "ReplicasOnDemand"
    """Replicas that serve on on-demand instances, fallbacks among them. With `REPLICAS_SPOT` they make
    `REPLICAS_READY`."""
    LONGEST_FALLBACK_S = "LongestFallbackS"
    """For how long the oldest fallback has had its instance. Only while there is a fallback: a metric is paid
    for by the hour, and a zero would cost as much as a value."""
    LOSSES_WARNED = "LossesWarned"
    """Replicas whose instance EC2 takes back, counted with the warning. One that was leaving anyway isn't
    lost, and neither is what we end ourselves."""
    LOSSES_UNWARNED = "LossesUnwarned"
    """Replicas whose instance ended or vanished, and nobody had warned."""
    GAP_S = "GapS"
    """For how long fewer replicas than desired were in rotation, counted when as many are again. A first
    start and a scale-up are no gap: see `serving.news`."""
    POOLS_COOLING = "PoolsCooling"
    """Eligible pools that are left alone now, once a minute and only while there are any: as Spot, or as
    on-demand where the service uses no Spot."""
    USD_PER_HOUR = "UsdPerHour"
    """What the service's instances cost now, once a minute: list prices, Spot at the last survey's. Missing
    while the price of one of them is unknown: a part of the sum would look like less."""
    ON_DEMAND_USD_PER_HOUR = "OnDemandUsdPerHour"
    """What the same instances would cost on demand, once a minute. Missing as `USD_PER_HOUR` is."""
    EVENTS_UNSENT = "EventsUnsent"
    """Events of our own that EventBridge didn't take; the next tick tries again."""

    @property
    def unit(self) -> Unit:
        """What it is measured in."""
        return _UNITS.get(self, Unit.COUNT)

    @property
    def is_alarmed(self) -> bool:
        """Whether an alarm looks at it, so that CloudWatch must have it: it costs 0.30 USD a month each.

        The others are told in the log alone, from which the board draws them.
        """
        return self in _ALARMED

    @property
    def is_level(self) -> bool:
        """Whether a later value takes the place of an earlier one, to which it isn't added."""
        return self in _LEVELS


_UNITS = {
    Metric.WARNING_TO_DEREGISTERED_MS: Unit.MILLISECONDS,
    Metric.WARNING_TO_LAUNCHED_MS: Unit.MILLISECONDS,
    Metric.WARNING_TO_READY_MS: Unit.MILLISECONDS,
    Metric.LONGEST_FALLBACK_S: Unit.SECONDS,
    Metric.GAP_S: Unit.SECONDS,
    Metric.USD_PER_HOUR: Unit.NONE,
    Metric.ON_DEMAND_USD_PER_HOUR: Unit.NONE,
}
"""Of the metrics that aren't counts."""

_ALARMED = frozenset(
    {Metric.HELD_BACK, Metric.ACTION_REQUIRED, Metric.LAUNCHES_BLOCKED, Metric.BETTER_ELSEWHERE}
)
"""Those of the stacks' alarms: a test compares them. At the last two look alarms of services that were last
deployed before 2026-11-27; they are counted seldom, and by who doesn't know how old a service's stack is."""

_LEVELS = frozenset(
    {
        Metric.REPLICAS_READY,
        Metric.REPLICAS_MISSING,
        Metric.REPLICAS_UNLAUNCHED,
        Metric.REPLICAS_SPOT,
        Metric.REPLICAS_ON_DEMAND,
        Metric.STANDBYS,
        Metric.ONGOING_REQUESTS,
        Metric.ONGOING_UNKNOWN,
        Metric.ELIGIBLE_POOLS,
        Metric.POOLS_COOLING,
        Metric.BEST_PLACEMENT_SCORE,
        Metric.USD_PER_HOUR,
        Metric.ON_DEMAND_USD_PER_HOUR,
    }
)


INCIDENT = "Incident"
"""Metric of an alarm's own, beside those of `Metric`: 1 while its incident lasts, 0 when it has ended, and
mostly nothing."""

ALARM_DIMENSION = "alarm"
"""Its second dimension, after the service: an `Alarm`."""


def prober_function(service: str) -> str:
    """Name of the function, inside the service's network, that asks its replicas whether they are ready."""
    return f"spotrelay-probe-{service}"


DRILL_FUNCTION = "spotrelay-drill"
"""Name of the function that starts drills. Fixed, so that what says whose the services are can name it and
still comes before it."""

WIDGET_FUNCTION = "spotrelay-widget"
"""Name of the function that draws services into the dashboard. Fixed: boards of services that were deployed
before there was one for all name it, too."""

EVERY_SERVICE = "every service"
"""Stands in the dashboard where the name of the service comes that is looked at, and means all of them until
somebody chooses one. No service's name has a space."""


def service_parameter(service: str) -> str:
    """Name of the parameter with the runtime document of `service`."""
    return f"{SERVICES_PATH}/{service}"


def target_group_name(service: str) -> str:
    """The target group that a service's stack makes: ELB takes 32 characters, and a service's name has 24.

    It is fixed so that CloudFormation refuses every update that would replace the target group (another VPC):
    the new one would be empty, with every replica still in the old one. Where CloudFormation chooses the
    name, it replaces the group without a word.
    """
    return f"relay-{service}"


class Alarm(StrEnum):
    """The alarms of a service that tell somebody, by what comes last in their names."""

    NOTHING_READY = "NothingReady"
    CANNOT_LAUNCH = "CannotLaunch"
    NOT_WHOLE = "NotWhole"
    ELB_5XX = "Elb5xx"
    FALLBACK_TOO_LONG = "FallbackTooLong"
    ROLLOUT_STOPPED = "RolloutStopped"
    SLOW_ANSWERS = "SlowAnswers"
    BETTER_ELSEWHERE = "BetterElsewhere"
    CRASH_LOOPING = "CrashLooping"


ALARMS_OF_CONTROL_PLANE = "ControlPlane"
"""Stands in an alarm's name where others have their service. Those are lower case: no collision."""


ALARMS_PREFIX = "spotrelay/"
"""How the names of all alarms begin."""


def alarms_prefix(of: str = ALARMS_OF_CONTROL_PLANE) -> str:
    """How the names of all alarms of a service begin, and those of no other's: no service's name has a dot.

    Until 2026-11-27 it was a slash. A metric alarm can't take the name of a composite one before that is
    gone, and a deployment first makes what is new.
    """
    return f"{ALARMS_PREFIX}{of}."


def dashboard_name(region: str) -> str:
    """Name of a region's dashboard. An account's dashboards share one list for all regions."""
    return f"spotrelay-{region}"
