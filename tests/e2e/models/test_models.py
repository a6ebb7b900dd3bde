"""A replica tells which model it lacks, and serves once the model is there."""

from __future__ import annotations

import pytest

from lab.demo.operator import Operator
from tests.e2e.clients import Answer, Client
from tests.e2e.models.conftest import BUCKET
from tests.e2e.stand import Stand

pytestmark = pytest.mark.slow  # a deployment of its own, and three starts that fail


def test_a_replica_serves_once_its_model_is_there(operator: Operator) -> None:
    """Its role, as the service's stack makes it, reads the prefix; until then the replica says why not."""
    stand = Stand(operator, "model")
    stand.eventually(lambda: any(r.is_crashing for r in stand.watch.look().present), "it tells")
    (replica,) = stand.watch.look().present
    assert f"spotrelay: there is no s3://{BUCKET}/llama/8b" in (replica.trouble or "")
    s3 = operator.session.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="llama/8b/weights", Body=b"0.1 0.2")
    stand.whole(1)
    assert Client(stand).ask("GET", "/weights") == Answer(200, "0.1 0.2")
