"""The CDK app: the control plane, and one stack for each service file that the context names.

    .venv/bin/cdk deploy --all -c services=services/llama3.yaml

Synth is hermetic: no call to AWS, no git, no network. What can be chosen is in `stacks.settings.Settings`.
"""

import sys

from spotrelay.file.service import ServiceFileError
from stacks.application import application
from stacks.bundling import BundlingError
from stacks.settings import SettingsError

USAGE_ERROR = 2


def main() -> int:
    """Synthesize into the directory that the CDK's command line asks for."""
    try:
        app = application()
    except (ServiceFileError, SettingsError, BundlingError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - a program's entry point
        return USAGE_ERROR
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
