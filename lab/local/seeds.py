"""What an AWS account has before anybody deploys anything: the public parameters that name AMIs."""

from __future__ import annotations

from typing import NamedTuple

AMI_PARAMETERS = {
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id": (
        "ami-0dee9a1e5b0c22040"
    ),
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id": (
        "ami-0dee9a1e5b0c24040"
    ),
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id": (
        "ami-0dee9a1e5b0c20230"
    ),
    "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id": (
        "ami-0c0de00ab0b424040"
    ),
    "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64": "ami-0a12023000000000a",
    "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-6.1-x86_64": "ami-0a12023000000000b",
}
"""Parameter name to AMI ID. The IDs are made up: an instance here is a process and has no image."""


class RootVolume(NamedTuple):
    """What an AMI makes its root volume from."""

    device: str
    snapshot_id: str
    size_gib: int


_DEEP_LEARNING = RootVolume("/dev/sda1", "snap-0dee9a1e5b0c75000", 75)
"""EC2's answer to a smaller volume for the Ubuntu images: `expect size >= 75GB` (seen by several in 2026)."""

ROOT_VOLUMES = {
    "ami-0dee9a1e5b0c22040": _DEEP_LEARNING,
    "ami-0dee9a1e5b0c24040": _DEEP_LEARNING,
    "ami-0c0de00ab0b424040": RootVolume("/dev/sda1", "snap-0c0de00ab0b408000", 8),
}
"""By AMI, where it is known. A launch from another image isn't held against its snapshot."""
