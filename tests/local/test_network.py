"""Instances with networks of their own, behind the load balancer and by the control API."""

from __future__ import annotations

import os
import time
from urllib.request import urlopen

import pytest

from lab.local.client import LocalCloudError
from lab.local.network import OWN
from tests.local.conftest import Ground, eventually
from tests.local.test_instance_files import address_of, get
from tests.local.test_targets import Site

pytestmark = pytest.mark.xdist_group("local")

EVERYWHERE = "exec python -m http.server --bind 0.0.0.0 8081"

LATENCY_S = 3.0
"""More than `get` waits for."""


def running(ground: Ground, run: str) -> str:
    """ID of a new instance that runs this."""
    user_data = f"#cloud-config\nwrite_files:\n- path: /opt/spotrelay/run.sh\n  content: {run}\n"
    (instance,) = ground.aws.ec2.run_instances(
        MinCount=1,
        MaxCount=1,
        InstanceType="g5.xlarge",
        SubnetId=ground.subnets[0],
        ImageId="ami-0abcdef1234567890",
        UserData=user_data,
    )["Instances"]
    id_: str = instance["InstanceId"]
    eventually(lambda: ground.states([id_]) == ["running"], "it runs")
    return id_


def answer_s(address: str) -> float:
    """How long the replica takes to answer; 0 while it doesn't."""
    began_s = time.monotonic()
    try:
        with urlopen(f"http://{address}:8081/", timeout=60):
            return time.monotonic() - began_s
    except OSError:
        return 0.0


@pytest.fixture(autouse=True)
def own(ground: Ground) -> None:
    """Where instances share a network, none of this holds. In continuous integration that is a failure."""
    words = ground.aws.local.network()
    if words != OWN:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(words)


def test_the_balancer_finds_a_crashed_server_unhealthy_beside_one_that_listens_on_all_addresses(
    ground: Ground,
) -> None:
    """A replica whose server crashes isn't ready because another's answers; on AWS it can't be, either."""
    serves, crashes = running(ground, EVERYWHERE), running(ground, "exit 1")
    site = Site(ground)
    site.register(serves, crashes)
    site.until("healthy", serves)
    site.until("unhealthy", crashes)


def test_the_network_of_one_instance_can_be_slowed_down(ground: Ground) -> None:
    """By the control API, over a stop and a start, and for as long as it lives."""
    local, id_ = ground.aws.local, running(ground, EVERYWHERE)
    address = address_of(ground.aws, id_)
    local.shape(id_, latency_s=LATENCY_S)
    eventually(lambda: answer_s(address) >= LATENCY_S, "it answers late")
    ground.aws.ec2.stop_instances(InstanceIds=[id_])
    eventually(lambda: ground.states([id_]) == ["stopped"], "it is stopped")
    ground.aws.ec2.start_instances(InstanceIds=[id_])
    eventually(lambda: ground.states([id_]) == ["running"], "it runs again")
    # Its first answer may come before it is slowed down, which it is once it has joined its network.
    eventually(lambda: answer_s(address) >= LATENCY_S, "it answers late again")
    local.shape(id_, rate_mbit=100)
    eventually(lambda: get(address, ""), "it answers in time")
    with pytest.raises(LocalCloudError, match="rate_mbit=-1"):
        local.shape(id_, rate_mbit=-1)
    ground.aws.ec2.terminate_instances(InstanceIds=[id_])
    with pytest.raises(LocalCloudError, match=r"is shutting-down already|is terminated already"):
        local.shape(id_, rate_mbit=1)
