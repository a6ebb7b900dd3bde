"""The scripts of an instance: what runs once, what runs at each start, and what both begin with.

    setup.sh    until it has succeeded once: prepare.sh, then the file's `setup`
    run.sh      at each start: the file's `run`
    slot.sh     where an instance hosts several replicas: `run` for one of them, and run.sh starts it for each
    aws.sh, prepare.sh, mount.sh    see `spotrelay.service.prepare`
    host.sh     the SKYPILOT_* variables
    task/       what the file's scripts run in: shell.sh and, in a container, setup.sh and run.sh

A service has only those that it needs. All paths are below SPOTRELAY_DIR, so that other directories than
/opt/spotrelay do, too.
"""

from __future__ import annotations

import re
import shlex

from spotrelay.service import tools
from spotrelay.service.bundle import Archive
from spotrelay.service.files import WORK_DIRECTORY
from spotrelay.service.model import Service
from spotrelay.service.prepare import CONTAINER, aws_script, mount_script, prepare_script

_SHEBANG = "#!/bin/bash\n"

_HERE = """\
SPOTRELAY_DIR=$(cd "$(dirname "$0")" && pwd)
export SPOTRELAY_DIR
"""

_SECRETS = """\
# Secrets come from Parameter Store with the instance's role, never from user data.
spotrelay_secret() {{
  aws ssm get-parameter --region {region} --name "$1" --with-decryption \
    --query Parameter.Value --output text && return
  echo "spotrelay: can't read parameter $1: does it exist, may the instance's role read it?" >&2
  return 1
}}
"""

_PREPARE = """\
[ -e "$SPOTRELAY_DIR/.prepared" ] ||
  { bash "$SPOTRELAY_DIR/prepare.sh" && touch "$SPOTRELAY_DIR/.prepared"; } || exit 1
"""

_INSTALL_CONDA = """\
if [ ! -x ~/miniconda3/bin/conda ] && ! command -v conda >/dev/null; then
  bash "$SPOTRELAY_DIR/tools/miniforge.sh" -b -u -p ~/miniconda3 || exit 1
fi
"""

_HOST = """\
# What SkyPilot tells a script of where it runs: one node with all of the instance's GPUs.
spotrelay_imds() {
  local at=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254} token
  token=$(curl -fsS -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$at/latest/api/token") &&
    curl -fsS -m 5 -H "X-aws-ec2-metadata-token: $token" "$at/latest/meta-data/$1"
}
SKYPILOT_NUM_NODES=1
SKYPILOT_NODE_RANK=0
SKYPILOT_NODE_IPS=$(spotrelay_imds local-ipv4 || hostname -I | cut -d ' ' -f 1)
SKYPILOT_NUM_GPUS_PER_NODE=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
# The same at each start, and another one on each instance.
SKYPILOT_SERVE_REPLICA_ID=$(spotrelay_imds instance-id)
SKYPILOT_SERVE_REPLICA_ID=$((16#0${SKYPILOT_SERVE_REPLICA_ID: -7}))
if [ -n "${SPOTRELAY_SLOT-}" ]; then  # one of the instance's GPUs
  SKYPILOT_NUM_GPUS_PER_NODE=1
  SKYPILOT_SERVE_REPLICA_ID=$((SKYPILOT_SERVE_REPLICA_ID * 16 + SPOTRELAY_SLOT))
fi
export ${!SKYPILOT_@} PYTHONUNBUFFERED=1
"""

_SLOTS = """\
# One server for each GPU, on a port of its own; one that ends is started again, and the others serve on.
gpus=$(nvidia-smi -L | grep -c '^GPU ')
for ((slot = 0; slot < (gpus > 0 ? gpus : 1); slot++)); do
  while true; do
    SPOTRELAY_SLOT=$slot CUDA_VISIBLE_DEVICES=$slot PORT=$((PORT + slot)) bash "$SPOTRELAY_DIR/slot.sh"
    sleep 5
  done &
done
wait
"""

_LOGIN = """\
# As SkyPilot starts a script: a login shell with .bashrc. What was on the PATH before stays in front: a
# container's image has its own programs there, which /etc/profile may drop.
spotrelay_path=$PATH
if [ -r /etc/profile ]; then . /etc/profile; fi
PATH=$spotrelay_path:$PATH
PS1='$ '  # without a prompt Ubuntu's .bashrc ends at once
if [ -r ~/.bashrc ]; then . ~/.bashrc; fi
unset PS1 spotrelay_path
export PATH
"""

_TOOLS = 'export PATH="$PATH:$SPOTRELAY_DIR/tools"\n'

_ACTIVATE = """\
set -a  # conda's functions, for the scripts that these call
if [ -r ~/miniconda3/etc/profile.d/conda.sh ]; then
  . ~/miniconda3/etc/profile.d/conda.sh
{activate}elif command -v conda >/dev/null; then
  . "$(conda info --base)/etc/profile.d/conda.sh"
fi
set +a
"""

_WORKDIR = f"mkdir -p ~/{WORK_DIRECTORY} && cd ~/{WORK_DIRECTORY} || exit 1\n"

HOST_VARIABLES = (
    "PYTHONUNBUFFERED",
    "SKYPILOT_NODE_IPS",
    "SKYPILOT_NODE_RANK",
    "SKYPILOT_NUM_GPUS_PER_NODE",
    "SKYPILOT_NUM_NODES",
    "SKYPILOT_SERVE_REPLICA_ID",
)


def has_sky_shell(service: Service) -> bool:
    """Whether the scripts run as SkyServe runs them: a login shell in ~/sky_workdir, with SKYPILOT_*.

    Not by the file's words alone: somebody who adds `spotrelay:` to a SkyServe file has the same scripts.
    """
    return (
        service.is_skyserve
        or service.workdir is not None
        or bool(service.file_mounts)
        or service.container is not None
        or re.search(rf"SKYPILOT_|{WORK_DIRECTORY}", f"{service.setup}{service.run}") is not None
    )


def scripts(service: Service, region: str, archive: Archive, environment: tuple[str, ...]) -> dict[str, str]:
    """Every script of the service's instances by its path below /opt/spotrelay.

    `archive` is the service's files, if it has any; `environment` the names of all
    variables in service.env. Both `archive` and `region` may hold CDK tokens.
    """
    before = {
        "aws.sh": aws_script(service),
        "prepare.sh": prepare_script(service, region, archive),
        "mount.sh": mount_script(service),
        "host.sh": _HOST if has_sky_shell(service) else None,
        "task/shell.sh": _shell(service) or None,
    }
    found = {name: text for name, text in before.items() if text is not None}
    others = frozenset(found)
    if service.setup is not None or {"aws.sh", "prepare.sh"} & others:
        found["setup.sh"] = _script("setup", service, region, others)
    found["run.sh"] = _script("run", service, region, others)
    if service.container is not None:
        found["setup.sh"] += _enter(environment, service, "setup") if service.setup is not None else ""
        found["run.sh"] += _enter(environment, service, "run")
        if service.setup is not None:
            found["task/setup.sh"] = _SHEBANG + _inner("setup", service.setup, service)
        found["task/run.sh"] = _SHEBANG + _inner("run", service.run, service)
    else:
        if "setup.sh" in found:
            found["setup.sh"] += _inner("setup", service.setup, service)
        found["run.sh"] += _inner("run", service.run, service)
    if service.slots:
        found |= {"slot.sh": found["run.sh"], "run.sh": _SHEBANG + _HERE + _SLOTS}
    return found


def _script(name: str, service: Service, region: str, others: frozenset[str]) -> str:
    """What runs on the instance itself, before the file's own script."""
    # Nothing but the script itself for a service that needs nothing else.
    text = _SHEBANG + (_HERE if others else "")
    if name == "setup" and "aws.sh" in others:
        text += 'bash "$SPOTRELAY_DIR/aws.sh" || exit 1\n'
    text += _secrets(service, region)
    if name == "setup" and "prepare.sh" in others:
        text += _PREPARE
    if "mount.sh" in others:
        text += 'bash "$SPOTRELAY_DIR/mount.sh" || exit 1\n'
    if "host.sh" in others:
        text += '. "$SPOTRELAY_DIR/host.sh"\n'
    return text


def _inner(name: str, body: str | None, service: Service) -> str:
    """What runs where the service runs: the shell, then the file's script."""
    text = ""
    if name == "setup" and tools.needs_conda(service):
        text += _INSTALL_CONDA
    if _shell(service):
        text += '. "$SPOTRELAY_DIR/task/shell.sh"\n'
    if body is None:
        return text
    if service.scripts_in_bundle:
        return text + f'. "$SPOTRELAY_DIR/task/{name}-script.sh"\n'
    return text + body.rstrip("\n") + "\n"


def _shell(service: Service) -> str:
    text = ""
    if has_sky_shell(service):
        text += _LOGIN
    if tools.needs_uv(service):
        text += _TOOLS
    if tools.needs_conda(service):
        # In a container `python` is its image's: conda's own comes with `conda activate`.
        activate = "" if service.container else "  conda activate base\n"
        text += _ACTIVATE.format(activate=activate)
    if has_sky_shell(service):
        text += _WORKDIR
    return text


def _secrets(service: Service, region: str) -> str:
    if not service.secrets:
        return ""
    text = _SECRETS.format(region=shlex.quote(region))
    for name, parameter in service.secrets.items():
        text += f"{name}=$(spotrelay_secret {shlex.quote(parameter)}) || exit 1\nexport {name}\n"
    return text


def _enter(environment: tuple[str, ...], service: Service, name: str) -> str:
    """Go into the container. At each start it is a fresh one: nothing of the last run is left in it."""
    names = dict.fromkeys([*environment, *service.secrets, "SPOTRELAY_DIR", *HOST_VARIABLES])
    # By name alone: the values, secrets among them, stand in no command line.
    options = " ".join(f"--env {name}" for name in names)
    start = f"docker restart -t 10 {CONTAINER}" if name == "run" else f"docker start {CONTAINER}"
    return (
        f"{start} >/dev/null || exit 1\n"
        f'exec docker exec {options} {CONTAINER} /bin/bash "$SPOTRELAY_DIR/task/{name}.sh"\n'
    )
