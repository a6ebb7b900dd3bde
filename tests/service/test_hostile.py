"""Hostile service files: what they hold arrives as it was written, or is refused where it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spotrelay.file.compile import runtime_document
from spotrelay.file.instance import envfile
from spotrelay.file.service import Service, ServiceFileError, load, user_data
from spotrelay.file.source.naming import slug
from spotrelay.plane.core.names import SERVICE_NAME
from spotrelay.plane.core.spec import ServiceSpec

from .conftest import GOOD, Loader, Refuser
from .test_bad_input import REPLICAS, changed
from .test_cli import run
from .test_userdata import files

HOSTILE = [
    "two\nlines",
    "\"'`\\",
    "%n %% %s %i $( touch x ) ${HOME} $$ `id`",
    "a: {b: [c, !!python/object:os.system 'x']} # no comment\n---\n- *alias",
    "{{ user }} {% for m in messages %}",
    "${AWS::Region} ${Tokens[0]} #{x} !Ref A",
    "é 模型 \U0001f999 \u2028 \ufeff",
]

anything = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\"'\\$`%{}[]#:!-"), max_size=30
)


def as_json(values: object) -> str:
    """A service file as JSON, which is YAML, with characters beyond U+FFFF as pairs of surrogates."""
    return json.dumps(values, ensure_ascii=True)


def file_with(text: str) -> dict[str, object]:
    """A service file that holds this text wherever text may be."""
    probe = {
        "path": "/v1",
        "post_data": {"prompt": text.replace("$", "$$"), text.replace("$", "S"): [text == ""]},
    }
    return {
        "service": {"replicas": 1, "surge": 1, "readiness_probe": probe},
        "resources": {"accelerators": ["A10G", "L4"], "ports": 80},
        "envs": {"TEXT": text},
        "setup": f"# {text}",
        "run": f"serve {text}",
    }


def arrives(service: Service, text: str) -> None:
    """It holds the text unchanged where the instance and the controller read it."""
    written = files(user_data(service, "us-east-1"))
    assert envfile.parse(written["service.env"])["TEXT"] == text
    assert written["run.sh"].endswith(f"\nserve {text}".rstrip("\n") + "\n")
    assert written["setup.sh"].endswith(f"\n# {text}".rstrip("\n") + "\n")
    document = runtime_document.document(
        service,
        subnets={"subnet-1": "us-east-1a"},
        launch_template_id="lt-1",
        version="3",
        target_group_arn="arn",
        load_balancer="app/chat/1",
        address="http://chat-1.us-east-1.elb.amazonaws.com",
    )
    assert not {"{{", "${", "#{"} & {document[at : at + 2] for at in range(len(document))}
    spec = ServiceSpec.from_json(document)
    assert spec.version == 3
    assert spec.readiness_probe
    assert spec.readiness_probe.post_data
    assert spec.readiness_probe.post_data["prompt"] == text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_arrives_as_it_was_written(service: Loader, text: str) -> None:
    """Quotes, newlines, expansions, templates and YAML in YAML reach instance and controller unchanged."""
    arrives(service(as_json(file_with(text))), text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=100)
@given(anything)
@example("\x00")
@example("\r")
@example("{{resolve:ssm:x}}")
@example("${Token[TOKEN.1]}")
@example("\x85\u2028")
def test_any_text_arrives_or_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    """Whatever text a file holds: unchanged in user data and document, or a problem that names its field."""
    path = tmp_path / "chat.yaml"
    path.write_text(as_json(file_with(text)), encoding="utf-8")
    try:
        service = load(path)
    except ServiceFileError as error:
        problems = error.problems
    else:
        arrives(service, text)
        return
    assert {problem.field.partition(".")[0] for problem in problems} <= {"service", "envs", "setup", "run"}
    assert all(len(str(problem).splitlines()) == 1 for problem in problems)


NAMES: dict[str, tuple[str, Callable[[str], dict[str, object]]]] = {  # a good one, and where it stands
    "service.health_check": ("/health", lambda name: {"service": {"replicas": 1, "health_check": name}}),
    "service.readiness_probe.path": (
        "/v1",
        lambda name: {"service": {"replicas": 1, "readiness_probe": {"path": name, "post_data": {"n": 1}}}},
    ),
    "envs": ("MODEL", lambda name: {"envs": {name: "x"}}),
    "secrets": ("TOKEN", lambda name: {"secrets": {name: "/chat/token"}}),
    "secrets.TOKEN": ("/chat/token", lambda name: {"secrets": {"TOKEN": name}}),
    "resources.image": ("ami-0123456789abcdef0", lambda name: resources(image=name)),
    "resources.root_device": ("/dev/xvda", lambda name: resources(image="ami-00000000", root_device=name)),
    "resources.zones": ("us-east-1a", lambda name: resources(zones=[name, "us-east-1b"])),
    "resources.regions": ("us-east-1", lambda name: resources(regions=[name])),
    "resources.exclude": ("g5", lambda name: resources(exclude=[name])),
    "resources.instance_types": ("g5.xlarge", lambda name: resources(instance_types=[name])),
}

TAILS = ["\n", "\nid", " x", "'", '"', "`id`", "$(id)", "${HOME}", "\\", ": {a: b}", "\x00", "\u2028", "é"]
"""What would end a line, a quotation or a value if a name were put somewhere as it is."""


def resources(**more: object) -> dict[str, object]:
    """The resources of a good file, with more."""
    return {"resources": {"accelerators": ["A10G", "L4"], "ports": 80, **more}}


@pytest.mark.parametrize("field", NAMES)
def test_names_and_paths_are_nothing_else(field: str, service: Loader, problems: Refuser) -> None:
    """Whatever becomes part of a command, a path, a name or a request holds no character that ends one."""
    good, put = NAMES[field]
    file = {"service": {"replicas": 1}, **resources(), "run": "serve"}
    service(as_json({**file, **put(good)}))
    # A path of HTTP's stands in a request's first line only, where any visible character is itself.
    is_url_path = field in ("service.health_check", "service.readiness_probe.path")
    for tail in (tail for tail in TAILS if not (is_url_path and re.fullmatch("[!-~]+", tail))):
        (problem,) = problems(as_json({**file, **put(good + tail)}))
        assert problem.field.startswith(field), tail
        assert len(str(problem).splitlines()) == 1


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@example("模型")
@example("3D Model_v2 (new!)")
@example("x" * 20_000)
def test_any_name_becomes_one_that_aws_takes(text: str) -> None:
    """Whatever a service is called, nothing or a right name comes of it, and that stays as it is."""
    name = slug(text)
    assert name == "" or re.fullmatch(SERVICE_NAME, name)
    assert slug(name) == name


def probe_with(data: str) -> str:
    """The good file with a probe that POSTs this."""
    return changed(REPLICAS, f"replicas: 2\n  readiness_probe: {{path: /v1, post_data: {data}}}")


PROBE_DATA = "service.readiness_probe.post_data"

REFUSED = {  # name: (text, the beginning of the error after "chat.yaml:")
    "half of a surrogate pair": (
        GOOD + 'envs:\n  FACE: "\\ud83e"',
        "9:9: envs.FACE: has half of a surrogate pair, which is no character: write the character itself",
    ),
    "half of a pair in JSON text": (
        probe_with("""'{"face": "\\ud83e"}'"""),
        f"3:32: {PROBE_DATA}: expected fields, or the same as JSON text: not JSON: ",
    ),
    "a reference that CloudFormation would resolve": (
        GOOD + "envs:\n  KEY: '{{resolve:secretsmanager:key}}'",
        "9:8: envs.KEY: {{resolve: can't stand here: CloudFormation would put a value there, "
        "in the clear: name a secret under `secrets`",
    ),
    "a mark of the CDK's": (
        changed("run: python3 serve.py", "run: echo ${Token[TOKEN.1]}"),
        "7:6: run: ${Token[ can't stand here: it is the CDK's mark for a value of its own: "
        "give the variable another name",
    ),
    "a null byte in an env": (
        GOOD + 'envs:\n  NUL: "\\0"',
        "9:3: envs.NUL: control characters other than tab and newline can't stand in an environment variable",
    ),
    "a number that JSON lacks": (
        probe_with("{temperature: .inf}"),
        f"3:32: {PROBE_DATA}: expected fields, or the same as JSON text: not JSON: Out of range float",
    ),
    "such a number in JSON text": (
        probe_with("""'{"temperature": NaN}'"""),
        f"3:32: {PROBE_DATA}: expected fields, or the same as JSON text: not JSON: Out of range float",
    ),
    "JSON text nested without end": (
        probe_with("'" + '{"a":' * 9000 + "1" + "}" * 9000 + "'"),
        f"3:32: {PROBE_DATA}: expected fields, or the same as JSON text: not JSON: ",
    ),
    "an enormous number": (
        changed(REPLICAS, "replicas: 0x" + "f" * 9000),
        "2:3: service.replicas: expected a whole number from 0 to 1000, got '0xfff",
    ),
    "a key that clears the screen": (
        GOOD + '"\\e[2J\\n": 1',
        "8:1: '\\x1b[2J\\n': unknown field: ",
    ),
    "a volume that the default image doesn't fit into": (
        changed("ports: 8081", "ports: 8081\n  disk_size: 74"),
        "7:3: resources.disk_size: expected 75 GiB or more, which the default image takes, got 74: "
        "EC2 would refuse every launch",
    ),
    "a root device that the default image hasn't": (
        changed("ports: 8081", "ports: 8081\n  root_device: /dev/xvda"),
        "7:3: resources.root_device: the default image's root device is /dev/sda1: "
        "remove this, or name the image that has another in spotrelay.image",
    ),
    "a root device that is a path": (
        changed("ports: 8081", "ports: 8081\n  image: ami-00000000\n  root_device: /dev/nvme0n1"),
        "8:3: resources.root_device: expected a device name such as /dev/sda1 or /dev/xvda, "
        "got '/dev/nvme0n1'",
    ),
    "faster than EC2 loads a snapshot": (
        changed("ports: 8081", "ports: 8081\n  disk_initialization_rate: 301"),
        "7:3: resources.disk_initialization_rate: expected a whole number of MiB/s from 100 to 300, got 301",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_arrive_is_refused_where_it_stands(name: str, problems: Refuser) -> None:
    """One error on one line with file, line, field and remedy, and never another exception."""
    text, expected = REFUSED[name]
    (problem,) = problems(text)
    assert str(problem).startswith(f"chat.yaml:{expected}")


def test_a_document_that_parameter_store_refuses_is_refused_with_its_size(problems: Refuser) -> None:
    """8 KB are checked before anything is deployed, in the widest region, and the largest part is named."""
    (problem,) = problems(probe_with(f"{{prompt: {'x' * 8000}}}"))
    assert (problem.line, problem.field) == (3, PROBE_DATA)
    assert "characters long, and Parameter Store takes 8192: make it shorter" in problem.message
    (problem,) = problems(
        changed("ports: 8081", f"ports: 8081\n  exclude: [{', '.join(f'g{i}.x' for i in range(1500))}]")
    )
    assert (problem.line, problem.field) == (7, "resources.exclude")


def test_a_documents_size_is_that_of_the_longest(service: Loader) -> None:
    """No document with six zones, in any region, is longer than what was checked."""
    chat = service(probe_with("{prompt: Hello}"))
    region = "ap-southeast-7"
    group = f"targetgroup/{'x' * 32}/{'f' * 16}"
    longest = runtime_document.document(
        chat,
        subnets={f"subnet-{'f' * 16}{number}": f"{region}{zone}" for number, zone in enumerate("abcdef")},
        launch_template_id=f"lt-{'f' * 17}",
        version="12345",
        target_group_arn=f"arn:aws:elasticloadbalancing:{region}:123456789012:{group}",
        load_balancer=f"app/{'x' * 32}/{'f' * 16}",
        address=f"http://internal-{'x' * 32}-1234567890.{region}.elb.amazonaws.com",
    )
    assert len(longest) <= runtime_document.size(chat) < 1.1 * len(longest)


def test_validate_prints_brackets_as_they_are(tmp_path: Path) -> None:
    """A path that looks like the terminal library's markup is shown, and doesn't end the command."""
    file = tmp_path / "chat.yaml"
    file.write_text(changed(REPLICAS, "replicas: 2\n  health_check: '/[/bold]'"), encoding="utf-8")
    code, out, _ = run(file)
    assert code == 0
    assert "GET /[/bold]" in out
