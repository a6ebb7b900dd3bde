"""What an instance gets before its service starts: tools, files, and the container; and its mounts.

The texts are constants with functions, and calls with quoted arguments: nothing is formatted into the middle
of a script.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from spotrelay.file.instance import bundle, models, packs, tools
from spotrelay.file.instance.registry import ecr_registry
from spotrelay.file.model import Service
from spotrelay.file.values.files import WORK_DIRECTORY, Bucket, GitRepository, MountMode

DOCKER_LOGIN = ("SKYPILOT_DOCKER_USERNAME", "SKYPILOT_DOCKER_PASSWORD", "SKYPILOT_DOCKER_SERVER")

CONTAINER = "spotrelay"
"""The container's name on its instance."""

# No `a && b && c` as a step below: where a or b fails, `set -e` goes on.
_STRICT = """\
#!/bin/bash
set -euo pipefail
cd "$SPOTRELAY_DIR"
die() { echo "spotrelay: $1" >&2; exit 1; }
"""

_FETCH = """\
fetch() {  # URL, its SHA-256, file
  curl -fsSL --retry 5 -o "$3.new" "$1" || die "can't fetch $1"
  echo "$2  $3.new" | sha256sum --check --quiet || die "$1 isn't what was checked: its SHA-256 differs"
  mv "$3.new" "$3"
}
"""

_INSTALL = """\
install_package() {  # as Ubuntu calls it
  if command -v dnf >/dev/null; then
    case $1 in
      docker.io) set -- docker ;;
      libfuse2*) set -- fuse-libs ;;
    esac
    dnf install -y -q "$1"
  else
    # Ubuntu installs upgrades by itself after a boot, and only one at a time may.
    apt-get -o DPkg::Lock::Timeout=300 update -qq &&
      DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq "$1"
  fi
}
"""

_AWS_CLI = """\
if ! command -v aws >/dev/null; then
  fetch {url} {sha256} aws.zip
  rm -rf aws
  python3 -m zipfile -e aws.zip .
  chmod +x aws/install aws/dist/aws
  ./aws/install --update
  rm -rf aws aws.zip
fi
"""

_UV = """\
if {wanted} && [ ! -x tools/uv ]; then
  fetch {url} {sha256} uv.whl
  rm -rf uv
  python3 -m zipfile -e uv.whl uv
  mkdir -p tools
  install -m 755 uv/*.data/scripts/uv uv/*.data/scripts/uvx tools/
  rm -rf uv uv.whl
fi
"""

_CONDA = """\
if {wanted} && [ ! -e tools/miniforge.sh ]; then
  mkdir -p tools
  fetch {url} {sha256} tools/miniforge.sh
fi
"""

_VENV = f"""\
if [ ! -x ~/{tools.VENV}/bin/pip ]; then
  uv=$(command -v uv) || uv=tools/uv
  rm -rf ~/{tools.VENV}  # what a try that broke off has left
  "$uv" venv --quiet --seed --managed-python --python {tools.VENV_PYTHON} ~/{tools.VENV} ||
    die "can't make an environment with Python {tools.VENV_PYTHON}"
fi
"""

_MOUNTPOINT = """\
if ! command -v mount-s3 >/dev/null && [ ! -x tools/bin/mount-s3 ]; then
  fetch {url} {sha256} mount-s3.tar.gz
  mkdir -p tools
  tar -xzf mount-s3.tar.gz -C tools
  rm mount-s3.tar.gz
  tools/bin/mount-s3 --version >/dev/null 2>&1 || install_package libfuse2t64 || install_package libfuse2
fi
"""

_UNPACK = """\
unpack() {  # the archive with the service's files, the hash of the tar in it
  aws s3 cp --only-show-errors "$1" files.tar.gz || die "can't fetch $1"
  # Whoever may write to the bucket can put something else there.
  [ "$(gzip -dc files.tar.gz | sha256sum)" = "$2  -" ] || die "$1 isn't what was deployed: deploy again"
  rm -rf files
  mkdir files
  tar -xzf files.tar.gz -C files
  rm files.tar.gz
}
"""

_PLACE = """\
place() {  # what was unpacked, target
  mkdir -p "$(dirname "$2")"
  cp -aT "files/$1" "$2" || die "can't put the service's files at $2"
}
"""

_CLONE = """\
clone() {  # URL, branch, tag or commit
  command -v git >/dev/null || install_package git
  mkdir -p ~/sky_workdir
  cd ~/sky_workdir
  git init -q
  helper='!f() { echo username=x-access-token; echo "password=$GIT_TOKEN"; }; f'
  fetched() { git ${GIT_TOKEN:+-c "credential.helper=$helper"} fetch -q "$@"; }
  # A server gives a branch, a tag or a whole commit ID by itself, but not the beginning of a commit's ID.
  if fetched --depth 1 "$1" "$2"; then git checkout -q -f FETCH_HEAD
  else fetched --tags "$1" '+refs/heads/*:refs/remotes/origin/*' && git checkout -q -f "$2" ||
    die "can't fetch $2 of $1: does it exist, is it private (secret GIT_TOKEN)?"
  fi
  cd "$SPOTRELAY_DIR"
}
"""

_FROM_S3 = """\
from_s3() {  # bucket, key or prefix, target
  if [ -n "$2" ] && aws s3api head-object --bucket "$1" --key "$2" >/dev/null 2>&1; then
    mkdir -p "$(dirname "$3")"
    aws s3 cp --only-show-errors "s3://$1/$2" "$3" || die "can't copy s3://$1/$2"
  else
    mkdir -p "$3"
    aws s3 sync --only-show-errors "s3://$1/${2:+$2/}" "$3" || die "can't copy s3://$1/$2"
    [ -n "$(ls -A "$3")" ] || die "there is nothing at s3://$1/$2"
  fi
}
"""

_MOUNT = """\
mount_s3() {  # number, target, bucket, options
  local unit=spotrelay-mount-$1 target=$2 bucket=$3 program
  shift 3
  if mountpoint -q "$target"; then return; fi
  umount -l "$target" 2>/dev/null || true  # what a mount that ended has left
  mkdir -p "$target" cache
  program=$(command -v mount-s3) || program=$SPOTRELAY_DIR/tools/bin/mount-s3
  # In a unit of its own: systemd ends whatever a script of spotrelay.service leaves running.
  systemd-run --quiet --collect --unit "$unit" --service-type forking \\
    "$program" "$bucket" "$target" --allow-other "$@" || die "can't mount s3://$bucket at $target"
}
"""

_GPUS = """\
# A service that wants GPUs isn't set up without: systemd tries again, and then they may be there.
nvidia-smi -L || die "no GPU answers yet: the container would be made without"
gpus=all
"""

_CREATE = """\
if ! command -v docker >/dev/null; then
  install_package docker.io
  systemctl enable --now docker
fi
DOCKER_CONFIG=$(mktemp -d)  # what logs in isn't kept
export DOCKER_CONFIG
trap 'rm -rf "$DOCKER_CONFIG"' EXIT
log_in() {  # user, registry
  docker login --username "$1" --password-stdin ${2:+"$2"} >/dev/null ||
    die "can't log in to ${2:-Docker Hub}"
}
create() {  # image, options
  local image=$1 who
  shift
  docker pull --quiet "$image" ||
    die "can't pull $image: does it exist, does it ask for SKYPILOT_DOCKER_USERNAME and _PASSWORD?"
  who=$(docker run --rm --entrypoint /bin/bash "$image" -c 'echo "$(id -u) $HOME"') ||
    die "$image has no /bin/bash, in which both scripts run"
  uid=${who%% *} home=${who#* }
  options=()
  if [ "${gpus-}" = all ]; then options+=(--gpus all); fi
  share "$SPOTRELAY_DIR/task" "$SPOTRELAY_DIR/task"
  share "$SPOTRELAY_DIR/tools" "$SPOTRELAY_DIR/tools"
  shares
  docker rm -f spotrelay >/dev/null 2>&1 || true
  # One service has the whole instance: its network, its memory, its GPUs. What it says is in the instance's
  # journal, which is limited; a log of Docker's own isn't.
  docker create --name spotrelay --init --interactive --log-driver none --network host --ipc host \\
    --ulimit memlock=-1 --ulimit nofile=1048576 --env SPOTRELAY_DIR "${options[@]}" \\
    --entrypoint /bin/bash "$image" "$SPOTRELAY_DIR/task/main.sh" >/dev/null ||
    die "can't make a container of $image"
}
share() {  # path here, path in the container
  [ -e "$1" ] || mkdir -p "$1"
  options+=(--volume "$1:$2:rslave")
}
give() {  # the same, and whoever the container runs as may write
  share "$1" "$2"
  if [ "$uid" != 0 ]; then chown -R "$uid" "$1"; fi
}
"""


def prepare_script(service: Service, region: str, archive: bundle.Archive) -> str | None:
    """Tools, files and the container, until that has succeeded once; None for a service that needs none."""
    text = "".join(_prepare(service, archive))
    if not text:
        return None
    where = f"export AWS_DEFAULT_REGION={shlex.quote(region)}\n" if needs_aws(service) else ""
    return _STRICT + where + text


def mount_script(service: Service) -> str | None:
    """Mounts buckets, at each start: no mount survives a stop."""
    text = "".join(_mounts(service))
    return _STRICT + _MOUNT + text if text else None


def aws_script(service: Service) -> str | None:
    """Installs the AWS CLI, before the first secret is read; None where it isn't called or surely there."""
    # AWS's Deep Learning images have it; of others we don't know.
    if not needs_aws(service) or service.image.reference.startswith("/aws/service/deeplearning/"):
        return None
    return _STRICT + _FETCH + _download(_AWS_CLI, tools.AWS_CLI, service)


def needs_aws(service: Service) -> bool:
    """Whether an instance calls the AWS CLI."""
    copied = any(isinstance(mount.source, Bucket) for mount in service.file_mounts)
    is_ecr = service.container is not None and ecr_registry(service.container) is not None
    return bool(service.secrets) or bundle.is_needed(service) or copied or is_ecr


def _prepare(service: Service, archive: bundle.Archive) -> Iterator[str]:
    downloads = list(_downloads(service))
    clones = isinstance(service.workdir, GitRepository)
    mounted = any(mount.is_mounted for mount in service.file_mounts)
    if downloads:
        yield _FETCH
    if clones or mounted or service.container is not None:
        yield _INSTALL
    yield from downloads
    yield from _files(service, archive)
    if service.container is not None:
        yield from _container(service, service.container)


def _downloads(service: Service) -> Iterator[str]:
    if tools.needs_uv(service):
        yield _download(_UV.replace("{wanted}", _unless("uv", service)), tools.UV, service)
    if tools.needs_conda(service):
        yield _download(_CONDA.replace("{wanted}", _unless("conda", service)), tools.CONDA, service)
    if tools.needs_venv(service):
        yield _VENV
    if any(mount.is_mounted for mount in service.file_mounts):
        yield _download(_MOUNTPOINT, tools.MOUNTPOINT, service)


def _unless(command: str, service: Service) -> str:
    """A condition: an image that has a command needs no second one. What is in a container shows later."""
    return "true" if service.container else f"! command -v {command} >/dev/null"


def _download(text: str, found: Mapping[str, tools.Download], service: Service) -> str:
    download = found[service.arch]
    return text.replace("{url}", download.url).replace("{sha256}", download.sha256)


def _files(service: Service, archive: bundle.Archive) -> Iterator[str]:
    if bundle.is_needed(service):
        yield _UNPACK
        yield f"unpack {shlex.quote(archive.url)} {archive.sha256}\n"
    local = [
        (number, mount) for number, mount in enumerate(service.file_mounts) if isinstance(mount.source, Path)
    ]
    if isinstance(service.workdir, Path) or local:
        yield _PLACE
    if isinstance(service.workdir, Path):
        yield f"place {bundle.WORKDIR} ~/{WORK_DIRECTORY}\n"
    elif service.workdir is not None:
        yield _CLONE
        yield f"clone {shlex.quote(service.workdir.url)} {shlex.quote(service.workdir.ref or 'HEAD')}\n"
    for number, mount in local:
        yield f"place {bundle.MOUNTS}/{number} {_path(mount.target)}\n"
    yield from _bundled(service)
    if bundle.is_needed(service):
        yield "rm -rf files\n"
    copies = [
        (mount, mount.source)
        for mount in service.file_mounts
        if isinstance(mount.source, Bucket) and not mount.is_mounted
    ]
    if copies:
        yield _FROM_S3
    for mount, source in copies:
        yield f"from_s3 {source.name} {shlex.quote(source.prefix)} {_path(mount.target)}\n"


def _bundled(service: Service) -> Iterator[str]:
    if service.scripts_in_bundle:
        yield "mkdir -p task\n"
        yield "for script in files/*.sh; do mv $script task/$(basename $script .sh)-script.sh; done\n"
        if programs := packs.programs(service):
            yield f"mv {' '.join(f'files/{name}' for name in programs)} .\n"
        if service.models:
            yield models.BEGIN


def _mounts(service: Service) -> Iterator[str]:
    for number, mount in enumerate(service.file_mounts):
        if not mount.is_mounted or not isinstance(mount.source, Bucket):
            continue
        options = "" if mount.is_writable else " --read-only"
        if mount.source.prefix:
            options += f" --prefix {shlex.quote(mount.source.prefix + '/')}"
        if mount.mode is MountMode.MOUNT_CACHED:
            options += f' --cache "$SPOTRELAY_DIR/cache/{number}"'
            yield f"mkdir -p cache/{number}\n"
        yield f"mount_s3 {number} {_path(mount.target)} {mount.source.name}{options}\n"


def _container(service: Service, image: str) -> Iterator[str]:
    yield _CREATE
    username, password, server = DOCKER_LOGIN
    given = {*service.envs, *service.secrets}
    if password in given:
        user = f'"${{{username}-}}"'
        at = f'"${{{server}-}}"' if server in given else ""
        yield f'log_in {user} {at} <<< "${password}"\n'
    elif registry := ecr_registry(image):
        yield (
            f"aws ecr get-login-password --region {registry.region} | log_in AWS {registry.host} ||"
            f' die "the instance can\'t log in to {registry.host}"\n'
        )
    yield "shares() {\n"
    yield f'  give ~/{WORK_DIRECTORY} "$home/{WORK_DIRECTORY}"\n'
    for mount in service.file_mounts:
        share = "share" if mount.is_mounted else "give"
        yield f"  {share} {_path(mount.target)} {_path(mount.target, home='home')}\n"
    for model in service.models:
        yield f"  share {_path(model.path)} {_path(model.path)}\n"
    yield f"}}\n{_GPUS if service.has_nvidia else ''}create {shlex.quote(image)}\n"


def _path(target: str, home: str = "HOME") -> str:
    """A target for bash: the home directory isn't known before the instance is there."""
    if target.startswith("~/"):
        return f'"${home}"/{shlex.quote(target[2:])}'
    return shlex.quote(target)
