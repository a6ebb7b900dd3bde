"""The scripts of an instance, run in bash with stand-ins for what they call."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # as in test_userdata

from spotrelay.file.instance import bundle, phases, tools, userdata
from spotrelay.file.instance.tools import Download
from spotrelay.file.instance.userdata import MAX_BYTES
from spotrelay.file.service import Service, user_data
from spotrelay.file.values.files import Bucket, FileMount, GitRepository, MountMode

from .conftest import GOOD, Loader, on_cpus
from .test_userdata import config, files

ROOT = Path(__file__).parents[2]

ARCHIVE = bundle.Archive("s3://assets/files.tar.gz", "0" * 64)

# Ubuntu's, for root: it ends at once in a shell without a prompt.
BASHRC = '[ -z "$PS1" ] && return\nexport FROM_BASHRC=yes\n'

STANDINS = {
    # The address is the file's name: anything that is downloaded lies in `served`.
    "curl": """\
    case "$*" in
      */latest/api/token) echo token ;;
      *"X-aws-ec2-metadata-token: token"*/latest/meta-data/local-ipv4) echo 10.0.7.8 ;;
      *"X-aws-ec2-metadata-token: token"*/latest/meta-data/instance-id) echo i-0123456789abcdef0 ;;
      */latest/meta-data/placement/region) echo eu-west-1 ;;
      */latest/meta-data/placement/availability-zone) echo eu-west-1b ;;
      */latest/*) exit 22 ;;
      *) url="${@: -1}"; while [ "$1" != -o ]; do shift; done; cp "$SERVED/$(basename "$url")" "$2" ;;
    esac""",
    "aws": """\
    case "$1 $2" in
      "ssm get-parameter") echo "secret of $6" ;;
      "ecr get-login-password") echo ecr-password ;;
      "s3api head-object") [ "${*: -1}" = model.bin ] ;;
      "s3 cp") cp "$SERVED/$(basename "$4")" "$5" ;;
      "s3 sync") case "$4" in *empty*) ;; *) touch "$5/synced" ;; esac ;;
    esac""",
    "docker": """\
    case "$1" in
      login) cat >> "$CALLS" ;;
      run) echo "${CONTAINER_USER:-0 /root}" ;;
      exec) while [ "$1" != spotrelay ]; do shift; done; shift; exec "$@" ;;
      start) if [ "$2" = --attach ]; then
          exec env -i HOME="$HOME" PATH="$INSIDE:$PATH" CALLS="$CALLS" SPOTRELAY_DIR="$SPOTRELAY_DIR" \\
            bash "$SPOTRELAY_DIR/task/main.sh"
        fi ;;
    esac""",
    "uv": """\
    if [ "$1" = venv ]; then
      for at; do :; done
      mkdir -p $at/bin && cp /bin/true $at/bin/pip
      echo "export VIRTUAL_ENV=$at PATH=$at/bin:\\$PATH" > $at/bin/activate
    fi""",
    "nvidia-smi": "echo 'GPU 0: L4 (UUID: GPU-1)'; echo 'GPU 1: L4 (UUID: GPU-2)'",
    "mountpoint": "exit 1",
    "umount": "exit 1",
    "systemd-run": "true",
    "apt-get": "true",
    "systemctl": "true",
    "mount-s3": "true",
    "chown": "true",
}


SCRIPTS = {
    *("prepare.sh", "setup.sh", "run.sh", "mount.sh", "aws.sh", "host.sh", "once.sh", "stop.sh", "slot.sh"),
    *("task/shell.sh", "task/main.sh", "task/setup.sh", "task/run.sh", "task/stop.sh"),
    *("console.sh", "crash.sh"),
}


class Instance:
    """Directories that serve as an instance's file system, with its commands first on PATH."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.served = root, root / "home", root / "served"
        self.directory = root / "opt"
        self.calls_file = root / "calls"
        self.inside = root / "inside"
        for directory in (root / "bin", self.inside, self.home, self.served):
            directory.mkdir()
        (self.home / ".bashrc").write_text(BASHRC)
        for name, script in STANDINS.items():
            self.command(name, script)
        self.command("python3", "true", self.inside)

    def command(self, name: str, script: str, directory: Path | None = None) -> None:
        """Something on PATH, or in the container, that notes how it was called."""
        file = (directory or self.root / "bin") / name
        file.write_text(f'#!/bin/bash\necho "{name} $*" >> "$CALLS"\n{script}\n')
        file.chmod(0o755)

    def boot(self, service: Service) -> dict[str, str]:
        """Write what cloud-init would; the variables of service.env."""
        archive = ARCHIVE
        if bundle.is_needed(service):
            archive = replace(ARCHIVE, sha256=bundle.write(service, self.served / "files.tar.gz"))
        for entry in config(user_data(service, "eu-west-1", archive))["write_files"]:
            if entry["path"].startswith("/opt/spotrelay/"):
                file = self.directory / entry["path"].removeprefix("/opt/spotrelay/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self._own(entry["content"]))
        return {"PORT": "8081", "SPOTRELAY_SERVICE": service.name, **service.envs}

    def _own(self, script: str) -> str:
        """With a console of its own, and nothing in this machine's /run."""
        ours = {"/dev/console": "console", phases.LINE: "phases"}
        for path, name in ours.items():
            script = script.replace(path, str(self.root / name))
        return script

    @property
    def environment(self) -> dict[str, str]:
        """What every script has."""
        return {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "CALLS": str(self.calls_file),
            "SERVED": str(self.served),
            "INSIDE": str(self.inside),
        }

    def run(self, name: str, **env: str) -> subprocess.CompletedProcess[str]:
        """One of the two scripts, as systemd starts it."""
        return subprocess.run(
            ["bash", str(self.directory / name)],
            cwd=self.directory,
            env={**self.environment, **env},
            capture_output=True,
            text=True,
            check=False,
        )

    def without(self, *names: str) -> str:
        """PATH without commands that this machine may have."""
        commands = self.root / "commands"
        commands.mkdir()
        for directory in ("/bin", "/usr/bin"):
            for command in Path(directory).iterdir():
                if command.name not in names and not (commands / command.name).exists():
                    (commands / command.name).symlink_to(command)
        return f"{self.root / 'bin'}:{commands}"

    def start(self, service: Service) -> str:
        """Boot, set up and run; what `run` says."""
        env = self.boot(service)
        for name in ("setup.sh", "run.sh"):
            if (self.directory / name).exists():
                done = self.run(name, **env)
                assert done.returncode == 0, done.stderr
        return done.stdout

    def calls(self, name: str) -> list[str]:
        """How a command was called."""
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [line.partition(" ")[2] for line in lines if line.partition(" ")[0] == name]


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """One that has just booted."""
    (tmp_path / "instance").mkdir()
    return Instance(tmp_path / "instance")


@pytest.fixture
def sky(service: Loader) -> Any:
    """A service in SkyServe's format with this `run` and `setup`."""

    def make(run: str, setup: str | None = None, **fields: Any) -> Service:
        return replace(service(GOOD), is_skyserve=True, run=run, setup=setup, **fields)

    return make


def serve(instance: Instance, monkeypatch: pytest.MonkeyPatch, tool: str, content: bytes) -> None:
    """Let a download be this, with its checksum."""
    (instance.served / "tool").write_bytes(content)
    download = Download("https://example.com/tool", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(tools, tool, {"x86_64": download})


def test_a_script_finds_what_skypilot_tells_it(instance: Instance, sky: Any) -> None:
    """The variables of one node, its address and its GPUs, in both scripts and in what they start."""
    names = "NUM_NODES NODE_RANK NODE_IPS NUM_GPUS_PER_NODE SERVE_REPLICA_ID"
    names += " SETUP_NODE_RANK SETUP_NODE_IPS SETUP_NUM_GPUS_PER_NODE TASK_ID CLUSTER_INFO"
    script = f"bash -c 'for name in {names}; do name=SKYPILOT_$name; echo ${{!name}}; done'"
    *said, cluster = instance.start(sky(script, setup=script)).splitlines()
    node = ["0", "10.0.7.8", "2"]
    assert said[:5] == ["1", *node, str(0xBCDEF0 + 0xA000000)]
    assert said[5:] == [*node, "spotrelay-chat-i-0123456789abcdef0"]
    place = {"cloud": "AWS", "region": "eu-west-1", "zone": "eu-west-1b"}
    assert json.loads(cluster) == {"cluster_name": "chat", **place}
    assert instance.calls("nvidia-smi") == ["-L", "-L"], "once by each script: a driver may take its time"


def test_an_instance_without_metadata_runs_all_the_same(instance: Instance, sky: Any) -> None:
    """What only informs a script must not keep it from starting."""
    instance.command("curl", "exit 7")
    instance.command("nvidia-smi", "exit 127")
    instance.command("hostname", "echo 10.9.9.9 172.17.0.1")
    said = instance.start(
        on_cpus(sky('echo "$SKYPILOT_NODE_IPS $SKYPILOT_NUM_GPUS_PER_NODE $SKYPILOT_SERVE_REPLICA_ID"'))
    )
    assert said == "10.9.9.9 0 0\n"


def test_a_script_runs_in_a_login_shell_in_the_work_directory(instance: Instance, sky: Any) -> None:
    """.bashrc holds although there is no prompt, PATH keeps its order, and both are in ~/sky_workdir."""
    script = 'pwd; echo "$FROM_BASHRC $USER"; IFS=:; printf "%s\\n" $PATH'
    said = instance.start(sky(script, setup="pwd > where")).splitlines()
    work = instance.home / "sky_workdir"
    user = pwd.getpwuid(os.getuid()).pw_name
    assert said[:2] == [str(work), f"yes {user}"]
    assert said[2:4] == [str(instance.home / "sky-user-env" / "bin"), str(instance.root / "bin")]
    assert (work / "where").read_text() == f"{work}\n"


@pytest.mark.parametrize("run", ["echo $SKYPILOT_NODE_IPS", "cd ~/sky_workdir"])
def test_a_file_in_our_words_gets_the_same_where_its_scripts_rely_on_it(service: Loader, run: str) -> None:
    """`spotrelay:` added to a SkyServe file takes nothing from its scripts."""
    assert "/host.sh" in user_data(service(GOOD.replace("python3 serve.py", run)), "eu-west-1")


def test_skyserves_fields_bring_its_shell_in_any_words(service: Loader, tmp_path: Path) -> None:
    """A container, a work directory and file mounts are about ~/sky_workdir."""
    mount = FileMount("/models", Bucket("models"))
    for fields in ({"container": "x"}, {"workdir": tmp_path}, {"file_mounts": (mount,)}):
        changed: Any = fields
        assert "/host.sh" in user_data(replace(service(GOOD), **changed), "eu-west-1")


def test_who_needs_nothing_gets_nothing(service: Loader) -> None:
    """A file in our words without any of it has its script, and what looks after that."""
    paths = {entry["path"] for entry in config(user_data(service(GOOD), "eu-west-1"))["write_files"]}
    assert {Path(path).name for path in paths} == {
        "service.env", "run.sh", "stop.sh", "crash.sh", "crash.py", "spotrelay.service",
        "console.sh", "spotrelay-console.service", "spotrelay.conf",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("conda activate x", "conda"),
        ("conda activate x; uv pip install vllm", "conda uv"),
        ("pip install vllm", "uv venv"),
        ("bash install.sh", "uv venv"),
        ("python3 server.py", "uv venv"),
        ("torchrun --nproc-per-node 2 serve.py", "uv venv"),
        ("python3 -m http.server $PORT", ""),
        (
            "# pip install\nmkdir -p x && cd x\npython3 -m http.server \\\n  --bind $HOST 80 &\nwait",
            "",
        ),
        ("python3 -m http.server $PORT & python3 -m x", "uv venv"),
    ],
)
def test_a_skyserve_file_has_skypilots_python(sky: Any, script: str, wanted: str) -> None:
    """Whatever its words are: only one for which Ubuntu's own does has none; conda is for who calls it."""
    chat = sky(script)
    needs = {"conda": tools.needs_conda, "uv": tools.needs_uv, "venv": tools.needs_venv}
    assert " ".join(name for name, is_needed in needs.items() if is_needed(chat)) == wanted
    assert ("/prepare.sh" in user_data(chat, "eu-west-1")) == bool(wanted)


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("uv pip install vllm", "uv"),
        ("uv venv --python 3.12\n.venv/bin/python serve.py", "uv"),
        ("uvx vllm serve", "uv"),
        ("pip install vllm", "uv venv"),
        ("cd x && python serve.py", "uv venv"),
        ("vllm serve x; python3 serve.py", ""),
        ("# pip install nothing\n/opt/venv/bin/pip install x", ""),
        ("apt-get install python-is-python3 my-uv", ""),
    ],
)
def test_a_file_in_our_words_has_what_it_calls(service: Loader, script: str, wanted: str) -> None:
    """uv where it is called; a `pip` and a `python`, which our images haven't."""
    chat = replace(service(GOOD), run=script)
    needs = {"conda": tools.needs_conda, "uv": tools.needs_uv, "venv": tools.needs_venv}
    assert " ".join(name for name, is_needed in needs.items() if is_needed(chat)) == wanted
    assert not tools.needs_venv(replace(chat, image=replace(chat.image, reference="ami-1")))


def test_a_container_has_the_python_that_its_scripts_mean(sky: Any) -> None:
    """An environment of ours would hide it."""
    assert not tools.needs_venv(sky("pip list; python serve.py", container="vllm/vllm-openai"))
    assert tools.needs_conda(sky("conda activate x", container="vllm/vllm-openai"))


def test_conda_is_installed_once_and_its_python_is_active(
    instance: Instance, sky: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The installer runs once; both scripts, and what they call, have conda's functions."""
    installer = """\
    while [ "$1" != -p ]; do shift; done
    echo installed >> "$CALLS"
    mkdir -p $2/bin $2/etc/profile.d && touch $2/bin/conda && chmod +x $2/bin/conda
    echo 'conda() { echo "conda $*"; CONDA_DEFAULT_ENV=$2; }' > $2/etc/profile.d/conda.sh"""
    serve(instance, monkeypatch, "CONDA", installer.encode())
    chat = sky("bash -c 'conda activate mine'; echo is $CONDA_DEFAULT_ENV", setup="conda create -n mine")
    # Its name is withheld: `uv pip` refuses to install into an environment that is called `base`.
    assert instance.start(chat) == "conda activate base\nconda activate mine\nis\n"
    assert instance.run("setup.sh").returncode == 0
    assert instance.calls_file.read_text().splitlines().count("installed") == 1


def test_uv_is_on_the_path(instance: Instance, sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv's own programs come out of its wheel and can be run."""
    wheel = instance.root / "uv.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in ("uv", "uvx"):
            file.writestr(f"uv-1.data/scripts/{name}", f"#!/bin/bash\necho {name} $*")
    serve(instance, monkeypatch, "UV", wheel.read_bytes())
    (instance.root / "bin" / "uv").unlink()
    chat = replace(sky("uvx vllm serve"), is_skyserve=False)
    instance.boot(chat)
    path = instance.without("uv", "uvx")
    assert instance.run("setup.sh", PATH=path).returncode == 0
    assert instance.run("run.sh", PATH=path).stdout == "uvx vllm serve\n"


def test_a_step_that_fails_ends_the_set_up(
    instance: Instance, sky: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is the service started, nor is the instance taken for a prepared one."""
    serve(instance, monkeypatch, "UV", b"no archive")
    (instance.root / "bin" / "uv").unlink()
    instance.boot(sky("uv --version", setup="touch reached"))
    done = instance.run("setup.sh", PATH=instance.without("uv"))
    assert done.returncode == 1
    assert not list(instance.directory.glob(".prepared*"))
    assert not (instance.home / "sky_workdir").exists()


def test_an_image_that_has_a_tool_gets_no_other(instance: Instance, sky: Any) -> None:
    """What its owner chose is used, and nothing is fetched."""
    instance.command("uv", "echo of the image")
    instance.command(
        "conda", "mkdir -p ~/base/etc/profile.d; touch ~/base/etc/profile.d/conda.sh; echo ~/base"
    )
    assert instance.start(sky("uv --version; conda activate x")).startswith("of the image\n")
    assert not any("-o" in call for call in instance.calls("curl"))


def test_what_is_not_what_was_pinned_is_not_run(
    instance: Instance, sky: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download with another checksum ends the set-up, and says which it was."""
    serve(instance, monkeypatch, "CONDA", b"echo original")
    (instance.served / "tool").write_text('echo installed >> "$CALLS"')
    instance.boot(sky("conda activate x"))
    done = instance.run("setup.sh")
    assert done.returncode == 1
    assert "https://example.com/tool isn't what was checked" in done.stderr
    assert "installed" not in instance.calls_file.read_text().splitlines()


def test_uvs_wheels_are_those_that_the_repository_locks() -> None:
    """Address and hash are those of uv.lock, which were checked when it was made."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    wheels = {wheel["url"]: wheel["hash"] for p in packages if p["name"] == "uv" for wheel in p["wheels"]}
    for download in tools.UV.values():
        assert wheels[download.url] == f"sha256:{download.sha256}"


@pytest.mark.parametrize("arch", ["x86_64", "arm64"])
def test_every_tool_is_pinned_for_both_architectures(arch: str) -> None:
    """A service on Graviton finds the same."""
    for tool in (tools.UV, tools.CONDA, tools.MOUNTPOINT, tools.AWS_CLI):
        assert tool[arch].url.startswith("https://")
        assert len(bytes.fromhex(tool[arch].sha256)) == 32
    assert len({t["x86_64"].url for t in (tools.UV, tools.CONDA, tools.MOUNTPOINT, tools.AWS_CLI)}) == 4


def test_the_aws_cli_is_installed_before_a_secret_is_read(
    instance: Instance, service: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image of which we don't know whether it has the CLI gets it; the Deep Learning images have it."""
    chat = service(GOOD + "secrets: {TOKEN: /chat/token}")
    assert "aws.sh" not in user_data(chat, "eu-west-1")
    cli = instance.root / "cli.zip"
    with zipfile.ZipFile(cli, "w") as file:
        file.writestr("aws/install", '#!/bin/bash\nmv "$SERVED/aws" "$(dirname "$CALLS")/bin/"')
        file.writestr("aws/dist/aws", "")
    serve(instance, monkeypatch, "AWS_CLI", cli.read_bytes())
    (instance.root / "bin" / "aws").rename(instance.served / "aws")
    own = replace(chat, image=replace(chat.image, reference="ami-1"), run='echo "$TOKEN"')
    env = instance.boot(own)
    path = instance.without("aws")
    assert instance.run("setup.sh", PATH=path).returncode == 0
    assert instance.run("run.sh", PATH=path, **env).stdout == "secret of /chat/token\n"


def test_a_work_directory_is_unpacked_once(instance: Instance, sky: Any, tmp_path: Path) -> None:
    """Both scripts find its files, modes and links, and keep what they changed after a stop."""
    work = tmp_path / "code"
    (work / "sub").mkdir(parents=True)
    (work / "sub" / "serve.sh").write_text("#!/bin/bash\ncat sub/../linked\n")
    (work / "sub" / "serve.sh").chmod(0o755)
    (work / "data").write_text("data\n")
    (work / "linked").symlink_to("data")
    chat = sky("sub/serve.sh", setup="echo changed >> data", workdir=work)
    assert instance.start(chat) == "data\nchanged\n"
    assert instance.run("run.sh", PORT="8081").stdout == "data\nchanged\n"
    assert instance.run("setup.sh").returncode == 0, "as after a set-up that failed"
    assert instance.calls("aws") == [f"s3 cp --only-show-errors {ARCHIVE.url} files.tar.gz"]
    assert not (instance.directory / "files").exists()


def test_an_archive_that_was_exchanged_is_not_unpacked(instance: Instance, sky: Any, tmp_path: Path) -> None:
    """Whoever can write to the bucket gets no script of theirs run: the user data knows what was packed."""
    for name, text in (("ours", "echo ours"), ("theirs", "echo theirs")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "serve.sh").write_text(text)
    instance.boot(sky("bash serve.sh", setup="true", workdir=tmp_path / "ours"))
    bundle.write(sky("true", workdir=tmp_path / "theirs"), instance.served / "files.tar.gz")
    done = instance.run("setup.sh")
    assert done.returncode == 1
    assert f"{ARCHIVE.url} isn't what was deployed" in done.stderr
    assert not (instance.directory / "files").exists()


def test_a_repository_is_fetched_at_its_commit(instance: Instance, sky: Any, tmp_path: Path) -> None:
    """A branch, a whole commit ID or the beginning of one; what isn't there is said."""
    origin = tmp_path / "origin"
    git = ["git", "-C", str(origin), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(origin)], check=True)
    for content in ("first", "second"):
        (origin / "file").write_text(content)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", content], check=True)
    show = [*git, "rev-parse", "--short", "main~1"]
    short = subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip()
    for ref, content in (("main", "second"), (None, "second"), (short, "first")):
        chat = sky("cat file", workdir=GitRepository(f"file://{origin}", ref))
        assert instance.start(chat) == content
        for mark in instance.directory.glob(".prepared*"):
            mark.unlink()
        shutil.rmtree(instance.home / "sky_workdir")
    instance.boot(sky("cat file", workdir=GitRepository(f"file://{origin}", "nowhere")))
    assert "can't fetch nowhere of file://" in instance.run("setup.sh").stderr


def test_a_private_repositorys_token_stands_in_no_command_line(instance: Instance, sky: Any) -> None:
    """Git asks a helper for it, which reads the secret from the environment."""
    instance.command("git", 'if [ "$1" = -c ]; then eval "${2#*!}"; fi')
    chat = sky("true", workdir=GitRepository("https://example.com/x.git"), secrets={"GIT_TOKEN": "/git"})
    instance.boot(chat)
    done = instance.run("setup.sh")
    assert "password=secret of /git" in done.stdout.splitlines(), done.stderr
    assert not any("secret of" in call for call in instance.calls("git"))


def test_files_are_copied_to_where_they_are_wanted(instance: Instance, sky: Any, tmp_path: Path) -> None:
    """A file, a directory, an object and a prefix: each at its target, below home or anywhere."""
    (tmp_path / "one").write_text("a file")
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "two").write_text("of a directory")
    (instance.served / "model.bin").write_text("an object")
    there = f"{instance.root}/data"
    mounts = (
        FileMount("~/sky_workdir/it's here", tmp_path / "one"),
        FileMount(f"{there}/many", tmp_path / "many"),
        FileMount(f"{there}/model.bin", Bucket("models", "model.bin")),
        FileMount(f"{there}/all", Bucket("models", "llama/8b")),
    )
    said = instance.start(sky(f'cat "it\'s here" {there}/many/two {there}/model.bin', file_mounts=mounts))
    assert said == "a fileof a directoryan object"
    assert (Path(there) / "all" / "synced").exists()
    assert f"s3 sync --only-show-errors s3://models/llama/8b/ {there}/all" in instance.calls("aws")


def test_a_prefix_with_nothing_is_an_error(instance: Instance, sky: Any) -> None:
    """A name that is misspelt fails the set-up instead of leaving an empty directory."""
    mount = FileMount(f"{instance.root}/data", Bucket("models", "empty"))
    instance.boot(sky("true", file_mounts=(mount,)))
    done = instance.run("setup.sh")
    assert done.returncode == 1
    assert "there is nothing at s3://models/empty" in done.stderr


def test_buckets_are_mounted_at_each_start(instance: Instance, sky: Any) -> None:
    """Mountpoint runs in a unit of its own, read-only unless asked; what is mounted already stays."""
    mounts = (
        FileMount(f"{instance.root}/a", Bucket("models", "llama/8b"), MountMode.MOUNT),
        FileMount("~/b", Bucket("data"), MountMode.MOUNT_CACHED, is_writable=True),
    )
    chat = sky("true", setup="true", file_mounts=mounts)
    instance.start(chat)
    runs = instance.calls("systemd-run")
    program = f"--service-type forking {instance.root}/bin/mount-s3"
    assert (
        runs[:2]
        == runs[2:]
        == [
            f"--quiet --collect --unit spotrelay-mount-0 {program} models {instance.root}/a --allow-other"
            " --read-only --prefix llama/8b/",
            f"--quiet --collect --unit spotrelay-mount-1 {program} data {instance.home}/b --allow-other"
            f" --cache {instance.directory}/cache/1",
        ]
    )
    instance.command("mountpoint", "exit 0")
    instance.run("run.sh")
    assert len(instance.calls("systemd-run")) == 4


def test_both_scripts_run_in_the_container(instance: Instance, sky: Any) -> None:
    """It has the host's network, all GPUs, the work directory, and the values by name alone."""
    chat = sky(
        'echo "$MODEL $TOKEN $SKYPILOT_NUM_GPUS_PER_NODE"',
        setup="echo prepared > ~/sky_workdir/done",
        container="vllm/vllm-openai:v1",
        envs={"MODEL": "a b"},
        secrets={"TOKEN": "/token"},
    )
    assert instance.start(chat) == "a b secret of /token 2\n"
    assert (instance.home / "sky_workdir" / "done").exists()
    calls = instance.calls("docker")
    assert calls[0] == "pull --quiet vllm/vllm-openai:v1"
    (create,) = (call for call in calls if call.startswith("create "))
    assert "--network host --ipc host" in create
    assert "--interactive --log-driver none" in create
    assert "--gpus all" in create
    assert f"--volume {instance.home}/sky_workdir:/root/sky_workdir:rslave" in create
    (executed,) = (call for call in calls if call.startswith("exec ") and "setup.sh" in call)
    assert "--env=MODEL --env=TOKEN" in executed
    assert not any("secret of" in call for call in calls)
    order = ["start spotrelay", executed, "stop -t 10 spotrelay", "start --attach --interactive spotrelay"]
    assert [call for call in calls if call in order] == order


def test_a_containers_run_finds_each_value_as_it_is(instance: Instance, sky: Any) -> None:
    """Line breaks, quotes and what looks like a command; what isn't set isn't there, and nothing else is."""
    awkward = "two\nlines '$HOME' \"$(id)\" \\\\ end \n"
    chat = sky(
        'printf "%s|%s|%s" "$A" "${B-none}" "${CALLED-none}"', container="x", envs={"A": awkward, "B": ""}
    )
    env = instance.boot(chat)
    assert instance.run("setup.sh", **env).returncode == 0
    assert instance.run("run.sh", **env, CALLED="yes").stdout == f"{awkward}||none"


def test_a_service_of_gpus_starts_only_with_one(instance: Instance, sky: Any) -> None:
    """What `nvidia-smi` says is said, and `run` isn't begun; nor is a container made without a GPU."""
    instance.command("nvidia-smi", "echo Driver/library version mismatch; exit 18")
    instance.boot(sky("echo runs"))
    done = instance.run("run.sh")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Driver/library version mismatch\nspotrelay: no GPU answers: ")
    (instance.root / "bin" / "nvidia-smi").rename(instance.root / "nvidia-smi")
    assert instance.run("run.sh", PATH=instance.without("nvidia-smi")).stdout == "runs\n", "an own image"
    (instance.root / "nvidia-smi").rename(instance.root / "bin" / "nvidia-smi")
    instance.boot(sky("true", container="x"))
    for _ in range(2):
        done = instance.run("setup.sh")
        assert done.returncode == 1
        assert "no GPU answers yet" in done.stderr
    assert not any(call.startswith("create") for call in instance.calls("docker"))


@pytest.mark.parametrize(
    ("says", "said"), [("", ""), ("cuInit: 803", "rm -rf /usr/local/cuda*/compat")], ids=["starts", "fails"]
)
def test_cuda_is_tried_in_the_container(instance: Instance, sky: Any, says: str, said: str) -> None:
    """With the devices made and listed anew; words for an image whose libraries don't fit the driver."""
    instance.command("nvidia-modprobe", "true")
    instance.command("nvidia-ctk", "true")
    instance.command("python3", f'echo "{says}" >&2; [ -z "{says}" ]', instance.inside)
    instance.boot(sky("echo runs", container="x"))
    assert instance.run("setup.sh").returncode == 0
    done = instance.run("run.sh")
    assert (done.stdout == "runs\n") == (not says)
    assert said in done.stderr
    assert instance.calls("nvidia-modprobe") == ["-u -c 0"]
    assert instance.calls("nvidia-ctk") == ["--quiet cdi generate --output /var/run/cdi/nvidia.yaml"]
    (asked,) = instance.calls("python3")
    assert "cuInit(0)" in asked


def test_sudo_is_nothing_for_root_in_a_container(instance: Instance, sky: Any) -> None:
    """SkyPilot's files call it, and few images have it; what it is asked to keep or set is kept and set."""
    instance.command("id", 'echo "0"')
    script = "sudo -E bash -c 'echo $A'; sudo -H B=c bash -c 'echo $B'; bash -c 'sudo echo $DEBIAN_FRONTEND'"
    assert instance.start(sky(script, container="x", envs={"A": "a"})) == "a\nc\nnoninteractive\n"


def test_a_container_gets_what_skypilot_puts_in(instance: Instance, sky: Any) -> None:
    """What the image lacks, at set-up, for a file in SkyServe's format; if that fails it goes on without."""
    instance.command("id", "echo 0")
    for name in ("curl", "wget", "rsync", "patch", "pip3"):
        instance.command(name, "true")
    chat = sky("true", setup="true", container="x")
    instance.start(chat)
    assert instance.calls("apt-get") == []
    (instance.root / "bin" / "rsync").unlink()
    path = instance.without("rsync")
    assert instance.run("setup.sh", PATH=path).returncode == 0
    wanted = "install -y --no-install-recommends rsync"
    assert instance.calls("apt-get") == ["update", wanted]
    instance.command("apt-get", "exit 100")
    done = instance.run("setup.sh", PATH=path)
    assert done.returncode == 0
    assert "the container lacks rsync" in done.stderr
    instance.boot(replace(chat, is_skyserve=False))
    before = len(instance.calls("apt-get"))
    assert instance.run("setup.sh", PATH=path).returncode == 0
    assert len(instance.calls("apt-get")) == before


def test_after_a_stop_the_container_is_the_same_one(instance: Instance, sky: Any) -> None:
    """It is neither pulled nor made again: what `setup` installed is in it."""
    chat = sky("true", setup="true", container="vllm/vllm-openai")
    instance.start(chat)
    before = len(instance.calls("docker"))
    assert instance.run("run.sh").returncode == 0
    again = [call.split()[0] for call in instance.calls("docker")[before:]]
    assert again == ["stop", "start"]


def test_a_container_without_gpus_or_root(instance: Instance, sky: Any) -> None:
    """Without a GPU none is asked for; another user than root owns the files, at a home of its own."""
    instance.command("docker", 'if [ "$1" = run ]; then echo "1000 /home/ray"; fi')
    mount = FileMount("~/models", Bucket("models"))
    instance.start(on_cpus(sky("true", container="rayproject/ray", file_mounts=(mount,))))
    (create,) = (call for call in instance.calls("docker") if call.startswith("create "))
    assert "--gpus" not in create
    assert f"--volume {instance.home}/models:/home/ray/models:rslave" in create
    assert instance.calls("chown") == [
        f"-R 1000 {instance.home}/{name}" for name in ("sky_workdir", "models")
    ]


def test_an_image_without_bash_is_said_so(instance: Instance, sky: Any) -> None:
    """The one thing that every image must have."""
    instance.command("docker", 'if [ "$1" = run ]; then exit 127; fi')
    instance.boot(sky("true", container="alpine"))
    done = instance.run("setup.sh")
    assert done.returncode == 1
    assert "alpine has no /bin/bash" in done.stderr


def test_docker_is_installed_where_it_is_missing(instance: Instance, sky: Any) -> None:
    """An image for CPUs has none, and Amazon Linux calls it otherwise, and doesn't start it."""
    (instance.root / "bin" / "docker").rename(instance.served / "docker")
    instance.command("apt-get", 'case "$*" in *docker.io) mv "$SERVED/docker" "$(dirname "$0")" ;; esac')
    instance.boot(sky("true", container="alpine"))
    done = instance.run("setup.sh", PATH=instance.without("docker"))
    assert done.returncode == 0, done.stderr
    lock = "-o DPkg::Lock::Timeout=300"
    assert instance.calls("apt-get") == [f"{lock} update -qq", f"{lock} install -y -qq docker.io"]
    assert instance.calls("systemctl") == ["enable --now docker"]


def test_a_package_that_cannot_be_installed_ends_the_set_up(instance: Instance, sky: Any) -> None:
    """There and then, and not at the next step that misses it."""
    (instance.root / "bin" / "docker").unlink()
    path = instance.without("docker")
    for fails in ("*update*", "*docker.io"):
        instance.command("apt-get", f'case "$*" in {fails}) exit 100 ;; esac')
        instance.boot(sky("true", container="alpine"))
        done = instance.run("setup.sh", PATH=path)
        assert done.returncode != 0
        assert "pull" not in done.stderr
        assert instance.calls("systemctl") == []


def test_amazon_linux_has_dnf(instance: Instance, sky: Any) -> None:
    """Its packages have names of their own."""
    (instance.root / "bin" / "docker").rename(instance.served / "docker")
    instance.command("dnf", 'case "$*" in *docker) mv "$SERVED/docker" "$(dirname "$0")" ;; esac')
    instance.boot(sky("true", container="alpine"))
    done = instance.run("setup.sh", PATH=instance.without("docker", "apt-get"))
    assert done.returncode == 0, done.stderr
    assert instance.calls("dnf") == ["install -y -q docker"]
    assert instance.calls("apt-get") == []


def test_a_registry_is_logged_in_to_with_what_the_file_gives(instance: Instance, sky: Any) -> None:
    """The password goes by standard input, and nothing of the login is kept."""
    envs = {"SKYPILOT_DOCKER_USERNAME": "me", "SKYPILOT_DOCKER_SERVER": "ghcr.io"}
    secrets = {"SKYPILOT_DOCKER_PASSWORD": "/password"}
    instance.start(sky("true", container="ghcr.io/me/x", envs=envs, secrets=secrets))
    assert instance.calls("docker")[0] == "login --username me --password-stdin ghcr.io"
    assert "secret of /password" in instance.calls_file.read_text().splitlines()


def test_amazons_registry_is_logged_in_to_with_the_role(instance: Instance, sky: Any) -> None:
    """In the registry's own region, which may be another one; no other registry gets that password."""
    image = "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/chat:1"
    instance.start(sky("true", container=image))
    assert "ecr get-login-password --region us-west-2" in instance.calls("aws")
    assert instance.calls("docker")[0] == (
        "login --username AWS --password-stdin 123456789012.dkr.ecr.us-west-2.amazonaws.com"
    )
    assert "ecr" not in user_data(sky("true", container="vllm/vllm-openai"), "eu-west-1")


def test_scripts_that_are_too_long_come_with_the_files(instance: Instance, sky: Any) -> None:
    """User data stays small, and both run as they would have."""
    chat = sky("echo ran " + "x" * 20_000, setup="echo set up > log\n#" + "y" * 20_000)
    moved = replace(chat, scripts_in_bundle=True)
    assert len(user_data(moved, "eu-west-1").encode()) < 10_000
    assert instance.start(moved).startswith("ran xxx")
    assert (instance.home / "sky_workdir" / "log").read_text() == "set up\n"


def test_a_file_whose_scripts_are_too_long_puts_them_there_by_itself(service: Loader) -> None:
    """16 KiB are EC2's limit, and nobody need know it."""
    assert not service(GOOD).scripts_in_bundle
    lines = "".join(f"  echo {hashlib.sha256(bytes([n % 256, n // 256])).hexdigest()}\n" for n in range(400))
    assert service(GOOD + "setup: |\n" + lines).scripts_in_bundle


def test_scripts_are_compressed_before_that(service: Loader) -> None:
    """It is the same on an instance, and people see less of it in user data."""
    long = service(GOOD + "setup: |\n" + "  echo 0123456789\n" * 1200)
    text = user_data(long, "eu-west-1")
    assert not long.scripts_in_bundle
    assert len(text.encode()) < MAX_BYTES
    assert "0123456789" not in text
    found, short = files(text), files(user_data(service(GOOD), "eu-west-1"))
    assert (found["stop.sh"], found["setup.sh"].count("0123456789")) == (short["stop.sh"], 1200)


def test_what_has_a_token_in_it_stays_for_cdk(service: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed, nobody would put the region in."""
    found = service(GOOD + "secrets: {KEY: /chat/key}\n")
    monkeypatch.setattr(userdata, "MAX_BYTES", 1000)
    text = user_data(found, "${Token[AWS.Region.12]}")
    entries = {Path(entry["path"]).name: entry for entry in yaml.safe_load(text)["write_files"]}
    assert "encoding" in entries["stop.sh"]
    assert "--region '${Token[AWS.Region.12]}'" in entries["run.sh"]["content"]


def test_a_file_says_what_its_instances_get(service: Loader, tmp_path: Path) -> None:
    """Its words decide on the shell; its fields arrive."""
    text = GOOD.replace("  surge: 1\n", "")
    chat = service(f"{text}workdir: {tmp_path}\nfile_mounts:\n  /models: s3://models/llama\n")
    assert chat.is_skyserve
    assert chat.workdir == tmp_path
    assert chat.file_mounts == (FileMount("/models", Bucket("models", "llama")),)
    assert not service(GOOD).is_skyserve
    container = GOOD.replace("  ports", "  image_id: docker:me/chat:1\n  ports")
    assert service(container).container == "me/chat:1"
    registry = container + "envs: {SKYPILOT_DOCKER_SERVER: ghcr.io}"
    assert service(registry).container == "ghcr.io/me/chat:1"


def test_the_same_files_make_the_same_archive(sky: Any, tmp_path: Path) -> None:
    """Neither time nor owner nor umask is in it, and a changed byte or mode makes another."""
    work = tmp_path / "code"
    work.mkdir()
    (work / "a").write_text("a")
    chat = sky("true", workdir=work)
    first = bundle.write(chat, tmp_path / "first.tar.gz")
    os.utime(work / "a", (1, 1))
    (work / "a").chmod(0o600)
    assert bundle.write(chat, tmp_path / "second.tar.gz") == first
    assert (tmp_path / "first.tar.gz").read_bytes() == (tmp_path / "second.tar.gz").read_bytes()
    assert (tmp_path / "first.tar.gz").read_bytes()[4:8] == bytes(4), "no time in gzip's header"
    with tarfile.open(tmp_path / "first.tar.gz") as archive:
        assert archive.getnames() == ["workdir", "workdir/a"]
    (work / "a").chmod(0o700)
    assert bundle.write(chat, tmp_path / "third.tar.gz") != first


def whole(sky: Any, tmp_path: Path) -> dict[str, str]:
    """Every script there is, of services that ask for everything at once: path → content."""
    mounts = (
        FileMount("/a", Bucket("models", "p"), MountMode.MOUNT_CACHED),
        FileMount("/b", Bucket("models", "q")),
        FileMount("/c", tmp_path),
    )
    chat = sky(
        "conda activate x; uv run y",
        setup="true",
        container="123456789012.dkr.ecr.us-west-2.amazonaws.com/x",
        workdir=tmp_path,
        file_mounts=mounts,
        secrets={"A": "/a"},
    )
    inside = replace(chat, run="uv run y", image=replace(chat.image, reference="ami-1"))
    outside = replace(chat, container=None, workdir=GitRepository("https://example.com/x", "main"))
    slots = replace(sky('serve --port "$PORT"'), slots={"g6.12xlarge": 4})
    found: dict[str, str] = {}
    for number, service in enumerate((inside, outside, slots)):
        text = user_data(service, "eu-west-1", ARCHIVE)
        assert len(text.encode()) < MAX_BYTES
        for entry in config(text)["write_files"]:
            found[f"{number}{entry['path']}"] = entry["content"]
    return {path: text for path, text in found.items() if path.endswith(".sh")}


def test_no_script_has_a_mistake_that_shellcheck_finds(sky: Any, tmp_path: Path) -> None:
    """Nor is there one that isn't looked at."""
    (tmp_path / "files").mkdir()
    found = whole(sky, tmp_path / "files")
    assert {path.split("/opt/spotrelay/")[1] for path in found} == SCRIPTS
    for path, text in found.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    # Not followed are files that the instance has; SKYPILOT_* are exported together, by their beginning.
    # Meant are `a && b || die`, and what another shell expands.
    shellcheck = [
        str(Path(sys.executable).parent / "shellcheck"),
        "--shell=bash",
        "--format=gcc",
        "--exclude=SC1090,SC1091,SC2015,SC2016,SC2034",
    ]
    done = subprocess.run([*shellcheck, *found], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.stderr) == ([], "")
