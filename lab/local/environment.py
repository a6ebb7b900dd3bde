"""Where the local cloud claims to be, and the environment that MiniStack and the functions see."""

from __future__ import annotations

import os
from pathlib import Path

ACCOUNT = "000000000000"
REGION = "us-east-1"
ZONES = tuple(REGION + letter for letter in "abc")
"""The zones that MiniStack's DescribeAvailabilityZones knows."""

EC2_WARNING_S = 120.0
"""From a Spot interruption warning until EC2 takes the instance. The option --warning-s shortens it here."""

WORKER_THREADS = 256
"""Functions and open streams each hold a thread of the loop's default pool, whose own size (6 on 2 cores)
makes them starve each other."""

NO_PROXY = "127.0.0.1,localhost"

SHARED_NETWORK = Path(__file__).with_name("shared_network")
"""What functions import first where instances have addresses of loopback."""


def share_network() -> None:
    """Have functions take the instances' addresses of loopback for some of a network."""
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(SHARED_NETWORK), os.environ.get("PYTHONPATH")))
    )


def prepare_environment(port: int) -> None:
    """Set what MiniStack reads at import, and take the caller's AWS settings out of this process.

    Functions inherit this environment: no real credential, profile or endpoint of the person who started us
    may reach them.
    """
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    for name in ("NO_PROXY", "no_proxy"):
        # A proxy that the machine needs for the internet must not get the functions' calls to us.
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), NO_PROXY)))
    os.environ.update(
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",  # noqa: S106 - the dummy that every example uses
        AWS_DEFAULT_REGION=REGION,
        AWS_REGION=REGION,
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
        AUTH="true",
        GATEWAY_PORT=str(port),
        MINISTACK_HOST="127.0.0.1",  # in queue URLs; "localhost" may mean ::1, where nobody listens
        MINISTACK_REGION=REGION,
        MINISTACK_ACCOUNT_ID=ACCOUNT,
        MINISTACK_WORKER_THREADS=str(WORKER_THREADS),
        LOG_LEVEL=os.environ.get("LOG_LEVEL", "WARNING"),
        # Listeners and container sweeps that nobody here asked for.
        IOT_MTLS_ENABLED="0",
        SFTP_ENABLED="0",
        DOCKER_HOST="unix:///nonexistent/docker.sock",
        PERSIST_STATE="0",
        S3_PERSIST="0",
        LAMBDA_EXECUTOR="local",
        LAMBDA_STRICT="0",
    )
