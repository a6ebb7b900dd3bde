"""`start_within` in `validate`, `up` and `cold-start`: what is there counts; who doesn't ask pays nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from spotrelay.file.service import Service, load, pinned, user_data
from spotrelay.operator.advice.start_plan import Verdict
from spotrelay.operator.advice.start_time import (
    VLLM,
    Image,
    Measured,
    Packed,
    Phase,
    Span,
    Weights,
    usual_pack,
)
from spotrelay.operator.aws.models import Stored
from spotrelay.operator.aws.packs import Made, below
from spotrelay.operator.cli import cold_start, deploying, packs, start_plans
from spotrelay.operator.cli.account import Account as Asked
from spotrelay.operator.cli.app import app
from spotrelay.operator.cli.models import Found as Models
from spotrelay.operator.cli.start_plans import Seen, lines, looked_at, plan_of, setting_of
from spotrelay.operator.deploy.difference import THE_IMAGE, Difference
from spotrelay.operator.look.cold_start import cold_starts
from spotrelay.plane.aws.quotas import Quotas
from spotrelay.plane.core.ports import Denied, Unavailable
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec
from tests.advice.test_start_time import PAGE, started
from tests.cli.test_pack import BUCKET, FILE, MANIFEST, NEW, Account, account, store, text  # noqa: F401
from tests.examples import demo_spec
from tests.json_documents import check
from tests.operate.test_status import SPEC, seen

ASKS = """\
name: chat
service: {replicas: 1, readiness_probe: /health}
resources: {accelerators: L4, cpus: 8+, ports: 8081, use_spot: true, disk_size: 128}
spotrelay: {start_within: 300s, pack: {paths: [/opt/vllm]}}
envs: {MODEL_NAME: meta-llama/Meta-Llama-3-8B-Instruct}
setup: make-it
run: vllm serve "$MODEL_NAME"
"""

DEMO = ASKS.replace("name: chat", "name: demo")

Loads = Callable[..., Service]


@pytest.fixture
def chat(tmp_path: Path) -> Loads:
    """Loads the file with changes."""

    def loads(*changes: tuple[str, str]) -> Service:
        written = ASKS
        for old, new in changes:
            assert old in written
            written = written.replace(old, new)
        (tmp_path / "chat.yaml").write_text(written)
        return load(tmp_path / "chat.yaml")

    return loads


def validate(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    result = CliRunner().invoke(app, ["validate", *arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout, result.stderr


def test_validate_tells_it_of_who_asks(chat: Loads, tmp_path: Path) -> None:
    """In the table, and as JSON; a goal that isn't kept is no error."""
    chat()
    code, out, _ = validate(str(tmp_path / "chat.yaml"))
    assert code == 0
    assert "5 min: not kept as it is. A start takes 464 to 795 s, worked out" in out
    assert "1. spotrelay pack" in out
    code, out, _ = validate("--json", str(tmp_path / "chat.yaml"))
    document = json.loads(out)
    check("validate", document)
    (plan,) = document["starts"]
    assert (plan["within_s"], plan["verdict"], plan["with_means"]) == (300, "missed", "open")
    assert plan["types"][0]["phases"][0] == {
        "name": "boot",
        "is_measured": False,
        "why": "EC2 and the image",
        "shortest_s": 40,
        "longest_s": 60,
    }


def test_who_does_not_ask_is_told_nothing(chat: Loads, tmp_path: Path) -> None:
    """No row, no field; and `up` reads no manifest, no stack and no row for it."""
    quiet = chat(("start_within: 300s, ", ""))
    path = str(tmp_path / "chat.yaml")
    assert "start within" not in validate(path)[1]
    assert "starts" not in json.loads(validate("--json", path)[1])
    assert plan_of(quiet, Seen()) is None
    assert list(lines(quiet, Seen())) == []
    deployer: Any = SimpleNamespace(_services=[quiet])
    deploying.Deployer._tell_starts(deployer, None)  # type: ignore[arg-type]


def test_the_page_shows_what_validate_says() -> None:
    """The beginning of its example is that of services/llama3.yaml with a goal of five minutes."""
    llama3 = replace(load("services/llama3.yaml"), start_within_s=300)
    said = [line.removeprefix("  ") for line in lines(llama3, Seen(is_known=True))]
    first, *more = said
    example = PAGE.partition("```text\n")[2].partition("```")[0].splitlines()
    assert example[:-1] == [first.removeprefix("llama3: start_within "), *more[: len(example) - 2]]
    assert more[len(example) - 2].startswith(example[-1].removesuffix(" …"))


def test_a_setting_is_what_the_file_says(chat: Loads) -> None:
    """The examples of the repository, as docs/cold-start.md works them out."""
    llama3 = setting_of(load("services/llama3.yaml"), Seen())
    assert (llama3.engine, llama3.weights, llama3.weights_bytes) == (VLLM, Weights.HUB, 16e9)
    assert (llama3.disk_tier, llama3.is_pack_declared, llama3.pack) == ("medium", True, None)
    assert (llama3.is_cache_kept, llama3.may_use_store, llama3.may_have_standbys) == (True, True, True)
    sdxl = setting_of(load("services/sdxl.yaml"), Seen())
    assert (sdxl.engine, sdxl.weights, sdxl.weights_bytes) == (None, Weights.HUB, 6.9e9)
    quick = setting_of(load("services/llama3-quick.yaml"), Seen())
    assert (quick.engine, quick.weights_bytes) == ("llama-server", None)
    plain = setting_of(
        chat(("accelerators: L4, cpus: 8+", "cpus: 2"), (", pack: {paths: [/opt/vllm]}", "")), Seen()
    )
    assert (plain.image, plain.may_keep_cache, plain.may_use_store) == (Image.PLAIN, False, False)


@pytest.mark.parametrize(
    ("old", "new", "fact", "value"),
    [
        ("ports: 8081", "ports: 8081, image: ami-0123456789abcdef0", "image", Image.OWN),
        ("ports: 8081", "ports: 8081, image: ami-0123456789abcdef0", "may_use_store", False),
        ("use_spot: true", "use_spot: false", "may_have_standbys", False),
        ("setup: make-it", "setup: make-it\nfile_mounts: {/a: s3://b-1/a}", "copies", True),
        ("disk_size: 128", "disk_size: 128, disk_tier: best", "disk_tier", "best"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "somebody/else", "weights", Weights.ELSEWHERE),
        ("meta-llama/Meta-Llama", "mine/meta-llama/Meta-Llama", "weights", Weights.ELSEWHERE),
        ("Llama-3-8B-Instruct", "Llama-3-8B-Instruct-AWQ", "weights_bytes", None),
        ("run: vllm", "run: sglang", "engine", "sglang"),
        ("run: vllm", "run: llama-server; vllm", "engine", None),
        ("paths: [/opt/vllm]}", "paths: [/opt/vllm], warm: false}", "is_cache_kept", False),
        ("envs: {", "envs: {TRITON_CACHE_DIR: /x, ", "may_keep_cache", False),
    ],
)  # fmt: skip
def test_a_setting_follows_the_file(old: str, new: str, fact: str, value: object, chat: Loads) -> None:
    """Each fact by what decides it."""
    assert getattr(setting_of(chat((old, new)), Seen()), fact) == value


def test_standbys_lose_what_is_on_the_instance_store(chat: Loads) -> None:
    """So nobody who has some is told to put weights there, nor to have some."""
    found = setting_of(replace(chat(), standby=1), Seen())
    assert (found.may_use_store, found.may_have_standbys) == (False, False)


MODELS = "models: [{source: 's3://b-1/x', path: /opt/dlami/nvme/x}, {source: 's3://b-2', path: PATH}], pack"


@pytest.mark.parametrize(("path", "is_on_volume"), [("/m", True), ("/opt/dlami/nvme/y", False)])
def test_models_are_as_large_as_the_bucket_says(path: str, is_on_volume: bool, chat: Loads) -> None:
    """All of them; while one is unknown, as large as the file's name of them says."""
    service = chat(("pack", MODELS.replace("PATH", path)), ("paths", "paths"))
    seen_ = Seen({"s3://b-1/x": 10**9, "s3://b-2": 2 * 10**9})
    known = setting_of(service, seen_)
    assert (known.weights, known.weights_bytes) == (Weights.BUCKET, 3e9)
    assert known.is_on_volume is is_on_volume
    assert setting_of(service, Seen({"s3://b-2": 5})).weights_bytes == 16e9


@pytest.mark.parametrize("text", [DEMO])
def test_validate_looks_into_the_account(account: Account) -> None:  # noqa: F811
    """For packs and sizes of who asks; what it may not see it says, and asks nothing for who doesn't ask."""
    asked = Asked("us-east-1", Quotas(account.clients), account.clients)
    quiet = replace(account.service, start_within_s=None)
    assert asked.starts([quiet], Models({}, [])) == ({}, [])
    sizes = Models({"s3://b": Stored("", 1, 5, "d")}, [])
    found, unseen = asked.starts([account.service], sizes)
    assert found == {"demo": Seen({"s3://b": 5})}
    assert "whether it has a pack can't be seen: these credentials need s3:ListBucket for cdk-" in unseen[0]
    bucket = packs.bucket("123456789012", "us-east-1")
    account.clients.s3.create_bucket(Bucket=bucket)
    key = f"{below(account.service)}/{MANIFEST}.json"
    account.clients.s3.put_object(Bucket=bucket, Key=key, Body=b'{"unpacked": 9, "shards": []}')
    found, unseen = asked.starts([account.service], sizes)
    assert (found["demo"].is_packed, found["demo"].pack, found["demo"].sizes) == (
        True,
        Packed(9, 0),
        {"s3://b": 5},
    )
    assert not unseen
    bare = replace(account.service, pack=None)
    assert asked.starts([bare], sizes) == ({"demo": Seen({"s3://b": 5})}, [])


def made(account: Account) -> Made:  # noqa: F811 - pytest's way to name a fixture
    """What is in the bucket for it."""
    return packs.there(account.clients, BUCKET, account.service)


@pytest.mark.parametrize("text", [DEMO.replace("accelerators: L4", "accelerators: {L4, A10G}")])
def test_a_packs_manifest_says_how_large_it_is(account: Account) -> None:  # noqa: F811
    """And its cache's what the engine took with it. What can't be read is as for a usual one."""
    assert looked_at(account.clients, BUCKET, account.service, made(account)) == Seen(is_known=True)
    account.packed(json.dumps({"unpacked": 900, "shards": [{"size": 100}, {"size": 200}]}).encode())
    account.cached("L4", NEW)
    account.cached("T4", NEW)
    found = looked_at(account.clients, BUCKET, account.service, made(account))
    assert found == Seen(
        is_known=True,
        is_packed=True,
        pack=Packed(900, 300),
        caches=frozenset({"L4"}),
        cached_start_s={"L4": 31.2},
    )
    setting = setting_of(account.service, found)
    assert (setting.pack, setting.caches) == (Packed(900, 300), frozenset({"L4"}))
    assert setting.is_pack_known
    account.packed(b"{}")
    unread = looked_at(account.clients, BUCKET, account.service, made(account))
    assert setting_of(account.service, unread).pack == usual_pack(VLLM)
    assert (unread.is_packed, unread.caches) == (True, frozenset({"L4"}))


def test_a_manifest_that_may_not_be_read_is_unknown(
    account: Account,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    chat: Loads,
) -> None:
    """`up` needs no right to it, and goes on."""
    account.packed()
    there = made(account)
    refusal = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetObject")

    def refuses(**_: object) -> None:
        raise refusal

    monkeypatch.setattr(account.clients.s3, "get_object", refuses)
    found = looked_at(account.clients, BUCKET, account.service, there)
    assert (found.is_packed, found.pack) == (True, None)


MEASURED = Difference((), (), ())


def plane(*starts: Any, spec: Any = SPEC) -> Any:
    """A control plane with these replicas."""
    rows = Rows(replicas={one.replica.id: one.replica for one in starts})
    memory = seen().memory
    return SimpleNamespace(
        region="us-east-1",
        store=SimpleNamespace(load=lambda _: rows, history=lambda *_: (), recall=lambda *_: memory),
        services=SimpleNamespace(get=lambda *_, **__: spec),
    )


@pytest.mark.parametrize(
    ("instances", "phases"),
    [
        ((), set(Phase)),
        (("the disk",), {Phase.BOOT, Phase.BALANCER}),
        (("the disk", THE_IMAGE), {Phase.BALANCER}),
    ],
)
def test_what_a_deployment_changes_was_not_measured(
    instances: tuple[str, ...], phases: set[Phase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new version has its own set-up and engine, and a newer image its own boot."""
    monkeypatch.setattr(start_plans, "rows", lambda *_, **__: seen(started().replica))
    found = start_plans.measured(plane(), "chat", Difference(instances, (), ()))
    assert found["L4"].keys() == phases


def test_starts_of_versions_before_were_not_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """They had other instances."""
    before = replace(started().replica, version=SPEC.version + 1)
    monkeypatch.setattr(start_plans, "rows", lambda *_, **__: seen(before))
    assert start_plans.measured(plane(), "chat", MEASURED) == {}


class Says:
    """Notes what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        """One of them."""
        self.lines.append(line)


def deployer(service: Service, stack: object, seen_: Seen) -> Any:
    """With what `_tell_starts` reads of it."""
    return SimpleNamespace(
        _services=[service],
        _seen={service.name: seen_},
        _sizes={},
        _where=None,
        _teller=Says(),
        region="us-east-1",
        stacks=SimpleNamespace(find=lambda _: stack),
        compared=lambda *_: MEASURED,
    )


def test_up_goes_by_what_was_measured(chat: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a service that is deployed; of one that can't be read by what is worked out."""
    service, stack = chat(), object()
    monkeypatch.setattr(deploying, "found", lambda _: plane())
    monkeypatch.setattr(start_plans, "rows", lambda *_, **__: seen(started().replica))
    measured = deployer(service, stack, Seen())
    deploying.Deployer._tell_starts(measured, None)  # type: ignore[arg-type]
    assert measured._teller.lines[0] == "chat: start_within 5 min: kept. A start takes 236 s, measured"
    new = deployer(service, None, Seen())
    deploying.Deployer._tell_starts(new, None)  # type: ignore[arg-type]
    assert "464 to 795 s, worked out" in new._teller.lines[0]

    def fails(_: object) -> None:
        raise Unavailable("it can't be reached")

    monkeypatch.setattr(deploying, "found", fails)
    unread = deployer(service, stack, Seen())
    deploying.Deployer._tell_starts(unread, None)  # type: ignore[arg-type]
    assert unread._teller.lines[0] == "chat: what its starts took can't be read: it can't be reached"
    assert "worked out" in unread._teller.lines[1]


def test_up_goes_by_the_pack_that_is_there(chat: Loads) -> None:
    """And by the sizes of models."""
    there = deployer(chat(), None, Seen(is_known=True, is_packed=True, pack=Packed(9.36e9, 4.2e9)))
    deploying.Deployer._tell_starts(there, None)  # type: ignore[arg-type]
    assert any("from its pack" in line for line in there._teller.lines)


def test_a_goal_that_a_type_misses_warns(chat: Loads) -> None:
    """In `up` a line; nothing is left out."""
    both = chat(("accelerators: L4", "accelerators: {L4, A10G}"), ("meta-llama/Meta", "somebody/Meta"))
    service = replace(both, pack=None, setup=None)
    slow = {"A10G": {Phase.LOAD: Measured(Span(2000, 2000), 1)}}
    plan = plan_of(service, Seen(measured=slow))
    assert plan is not None
    assert plan.at_best is Verdict.MISSED
    said = [*lines(service, Seen(measured=slow))]
    assert said[-1].startswith("warning: chat: spotrelay.start_within: g5.2xlarge, ")


def with_caches(account: Account, *kinds: str) -> ServiceSpec:  # noqa: F811
    """Deploys it anew with the caches of these."""
    versions = {"demo": MANIFEST, **{f"demo/{kind}": NEW for kind in kinds}}
    chosen = pinned(account.service, {}, {}, versions)
    ec2: Any = account.clients.ec2
    ec2.delete_launch_template(LaunchTemplateName="demo")
    template = ec2.create_launch_template(
        LaunchTemplateName="demo",
        LaunchTemplateData={"UserData": encoded(user_data(chosen, "us-east-1", store=store(chosen)))},
    )["LaunchTemplate"]["LaunchTemplateId"]
    return replace(demo_spec(), launch_template_id=template, instance_types=chosen.instance_type_names)


def encoded(said: str) -> str:
    """As EC2 takes user data."""
    return base64.b64encode(said.encode()).decode()


def lacking(account: Account, spec: ServiceSpec) -> tuple[str, ...] | None:  # noqa: F811
    """What `cold-start` tells of it."""
    found = cold_starts(seen(started().replica))
    its: Any = SimpleNamespace(clients=account.clients)
    return cold_start._with_caches(found, its, spec).without_cache


@pytest.mark.parametrize("text", [FILE.replace("]}}", "], warm: true}}")])
@pytest.mark.parametrize(
    ("kinds", "without"),
    [((), ("A10G", "L4")), (("L4",), ("A10G",)), (("A10G", "L4"), ())],
)
def test_cold_start_names_who_has_no_engine_cache(
    kinds: tuple[str, ...],
    without: tuple[str, ...],
    account: Account,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the version that is deployed, and how to make one."""
    assert lacking(account, with_caches(account, *kinds)) == without
    cold_start._print(replace(cold_starts(seen(started().replica)), without_cache=without))
    said = " ".join(capsys.readouterr().out.split())
    assert ("no engine cache for" in said) is bool(without)
    if without:
        assert f"spotrelay pack FILE --accelerator {without[0]} makes one, and spotrelay up FILE" in said


def test_a_service_that_keeps_no_cache_lacks_none(account: Account) -> None:  # noqa: F811
    """It has a pack of its set-up alone."""
    assert lacking(account, with_caches(account)) == ()


def test_without_an_accelerator_ec2_is_not_asked() -> None:
    """Nor where nothing has started yet."""
    asked: Any = SimpleNamespace(clients=None)
    plain = replace(demo_spec(), instance_types=("c7i.large",))
    found = cold_starts(seen(started().replica))
    assert cold_start._with_caches(found, asked, plain).without_cache == ()
    assert cold_start._with_caches(cold_starts(seen()), asked, demo_spec()).without_cache == ()
    assert cold_start._with_caches(found, asked, None).without_cache == ()


def test_who_may_not_look_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it takes; the rest of the command is as ever."""

    def refuses(*_: object) -> None:
        raise Denied("no", "UnauthorizedOperation")

    monkeypatch.setattr(packs, "without_cache_deployed", refuses)
    found = cold_start._with_caches(
        cold_starts(seen(started().replica)), SimpleNamespace(clients=None), demo_spec()  # type: ignore[arg-type]
    )  # fmt: skip
    assert found.without_cache is None
    cold_start._print(found)
    assert "ec2:DescribeLaunchTemplateVersions" in capsys.readouterr().out
    assert found.to_json()["without_engine_cache"] is None
