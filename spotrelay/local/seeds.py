"""What an AWS account has before anybody deploys anything: the public parameters that name AMIs."""

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
    "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64": "ami-0a12023000000000a",
    "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-6.1-x86_64": "ami-0a12023000000000b",
}
"""Parameter name to AMI ID. The IDs are made up: an instance here is a process and has no image."""
