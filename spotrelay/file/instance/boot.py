"""The scripts of an instance: what runs once, what runs at each start, and what both begin with.

    once.sh     runs setup.sh, unless it has succeeded: see `spotrelay.file.instance.unit`
    setup.sh    prepare.sh, then the file's `setup`
    run.sh      at each start: the file's `run`
    stop.sh     ends what run.sh started: see `spotrelay.file.instance.unit`
    crash.sh    after each end: tells why it doesn't start, see `spotrelay.file.instance.crash`
    slot.sh     where an instance hosts several replicas: `run` for one of them, and run.sh starts it for each
    aws.sh, prepare.sh, mount.sh    see `spotrelay.file.instance.prepare`
    pack.sh     in setup.sh, before the file's `setup`: see `spotrelay.file.instance.packs`
    host.sh     the SKYPILOT_* variables
    task/       what the file's scripts run in: shell.sh; in a container main.sh, setup.sh, run.sh, stop.sh

A service has only those that it needs. All paths are below SPOTRELAY_DIR, so that other directories than
/opt/spotrelay do, too.
"""

from __future__ import annotations

import re
import shlex

from spotrelay.file.instance import engine, models, packs, phases, tools, unit
from spotrelay.file.instance.bundle import Archive
from spotrelay.file.instance.prepare import CONTAINER, aws_script, mount_script, prepare_script
from spotrelay.file.model import Service
from spotrelay.file.values.files import WORK_DIRECTORY

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
# The mark names what was done: an image that was made from a replica has that replica's.
spotrelay_mark=$(sha256sum < "$SPOTRELAY_DIR/prepare.sh")
spotrelay_mark=$SPOTRELAY_DIR/.prepared-${spotrelay_mark:0:16}
[ -e "$spotrelay_mark" ] || { bash "$SPOTRELAY_DIR/prepare.sh" && touch "$spotrelay_mark"; } || exit 1
"""

_INSTALL_CONDA = """\
if [ ! -x ~/miniconda3/bin/conda ] && ! command -v conda >/dev/null; then
  bash "$SPOTRELAY_DIR/tools/miniforge.sh" -b -u -p ~/miniconda3 || exit 1
fi
"""

_HOST = """\
# What SkyPilot tells a script of where it runs: one node with all of the instance's GPUs.
spotrelay_at=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}/latest
spotrelay_token=$(curl -fsS -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' \\
  "$spotrelay_at/api/token")
spotrelay_imds() {
  [ -n "$spotrelay_token" ] &&
    curl -fsS -m 5 -H "X-aws-ec2-metadata-token: $spotrelay_token" "$spotrelay_at/meta-data/$1"
}
SKYPILOT_NUM_NODES=1
SKYPILOT_NODE_RANK=0
SKYPILOT_NODE_IPS=$(spotrelay_imds local-ipv4 || hostname -I | cut -d ' ' -f 1)
# Not asked again where it has just been: that may take the driver a second.
SKYPILOT_NUM_GPUS_PER_NODE=$(grep -c '^GPU ' <<< "${spotrelay_gpus-$(nvidia-smi -L 2>/dev/null)}")
# The same at each start, and another one on each instance.
spotrelay_id=$(spotrelay_imds instance-id)
SKYPILOT_SERVE_REPLICA_ID=$((16#0${spotrelay_id: -7}))
SKYPILOT_TASK_ID=spotrelay-$SPOTRELAY_SERVICE-$spotrelay_id
printf -v SKYPILOT_CLUSTER_INFO '{"cluster_name": "%s", "cloud": "AWS", "region": "%s", "zone": "%s"}' \
  "$SPOTRELAY_SERVICE" "$(spotrelay_imds placement/region)" "$(spotrelay_imds placement/availability-zone)"
if [ -n "${SPOTRELAY_SLOT-}" ]; then  # one of the instance's GPUs
  SKYPILOT_NUM_GPUS_PER_NODE=1
  SKYPILOT_SERVE_REPLICA_ID=$((SKYPILOT_SERVE_REPLICA_ID * 16 + SPOTRELAY_SLOT))
  SKYPILOT_TASK_ID+=-$SPOTRELAY_SLOT
fi
SKYPILOT_SETUP_NODE_IPS=$SKYPILOT_NODE_IPS SKYPILOT_SETUP_NODE_RANK=$SKYPILOT_NODE_RANK
SKYPILOT_SETUP_NUM_GPUS_PER_NODE=$SKYPILOT_NUM_GPUS_PER_NODE
export "${!SKYPILOT_@}" PYTHONUNBUFFERED=1
"""

_SLOTS = """\
# One server for each GPU, on a port of its own; one that ends is started again, and the others serve on.
gpus=$(nvidia-smi -L | grep -c '^GPU ')
for ((slot = 0; slot < (gpus > 0 ? gpus : 1); slot++)); do
  while true; do
    SPOTRELAY_SLOT=$slot CUDA_VISIBLE_DEVICES=$slot PORT=$((PORT + slot)) bash "$SPOTRELAY_DIR/slot.sh"
    bash "$SPOTRELAY_DIR/crash.sh" $((PORT + slot))
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
export PATH USER=${USER:-$(id -un)}
"""

_AS_ROOT = """\
export DEBIAN_FRONTEND=noninteractive
if [ "$(id -u)" = 0 ]; then  # SkyPilot's containers have no sudo, and this instead
  sudo() { while [[ ${1-} = -[EHnS] ]]; do shift; done; env "$@"; }
  export -f sudo
fi
"""

_PACKAGES = """\
# What SkyPilot puts into a container, but for what it needs itself (openssh-server, fuse).
spotrelay_packages=()
for name in curl wget rsync patch; do
  command -v "$name" >/dev/null || spotrelay_packages+=("$name")
done
command -v pip3 >/dev/null || spotrelay_packages+=(python3-pip)
if [ ${#spotrelay_packages[@]} != 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  { apt-get update && apt-get install -y --no-install-recommends "${spotrelay_packages[@]}"; } >/dev/null ||
    echo "spotrelay: the container lacks ${spotrelay_packages[*]}, and they can't be installed" >&2
fi
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
# `uv pip` takes conda's own environment for the system's, in which it refuses to install, by this name alone.
unset CONDA_DEFAULT_ENV
"""

_VENV = """\
# As SkyPilot's scripts do: `python`, `pip` and `uv pip` are those of an environment that they may write to.
. ~/sky-user-env/bin/activate
"""

_WAIT = """\
# systemd kills what a script has left in the background when it ends: a server, perhaps.
trap '[ $? != 0 ] || wait' EXIT
"""

_GPU = """\
# A kernel that an upgrade has installed becomes active with the next boot, perhaps without its driver.
# An image of the user's own that has no nvidia-smi isn't judged.
! command -v nvidia-smi >/dev/null || spotrelay_gpus=$(nvidia-smi -L 2>&1) || {
  echo "$spotrelay_gpus" >&2
  echo "spotrelay: no GPU answers: has set-up upgraded the kernel or the driver? Else it is this instance" >&2
  exit 1
}
"""

_DEVICES = """\
# For the container: /dev/nvidia-uvm, which nothing may have made since the boot, and which is then missing in
# the list of devices by which Docker's `--gpus` finds them (NVIDIA/nvidia-container-toolkit#50).
nvidia-modprobe -u -c 0 2>/dev/null
! command -v nvidia-ctk >/dev/null || nvidia-ctk --quiet cdi generate --output /var/run/cdi/nvidia.yaml
"""

_CUDA = """\
# An image's compatibility libraries hide a newer driver's, and CUDA can't start (ggml-org/llama.cpp#23111).
spotrelay_cuda='import ctypes as c; code = c.CDLL("libcuda.so.1").cuInit(0); code and exit(f"cuInit: {code}")'
if command -v python3 >/dev/null; then
  python3 -c "$spotrelay_cuda" || {
    echo "spotrelay: CUDA doesn't start in the container" >&2
    echo "spotrelay: has the image /usr/local/cuda*/compat, older than the driver? Put into setup:" >&2
    echo "spotrelay: rm -rf /usr/local/cuda*/compat && ldconfig" >&2
    exit 1
  }
fi
"""

_MAIN = """\
#!/bin/bash
# The container's first process. It waits for an environment, which the instance's run.sh sends when it
# attaches, and becomes the file's `run`. So no value stands in a command line, or in what Docker keeps.
while IFS= read -r -d '' assignment; do export "${assignment?}"; done
exec /bin/bash "$SPOTRELAY_DIR/task/run.sh" </dev/null
"""

_WORKDIR = f"mkdir -p ~/{WORK_DIRECTORY} && cd ~/{WORK_DIRECTORY} || exit 1\n"

_COMMENT = re.compile(r"^ *# .*\n", re.MULTILINE)


def bare(script: str) -> str:
    """Without the lines that only explain: user data has room for 16 KiB."""
    return _COMMENT.sub("", script)


FETCHERS = frozenset({"aws.sh", "prepare.sh"})
"""Scripts that fetch what set-up needs."""


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
        packs.SCRIPT: packs.shell() if service.pack else None,
        "host.sh": _HOST if has_sky_shell(service) else None,
        "task/shell.sh": _shell(service) or None,
    }
    found = {name: bare(text) for name, text in before.items() if text is not None}
    others = frozenset(found)
    if service.setup is not None or FETCHERS & others:
        found["setup.sh"] = _script("setup", service, region, others)
    found["run.sh"] = _script("run", service, region, others)
    if service.container is not None:
        found["task/main.sh"] = bare(_MAIN)
        found["setup.sh"] += _set_up_inside(environment, service) if service.setup is not None else ""
        found["run.sh"] += _run_inside(environment, service)
        if service.setup is not None:
            found["task/setup.sh"] = _SHEBANG + _inner("setup", service.setup, service)
        found["task/run.sh"] = _SHEBANG + _inner("run", service.run, service)
    else:
        if "setup.sh" in found:
            found["setup.sh"] += _inner("setup", service.setup, service)
        found["run.sh"] += _inner("run", service.run, service)
    if service.slots:
        found |= {"slot.sh": found["run.sh"], "run.sh": bare(_SHEBANG + _HERE + _SLOTS)}
    called = unit.scripts(service, has_setup="setup.sh" in found)
    return found | {name: bare(text) for name, text in called.items()}


def _script(name: str, service: Service, region: str, others: frozenset[str]) -> str:
    """What runs on the instance itself, before the file's own script."""
    # Nothing but the script itself for a service that needs nothing else.
    text = _SHEBANG + (_HERE if others or service.models else "")
    if name == "setup" and "aws.sh" in others:
        text += 'bash "$SPOTRELAY_DIR/aws.sh" || exit 1\n'
    text += _secrets(service, region)
    if name == "setup" and "prepare.sh" in others:
        text += _PREPARE
    has_files = phases.HAS_FILES if name == "setup" and FETCHERS & others else ""
    if name == "setup" and service.pack:
        text += has_files + packs.HAVE
    if "mount.sh" in others:
        text += 'bash "$SPOTRELAY_DIR/mount.sh" || exit 1\n'
    if not service.pack:
        text += has_files
    if name == "run" and service.has_nvidia:
        text += _GPU + (_DEVICES if service.container is not None else "")
    if name == "run" and service.models:
        text += models.wait(service) + phases.LOADS
    if name == "run" and engine.is_kept(service):
        text += engine.EXPORT
    if "host.sh" in others:
        text += '. "$SPOTRELAY_DIR/host.sh"\n'
    return bare(text)


def own_setup(service: Service) -> str:
    """How setup.sh ends where set-up isn't in a container: what the file itself says."""
    return _inner("setup", service.setup, service)


def _inner(name: str, body: str | None, service: Service) -> str:
    """What runs where the service runs: the shell, then the file's script."""
    text = ""
    if name == "setup" and tools.needs_conda(service):
        text += _INSTALL_CONDA
    if _shell(service):
        text += '. "$SPOTRELAY_DIR/task/shell.sh"\n'
    if name == "setup" and service.is_skyserve and service.container is not None:
        text += _PACKAGES
    if name == "run" and service.has_nvidia and service.container is not None:
        text += _CUDA
    if name == "run":
        text += _WAIT
    text = bare(text)
    if body is None:
        return text
    if service.scripts_in_bundle:
        return text + f'. "$SPOTRELAY_DIR/task/{name}-script.sh"\n'
    return text + body.rstrip("\n") + "\n"


def _shell(service: Service) -> str:
    text = ""
    if has_sky_shell(service):
        text += _LOGIN
    if service.container is not None:
        text += _AS_ROOT
    if tools.needs_uv(service):
        text += _TOOLS
    if tools.needs_conda(service):
        # In a container `python` is its image's: conda's own comes with `conda activate`.
        activate = "" if service.container else "  conda activate base\n"
        text += _ACTIVATE.format(activate=activate)
    if tools.needs_venv(service):
        text += _VENV
    if has_sky_shell(service):
        text += _WORKDIR
    return text


def _secrets(service: Service, region: str) -> str:
    if not service.secrets:
        return ""
    text = _SECRETS.format(region=shlex.quote(region))
    for name, parameter in service.secrets.items():
        text += (
            f"{name}=$(spotrelay_secret {shlex.quote(service.pinned(parameter))}) || exit 1\nexport {name}\n"
        )
    return text


def _names(environment: tuple[str, ...], service: Service) -> str:
    """The variables that scripts find in the container."""
    names = " ".join(dict.fromkeys([*environment, *service.secrets, "PYTHONUNBUFFERED"]))
    return f'names=({names} "${{!SKYPILOT_@}}")\n'


def _set_up_inside(environment: tuple[str, ...], service: Service) -> str:
    # By name alone: the values, secrets among them, stand in no command line.
    return (
        f"{_names(environment, service)}"
        f"docker start {CONTAINER} >/dev/null || exit 1\n"
        f'exec docker exec "${{names[@]/#/--env=}}" {CONTAINER} /bin/bash "$SPOTRELAY_DIR/task/setup.sh"\n'
    )


_ENVIRONMENT = """\
environment() {
  local name
  for name in "${names[@]}"; do [ -z "${!name+x}" ] || printf '%s=%s\\0' "$name" "${!name}"; done
}
"""


def _run_inside(environment: tuple[str, ...], service: Service) -> str:
    """`run` is the container's first process: it gets the signals, and its end is the container's.

    What `setup` has left in the container's files is there at each start, and no process of a run before.
    """
    return (
        f"{_names(environment, service)}{_ENVIRONMENT}"
        f"docker stop -t 10 {CONTAINER} >/dev/null || exit 1\n"
        f"exec docker start --attach --interactive {CONTAINER} < <(environment)\n"
    )
