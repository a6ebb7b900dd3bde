"""How busy the GPUs are, as CloudWatch's agent reports it, for services whose number follows that.

The agent has a unit of its own. A service runs without it: then nobody knows its load, and its number holds.
"""

from __future__ import annotations

import json
from typing import Any

from spotrelay.file.model import Service
from spotrelay.plane.core.names import METRICS_DIMENSION, instances_namespace
from spotrelay.plane.core.scaling import MetricTarget

MEASUREMENT = "utilization_gpu"
METRIC = f"nvidia_smi_{MEASUREMENT}"
"""What the agent calls it in CloudWatch."""

INTERVAL_S = 60
"""More often would make it a metric of high resolution, of which nothing here would know more."""

SIGNER = "937616F3450B7D806CBD9725D58167303B789C72"
"""The fingerprint of the key that AWS signs the agent's packages with. Source: CloudWatch's guide,
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/verify-CloudWatch-Agent-Package-Signature.html
"""

SCRIPT = f"""\
#!/bin/bash
# AWS's Deep Learning images have the agent, and Amazon Linux its package.
set -euo pipefail
cd "$(dirname "$0")"
agent=/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl
if [ ! -x "$agent" ]; then
  if command -v dnf >/dev/null; then
    dnf install -y -q amazon-cloudwatch-agent
  else
    # Always the same files: what keeps trying mustn't fill the disk.
    rm -rf agent && mkdir -m 700 agent
    from=https://amazoncloudwatch-agent.s3.amazonaws.com
    package=$from/ubuntu/$(dpkg --print-architecture)/latest/amazon-cloudwatch-agent.deb
    curl -fsSL --fail-early --retry 5 -o agent/agent.deb "$package" -o agent/agent.sig "$package.sig" \\
      -o agent/agent.gpg "$from/assets/amazon-cloudwatch-agent.gpg"
    # Of the latest version no hash can be pinned; the key that AWS signs all of them with is.
    gpg --homedir agent --batch --quiet --import agent/agent.gpg
    gpg --homedir agent --batch --status-fd 1 --verify agent/agent.sig agent/agent.deb > agent/status
    if ! grep -q '^\\[GNUPG:\\] VALIDSIG .*{SIGNER}' agent/status; then
      echo "$package isn't signed with AWS's key {SIGNER}: it isn't installed" >&2
      exit 1
    fi
    dpkg -i agent/agent.deb
    rm -rf agent
  fi
fi
exec "$agent" -a fetch-config -m ec2 -s -c "file:$PWD/gpu.json"
"""

UNIT = """\
[Unit]
Description=SpotRelay: GPU utilisation of {name}
Wants=network-online.target
# Not while the service is set up: only one of the two can install packages at a time.
After=network-online.target spotrelay.service
# Without it nobody knows how busy the GPUs are, and the number of replicas holds: it keeps trying.
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=/bin/bash {home}/gpu.sh
Restart=on-failure
RestartSec=300

[Install]
WantedBy=multi-user.target
"""


def target(service: str, percent: float) -> MetricTarget:
    """The average of all GPUs of all instances is to be this, in percent."""
    return MetricTarget(
        namespace=instances_namespace(service),
        name=METRIC,
        target=percent,
        dimensions={METRICS_DIMENSION: service},
    )


def agent_config(service: Service) -> str:
    """The agent's configuration. One metric for the whole service: each costs 0.30 USD a month."""
    section: dict[str, Any] = {
        "measurement": [MEASUREMENT],
        "metrics_collection_interval": INTERVAL_S,
        "append_dimensions": {METRICS_DIMENSION: service.name},
        # Those of each GPU of each instance, which nobody reads.
        "drop_original_metrics": [MEASUREMENT],
    }
    metrics = {
        "namespace": instances_namespace(service.name),
        "aggregation_dimensions": [[METRICS_DIMENSION]],
        "metrics_collected": {"nvidia_gpu": section},
    }
    return json.dumps({"metrics": metrics}, indent=1) + "\n"
