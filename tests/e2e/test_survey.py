"""Surveys through the deployed rules, function and permissions: what launches know of EC2's offers."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from lab.demo.operator import Operator
from lab.local.environment import ZONES
from lab.local.metrics import MORE_PERIODS
from spotrelay.plane.core.names import Metric, service_parameter
from spotrelay.plane.core.pools import Survey
from tests.e2e.stand import SERVICE, Stand

OVER_S = 60.0 * (2 + MORE_PERIODS)
"""The alarm's two minutes without anything, and those that stand in for missing ones."""

ALWAYS = 1000
"""Far more surveys than a test sees."""


def test_a_deployment_is_surveyed(stand: Stand) -> None:
    """Without waiting for the hour: every pool that the market has for the service, its price, its score."""
    stand.eventually(lambda: _survey(stand) is not None, "a survey of the service")
    survey = _survey(stand)
    assert survey
    assert {pool.zone for pool in survey.pools} == set(survey.scores) == set(ZONES)
    assert {pool.instance_type for pool in survey.pools} <= set(stand.spec.instance_types)
    assert set(survey.on_demand_prices) == {pool.instance_type for pool in survey.pools}
    assert set(survey.spot_prices) == set(survey.pools)
    stand.eventually(lambda: stand.count(Metric.BEST_PLACEMENT_SCORE, SERVICE) > 0, "the best score")


def test_a_refused_score_is_counted_and_the_rest_is_known(stand: Stand) -> None:
    """When AWS allows no more questions, that is counted, and pools and prices are noted without scores.

    It rings until a survey has an answer again.
    """
    stand.eventually(lambda: _survey(stand) is not None, "a survey of the service")
    before, refused = datetime.now(UTC), stand.count(Metric.SURVEY_REFUSED)
    # Until it has rung: a survey of what the test before deployed may still be under way, and meet it first.
    stand.cloud.inject_fault("GetSpotPlacementScores", "MaxConfigLimitExceeded", count=ALWAYS)
    _deploy_again(stand)
    stand.eventually(lambda: _since(stand, before) is not None, "a survey of what was deployed again")
    survey = _since(stand, before)
    assert survey
    assert (survey.scores, len(survey.spot_prices)) == ({}, len(survey.pools))
    stand.eventually(lambda: stand.count(Metric.SURVEY_REFUSED) > refused, "the refusal counted")
    stand.until_alarm(Metric.ACTION_REQUIRED)
    stand.cloud.clear_faults()
    _deploy_again(stand)
    stand.eventually(lambda: bool((known := _survey(stand)) and known.scores), "scores again")
    stand.make_cold("ReconcileFunction")  # it would go by the survey before for a minute
    stand.two_ticks_end()
    stand.cloud.age_metrics(OVER_S)
    stand.until_alarm(Metric.ACTION_REQUIRED, "OK")


def _survey(stand: Stand) -> Survey | None:
    """As a launch that starts now would know it: a store keeps what it has read."""
    store = Operator(stand.operator.deployment).store
    return store.recall(SERVICE, stand.spec.region, datetime.now(UTC)).survey


def _since(stand: Stand, at: datetime) -> Survey | None:
    survey = _survey(stand)
    return survey if survey and survey.at > at else None


def _deploy_again(stand: Stand) -> None:
    """Write the document anew, as a deployment does; the field that changes bears no weight with Spot."""
    ssm = stand.operator.session.client("ssm")
    name = service_parameter(SERVICE)
    document = json.loads(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    value = json.dumps({**document, "surge": document["surge"] + 1})
    ssm.put_parameter(Name=name, Value=value, Type="String", Overwrite=True)
