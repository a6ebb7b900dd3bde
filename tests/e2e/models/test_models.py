"""A replica tells which model it lacks, and serves once it is there; the next one gets it from the first."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.demo.operator import Operator
from spotrelay.file.instance.fetch import MARK
from tests.e2e.clients import Answer, Client
from tests.e2e.models.conftest import BUCKET
from tests.e2e.stand import Stand

pytestmark = pytest.mark.slow  # a deployment of its own, and three starts that fail


def test_a_replica_serves_once_its_model_is_there(operator: Operator, place: Path) -> None:
    """Its role reads the prefix; until something is there it says why not. The next one asks the first."""
    stand = Stand(operator, "model")
    stand.eventually(lambda: any(r.is_crashing for r in stand.watch.look().present), "it tells")
    (replica,) = stand.watch.look().present
    assert f"spotrelay: there is no s3://{BUCKET}/llama/8b" in (replica.trouble or "")
    s3 = operator.session.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="llama/8b/weights", Body=b"0.1 0.2", ChecksumAlgorithm="SHA256")
    (first,) = stand.whole(1).ready
    assert Client(stand).ask("GET", "/weights") == Answer(200, "0.1 0.2")
    assert first.address
    (place / MARK).unlink()  # to the second instance it is as if nothing were on the disk that both have
    assert first.offering
    others = {str(pool["zone"]) for pool in stand.cloud.pools()} - {first.offering.pool.zone}
    for zone in others:  # peers are asked in one's own zone only
        stand.cloud.dry_up(zone=zone, warn=False)
    stand.want(2)
    (second,) = (r for r in stand.whole(2).ready if r.id != first.id)
    stand.cloud.bring_back()
    ec2 = operator.session.client("ec2")
    said = ec2.get_console_output(InstanceId=str(second.instance_id), Latest=True)["Output"]
    assert f"spotrelay: 7 bytes of s3://{BUCKET}/llama/8b came from {first.address}\n" in said
