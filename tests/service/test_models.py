"""Models of a service file: what may be said, what an instance gets, and when `run` starts."""

from __future__ import annotations

import ast
import json
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from spotrelay.file.instance import bundle, fetch, models, userdata
from spotrelay.file.service import load, pinned, user_data
from spotrelay.file.values.files import Bucket, Model, WebFile

from .conftest import GOOD, Loader, Refuser
from .test_userdata import ENABLED, config, files

ROOT = Path(__file__).parents[2]

MODELS = """\
spotrelay:
  models:
    - source: s3://my-bucket/llama3-8b/
      path: /models/llama3-8b
    - {source: "s3://other", path: /models/adapters}
"""

FIRST = ["systemctl", "enable", "--now", "--no-block", "spotrelay-models.service"]


def test_models_are_what_the_file_says(service: Loader) -> None:
    """A prefix or a whole bucket, each with its directory."""
    assert service(GOOD + MODELS).models == (
        Model(Bucket("my-bucket", "llama3-8b"), "/models/llama3-8b"),
        Model(Bucket("other"), "/models/adapters"),
    )


def said(source: str = "s3://my-bucket/llama", path: str = "/models/llama", more: str = "") -> str:
    """A service with one model."""
    return f'{GOOD}{more}spotrelay: {{models: [{{source: "{source}", path: {path}}}]}}\n'


SHA256 = "0123456789ABCDEF" * 4


def file(source: str = "https://x.org/q4.gguf", path: str = "/models/q4.gguf", sha256: str = SHA256) -> str:
    """A service with a file of a web server."""
    return said(source, path).replace("}]}", f", sha256: {sha256}}}]}}")


ANOTHER_PLACE = "would lie one within the other: name another place"

BAD = {
    "a path of this machine": (
        said("./llama"),
        "8:23: spotrelay.models[0].source: expected s3://bucket/prefix, or a file's https:// address, got"
        " './llama'",
    ),
    "another store": (
        said("gs://bucket/llama"),
        "and this is Google's storage: copy it to a bucket on S3 first",
    ),
    "Hugging Face itself": (said("hf://org/llama@main"), "the command spotrelay mirror, and name that"),
    "a web address in the clear": (said("http://x.org/llama"), "http://: name its https:// address"),
    "no hash": (
        said("https://x.org/q4.gguf"),
        "spotrelay.models[0].sha256: is missing, and what comes from a web server is used only if it is"
        " right: what `sha256sum` says of the file; Hugging Face shows it",
    ),
    "half a hash": (file(sha256="'0123'"), "sha256: expected 64 hexadecimal digits: what `sha256sum` says"),
    "a number as a hash": (
        file(sha256="123"),
        "sha256: expected the SHA-256 of what https:// names",
    ),
    "a hash of a prefix": (
        file("s3://bucket/x"),
        "spotrelay.models[0].sha256: is of a file at an https:// address; what is in a bucket `up` pins",
    ),
    "a file in a directory": (
        file("https://x.org/a/q4.gguf?download=true", "/models/"),
        "spotrelay.models[0].path: expected the file's own path, such as /models/q4.gguf, got '/models/'",
    ),
    "a directory of the web": (file("https://x.org/a/"), "expected the address of one file, such as https"),
    "a host of the web": (file("https://x.org"), "expected the address of one file, such as https"),
    "no host": (file("https:///a"), "expected an address such as https://host/model.gguf"),
    "a part of a file": (file("https://x.org/a#b"), "without # and spaces"),
    "a space": (file("https://x.org/a b"), "without # and spaces"),
    "an impossible port": (file("https://x.org:x/a"), "expected an address such as https://host/model.gguf"),
    "a private network": (
        file("https://10.0.0.1/a"),
        "is in a private network, where nothing is fetched from",
    ),
    "an instance's metadata": (file("https://169.254.169.254/a"), "is in a private network, where nothing"),
    "this machine": (file("https://localhost:8000/a"), "is in a private network, where nothing is fetched"),
    "peers": (
        file().replace("{models", "{peers: true, models"),
        "spotrelay.models[0].source: with spotrelay.peers models come from buckets: of this file's",
    ),
    "a wildcard": (said("s3://bucket/llama*"), "expected s3://bucket/prefix, without *, ? and $"),
    "a comma": (said("s3://bucket/a,b"), "expected s3://bucket/prefix, without a comma"),
    "a relative path": (
        said(path="models/llama"),
        "spotrelay.models[0].path: expected an absolute path such as /models/llama3-8b, got 'models/llama'",
    ),
    "a home directory": (said(path="~/llama"), "expected an absolute path"),
    "everything": (said(path="/"), "would hide the whole directory"),
    "out of it": (said(path="/models/../x"), "without `..`"),
    "no path": (
        f"{GOOD}spotrelay: {{models: [{{source: 's3://bucket/x'}}]}}\n",
        "spotrelay.models[0].path: ",
    ),
    "no list": (
        f"{GOOD}spotrelay: {{models: s3://bucket/x}}\n",
        "spotrelay.models: expected a list of models, each with fields (source, path)",
    ),
    "a place of file_mounts": (
        said(path="/data/llama", more="file_mounts: {/data: s3://bucket/x}\n"),
        f"spotrelay.models[0].path: /data/llama and /data {ANOTHER_PLACE}",
    ),
    "two at one place": (
        GOOD + MODELS.replace("/models/adapters", "/models/llama3-8b/adapters"),
        f"spotrelay.models[1].path: /models/llama3-8b/adapters and /models/llama3-8b {ANOTHER_PLACE}",
    ),
}


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD)
def test_a_model_that_cannot_be_is_refused_with_the_remedy(text: str, words: str, problems: Refuser) -> None:
    """One error, at its place."""
    (problem,) = problems(text)
    assert words in str(problem)


@pytest.mark.parametrize(
    "source",
    ["https://me:secret-1@x.org/a", "https://x.org/a?b=c&X-Amz-Signature=secret-1", "https://x.org/a?token="],
)
def test_no_key_is_in_an_address(source: str, problems: Refuser) -> None:
    """Everybody who may read a launch template would have it; nor does the error show it."""
    (problem,) = problems(file(source))
    assert "spotrelay.models[0].source: has credentials in it, and the launch template shows it" in str(
        problem
    )
    assert "secret-1" not in str(problem)


def test_a_file_of_a_web_server_is_a_script_more(service: Loader) -> None:
    """Its program comes in the fetcher's place, for buckets, too; the file itself says which file it is."""
    more = f"source: 'https://x.org/q4.gguf?a=b', path: /models/q4.gguf, sha256: {SHA256}"
    chat = service(f"{GOOD}{MODELS}    - {{{more}}}\n")
    assert chat.models[2] == Model(WebFile("https://x.org/q4.gguf?a=b", SHA256.lower()), "/models/q4.gguf")
    found = files(user_data(pinned(chat, {}, {"s3://other": "0" * 64}, {}), "us-east-1"))
    assert (
        "ExecStart=/usr/bin/env python3 -I /opt/spotrelay/web.py --keep\n"
        in found["spotrelay-models.service"]
    )
    assert 'python3 -I "$SPOTRELAY_DIR/web.py" || exit 1\n' in found["run.sh"]
    assert json.loads(found["fetch.json"]) == [
        {"bucket": "my-bucket", "prefix": "llama3-8b", "path": "/models/llama3-8b"},
        {"bucket": "other", "prefix": "", "path": "/models/adapters", "digest": "0" * 64},
        {"url": "https://x.org/q4.gguf?a=b", "sha256": SHA256.lower(), "path": "/models/q4.gguf"},
    ]
    shipped = models.scripts(chat)
    assert shipped == {"fetch.py": models.script(), "web.py": models.web_script()}
    assert "import fetch\n" in shipped["web.py"]
    assert "spotrelay.file" not in shipped["web.py"]
    assert "web.py" not in models.scripts(service(GOOD + MODELS))
    assert "web.py" not in user_data(service(GOOD + MODELS), "us-east-1")


def test_an_instance_fetches_from_its_boot_on(service: Loader) -> None:
    """By a unit that waits for nothing but network and instance store, and is started first."""
    text = user_data(service(GOOD + MODELS), "us-east-1")
    assert config(text)["runcmd"] == [["systemctl", "daemon-reload"], FIRST, ENABLED]
    unit = files(text)["spotrelay-models.service"]
    assert "After=network-online.target dlami-nvme.service\n" in unit
    assert "ExecStart=/usr/bin/env python3 -I /opt/spotrelay/fetch.py --keep\n" in unit
    assert json.loads(files(text)["fetch.json"]) == [
        {"bucket": "my-bucket", "prefix": "llama3-8b", "path": "/models/llama3-8b"},
        {"bucket": "other", "prefix": "", "path": "/models/adapters"},
    ]


def test_what_was_deployed_is_pinned(service: Loader) -> None:
    """Another model is another version of the instances; one that nobody looked for is taken as it is."""
    chat = service(GOOD + MODELS)
    deployed = pinned(chat, {}, {"s3://my-bucket/llama3-8b": "0" * 64, "s3://elsewhere": "1" * 64}, {})
    plan = json.loads(files(user_data(deployed, "us-east-1"))["fetch.json"])
    assert [one.get("digest") for one in plan] == ["0" * 64, None]


def test_run_waits_for_models_and_set_up_does_not(service: Loader) -> None:
    """The fetcher's failure is the service's, so that its words are told."""
    found = files(user_data(service(f"{GOOD}setup: echo\n{MODELS}"), "us-east-1"))
    assert "fetch.py" not in found["setup.sh"]
    wait, run = found["run.sh"].index("fetch.py"), found["run.sh"].index("python3 serve.py")
    assert wait < run
    assert 'python3 -I "$SPOTRELAY_DIR/fetch.py" || exit 1\n' in found["run.sh"]


@pytest.mark.parametrize(("code", "words"), [(0, "served\n"), (1, "")])
def test_run_starts_once_the_fetcher_has_all(code: int, words: str, service: Loader, tmp_path: Path) -> None:
    """In bash: after a failure the file's script isn't run."""
    chat = replace(service(GOOD + MODELS), run="echo served", instance_types=())
    found = files(user_data(chat, "us-east-1"))
    (tmp_path / "run.sh").write_text(found["run.sh"].replace("nvidia-smi", "true"))
    (tmp_path / "fetch.py").write_text(f"raise SystemExit({code})")
    done = subprocess.run(["bash", str(tmp_path / "run.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, words)


def test_a_container_sees_its_models(service: Loader) -> None:
    """At the same path; whoever it runs as may read them, and nothing is handed to it."""
    text = GOOD.replace("  ports", "  image_id: docker:vllm/vllm-openai:v0.11.0\n  ports") + MODELS
    assert (
        "  share /models/llama3-8b /models/llama3-8b\n"
        in files(user_data(service(text), "us-east-1"))["prepare.sh"]
    )


def test_a_service_without_models_pays_nothing(service: Loader) -> None:
    """No unit, no script, no word in run.sh."""
    text = user_data(service(GOOD), "us-east-1")
    assert config(text)["runcmd"] == [["systemctl", "daemon-reload"], ENABLED]
    assert not [path for path in files(text) if "fetch" in path or "models" in path]
    assert "fetch" not in text


def test_the_fetcher_is_shipped_without_its_explanations() -> None:
    """The same statements, but for texts that nothing reads."""

    class Bare(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            self.generic_visit(node)
            body = getattr(node, "body", None)
            if isinstance(body, list):
                kept = [one for one in body if not is_text(one)]
                node.body = kept or [ast.Expr(ast.Constant(...))]  # type: ignore[attr-defined]
            return node

    def is_text(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and node.value.value is not ...
        )

    written = Path(fetch.__file__).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(models.script())) == ast.dump(Bare().visit(ast.parse(written)))
    assert '"""' not in models.script()


def test_the_largest_example_has_room_for_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where EC2's 16 KiB don't take the fetcher, it comes with the service's files, and begins then."""
    monkeypatch.chdir(ROOT)
    text = (ROOT / "services" / "llama3.yaml").read_text(encoding="utf-8")
    model = f"{{source: s3://{'b' * 63}/{'p' * 100}, path: /opt/dlami/nvme/llama3-8b}}"
    (tmp_path / "llama3.yaml").write_text(
        text.replace("spotrelay:\n", f"spotrelay:\n  models: [{model}]\n", 1)
    )
    llama3 = load(tmp_path / "llama3.yaml")
    assert userdata.size(llama3) <= userdata.MAX_BYTES
    found = files(user_data(llama3, "us-east-1"))
    assert "fetch.py" not in found
    assert "ConditionPathExists=/opt/spotrelay/fetch.py\n" in found["spotrelay-models.service"]
    begins = found["prepare.sh"].index("systemctl start --no-block spotrelay-models.service")
    assert (
        found["prepare.sh"].index("unpack s3://")
        < begins
        < found["prepare.sh"].index("rm -rf files\n", begins)
    )
    bundle.write(llama3, tmp_path / "files.tar.gz")
    with tarfile.open(tmp_path / "files.tar.gz") as archive:
        packed = archive.extractfile("fetch.py")
        assert packed
        assert packed.read().decode() == models.script()


PEERS = MODELS.replace("  models:", "  peers: true\n  models:")


def test_peers_are_a_script_more(service: Loader, tmp_path: Path) -> None:
    """The unit and run.sh start it in the fetcher's place; a service without has neither it nor its name."""
    peers = service(GOOD + PEERS)
    found = files(user_data(peers, "us-east-1"))
    assert (
        "ExecStart=/usr/bin/env python3 -I /opt/spotrelay/peers.py --keep\n"
        in found["spotrelay-models.service"]
    )
    assert "Restart=on-failure\n" in found["spotrelay-models.service"]
    assert 'python3 -I "$SPOTRELAY_DIR/peers.py" || exit 1\n' in found["run.sh"]
    assert "mv files/fetch.py files/peers.py .\n" in found["prepare.sh"]
    bundle.write(peers, tmp_path / "files.tar.gz")
    with tarfile.open(tmp_path / "files.tar.gz") as archive:
        packed = archive.extractfile("peers.py")
        assert packed
        text = packed.read().decode()
        assert archive.extractfile("fetch.py")
    assert text == models.peers_script()
    assert "import fetch\n" in text
    assert "spotrelay.file" not in text
    without = user_data(service(GOOD + MODELS), "us-east-1")
    assert "peers" not in without
    assert "Restart" not in files(without)["spotrelay-models.service"]


@pytest.mark.parametrize("label", ["team/search", "cost center", "_index"])
def test_peers_need_tags_that_an_instance_may_read(service: Loader, label: str) -> None:
    """Where a label's key has another character no instance would be launched, so there are no peers."""
    found = service(GOOD.replace("  ports", f"  labels: {{{label}: x, team: y}}\n  ports") + PEERS)
    assert not found.peers
    (notice,) = found.notices
    assert notice.field == "spotrelay.peers"
    assert notice.message.startswith("no replica fetches from another: ")
    assert notice.message.endswith(f"rename the label {label}")
    assert service(GOOD.replace("  ports", "  labels: {team:a_b@c: x}\n  ports") + PEERS).peers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{GOOD}spotrelay: {{peers: true}}\n",
            "spotrelay.peers: replicas would fetch models from each other, and",
        ),
        (
            GOOD.replace("8081", "7420") + PEERS,
            "resources.ports: with spotrelay.peers models are served on port 7420",
        ),
        (
            GOOD + MODELS.replace("  models:", "  peers: 2\n  models:"),
            "spotrelay.peers: expected true or false, got 2",
        ),
    ],
)
def test_peers_that_cannot_be_are_refused(problems: Refuser, text: str, expected: str) -> None:
    """With nothing to fetch, or where the service listens."""
    (problem,) = problems(text)
    assert expected in str(problem)


def test_replicas_that_share_an_instance_keep_the_port_free(problems: Refuser) -> None:
    """The last of them listens some ports above the file's."""
    text = """\
service: {replicas: 2}
resources: {accelerators: A10G, ports: 7414}
run: serve --port $PORT
spotrelay:
  replicas_per_instance: auto
  peers: true
  models: [{source: "s3://other", path: /models/adapters}]
"""
    (problem,) = problems(text)
    assert "models are served on port 7420" in str(problem)
