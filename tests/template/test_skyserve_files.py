"""Twenty files in SkyServe's format, through the real stacks: what each means is in its template."""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # what cloud-init reads with

from spotrelay.file.instance import envfile
from spotrelay.file.instance.software import KEEP_ALIVE
from spotrelay.file.source.inputs import NOTHING
from spotrelay.file.values.limits import FETCHING_S
from spotrelay.plane.core.names import IMAGE_RESOURCE
from spotrelay.plane.core.requirements import Accelerators, Amount, Requirements
from spotrelay.plane.core.scaling import Scaling
from spotrelay.plane.core.spec import ReadinessProbe, ServiceSpec
from stacks.application import SERVICE_PREFIX
from stacks.settings import AppSettings
from tests.service.test_skyserve import FILES, SAID
from tests.template.conftest import synthesize
from tests.template.support import Template, as_list, document_text, flat, refers_to

REGION = "us-east-1"

CERTIFICATE = "arn:aws:acm:us-east-1:000000000000:certificate/0123-4567"

Listener = tuple[int, str, str, str | None]
"""Port, protocol, action, certificate."""

PLAIN_HTTP: frozenset[Listener] = frozenset({(80, "HTTP", "forward", None)})
HTTPS: frozenset[Listener] = frozenset(
    {(443, "HTTPS", "forward", CERTIFICATE), (80, "HTTP", "fixed-response", None)}
)

ALIVE = ("/", "200-499")
"""Any answer below 500: what the load balancer asks where the probe isn't a plain GET."""

T4, A10G, L4, L40S = "g4dn", "g5", "g6 gr6", "g6e"
"""Families of instance types with the GPU."""

TWO_VCPUS = "m6a m6i m7a m7i m8a m8i r6a r6i r7a r7i r8a r8i"
FOUR_VCPUS = f"c6a c6i c7a c7i c8a c8i {TWO_VCPUS}"
"""The same without a GPU: of four vCPUs, those with 2 GiB each have the 8 GiB that are asked for, too."""


def _wants(*gpus: str, spot: bool = False, count: int = 1, **others: Any) -> Requirements:
    accelerators = tuple(Accelerators(gpu, count) for gpu in gpus)
    return Requirements(accelerators=accelerators, arch="x86_64", use_spot=spot, **others)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a file says, as its stack has it. The defaults are for a file that doesn't say it."""

    name: str
    port: int
    wants: Requirements | None
    """What the controller looks for, Spot or not included."""
    families: str
    """Of the instance types in the document, in their order."""
    run: str | None
    """Where the shell of SkyServe's scripts is set up, and in the container if there is one."""

    replicas: int = 1
    use_spot: bool = False
    on_demand_fallback: bool = False
    base_on_demand: int = 0
    ordered: bool = False
    overprovision: int = 0
    scaling: Scaling | None = None
    probe: ReadinessProbe | None = None
    initial_delay_s: float = 1200
    check: tuple[str, str] = ("/health", "200")
    """The load balancer's own: path, status codes."""
    algorithm: str = "least_outstanding_requests"
    idle_timeout_s: int = 120
    listeners: frozenset[Listener] = PLAIN_HTTP
    image: str = "deeplearning"
    """Whose image boots."""
    disk_gb: int = 256
    setup: str | None = None
    """As `run`."""
    envs: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Those which the scripts fetch and the instances' role may read: variable → parameter."""
    container: str | None = None
    placed: tuple[str, ...] = ()
    """What is put or mounted where."""


EXPECTED = {
    "any-of-regions": Facts(
        name="any-of-regions",
        port=8000,
        replicas=2,
        use_spot=True,
        # Deployed to the first of its two regions: the other's alternative isn't for this stack.
        wants=_wants(
            spot=True,
            regions=("us-east-1", "us-west-2"),
            alternatives=(Requirements((Accelerators("A100", 8),), regions=(REGION,), use_spot=True),),
        ),
        families="p4d",
        run="serve",
    ),
    "docker-vllm": Facts(
        name="docker-vllm",
        port=8000,
        use_spot=True,
        wants=_wants("L4", spot=True),
        families=L4,
        check=("/v1/models", "200"),
        container="vllm/vllm-openai:v0.11.0",
        initial_delay_s=1200 + FETCHING_S,
        run="python3 -m vllm.entrypoints.openai.api_server --port 8000",
    ),
    "headers-and-key": Facts(
        name="headers-and-key",
        port=8000,
        wants=_wants("A10G"),
        families=A10G,
        probe=ReadinessProbe(
            "/v1/models", None, headers={"Authorization": "Bearer local-test"}, failure_threshold_s=180
        ),
        check=ALIVE,
        envs={"AUTH_TOKEN": "local-test"},
        run="vllm serve m --api-key $AUTH_TOKEN",
    ),
    "http-server": Facts(
        name="http-server",
        port=8081,
        replicas=2,
        wants=_wants(cpus=Amount(2, at_least=True)),
        families=TWO_VCPUS,
        check=("/", "200"),
        image="canonical",
        run="python3 -m http.server 8081",
    ),
    "http-workdir": Facts(
        name="http-workdir",
        port=8081,
        wants=_wants(cpus=Amount(2, at_least=False)),
        families=TWO_VCPUS,
        image="canonical",
        placed=("place workdir ~/sky_workdir",),
        run="python3 server.py --port 8081",
    ),
    "json-probe": Facts(
        name="json-probe",
        port=9000,
        replicas=2,
        wants=_wants("L4"),
        families=L4,
        probe=ReadinessProbe("/generate", {"model": "qwen", "prompt": "x", "n": 1}, failure_threshold_s=90),
        initial_delay_s=600,
        check=ALIVE,
        envs={"MODEL": "qwen"},
        run="serve",
    ),
    "mounted-model": Facts(
        name="mounted-model",
        port=8000,
        wants=_wants("A10G"),
        families=A10G,
        envs={"BUCKET": "my-models"},
        placed=("mount_s3 0 /models my-models --read-only --prefix llama/",),
        run="vllm serve /models",
    ),
    "ollama": Facts(
        name="ollama",
        port=11434,
        wants=_wants("T4"),
        families=T4,
        check=("/", "200"),
        setup="curl -fsSL https://ollama.com/install.sh | sh",
        run="OLLAMA_HOST=0.0.0.0 ollama serve",
    ),
    "ollama-cpu": Facts(
        name="ollama-cpu",
        port=8888,
        wants=_wants(cpus=Amount(4, at_least=True), memory_gib=Amount(8, at_least=True)),
        families=FOUR_VCPUS,
        check=("/api/tags", "200"),
        image="canonical",
        run="OLLAMA_HOST=0.0.0.0:8888 ollama serve",
    ),
    "ordered": Facts(
        name="ordered",
        port=8000,
        ordered=True,
        wants=_wants(
            alternatives=tuple(
                Requirements((Accelerators(gpu, 1),), use_spot=False) for gpu in ("L40S", "A10G")
            ),
        ),
        families=f"{L40S} {A10G}",
        run="serve",
    ),
    "overprovision": Facts(
        name="overprovision",
        port=8000,
        replicas=3,
        overprovision=1,
        use_spot=True,
        wants=_wants("A10G", "L4", spot=True),
        families=f"{A10G} {L4}",
        check=("/v1/models", "200"),
        run="vllm serve m",
    ),
    "secrets-null": Facts(
        name="secrets-null",
        port=8000,
        wants=_wants("L4"),
        families=L4,
        secrets={"HF_TOKEN": "/spotrelay/secrets-null/HF_TOKEN"},
        run="vllm serve m",
    ),
    "several-ports": Facts(
        name="several-ports",
        port=8000,
        wants=_wants("A10G"),
        families=A10G,
        run="vllm serve m",
    ),
    "sglang": Facts(
        name="sglang",
        port=30000,
        replicas=3,
        wants=_wants("H100"),
        families="p5",
        check=("/health_generate", "200"),
        algorithm="round_robin",
        setup="uv pip install sglang",
        run="python -m sglang.launch_server --model-path Qwen/Qwen2.5-7B --host 0.0.0.0 --port 30000",
    ),
    "stable-diffusion": Facts(
        name="stable-diffusion-xl",
        port=5000,
        replicas=2,
        use_spot=True,
        wants=_wants("A10G", spot=True),
        families=A10G,
        check=("/ready", "200"),
        run="python serve_sdxl.py",
    ),
    "streaming": Facts(
        name="streaming",
        port=8000,
        wants=_wants("L40S"),
        families=L40S,
        idle_timeout_s=600,
        run="vllm serve m",
    ),
    "tgi-autoscaled": Facts(
        name="tgi-service",
        port=8080,
        use_spot=True,
        on_demand_fallback=True,
        base_on_demand=1,
        ordered=True,
        wants=_wants("A10G", "L4", spot=True),
        families=f"{A10G} {L4}",
        scaling=Scaling(min_replicas=1, max_replicas=5, target_qps_per_replica=2.5, upscale_delay_s=120),
        run="text-generation-launcher --model-id mistralai/Mistral-7B-v0.1 --port 8080",
    ),
    "tls": Facts(
        name="tls",
        port=8000,
        replicas=2,
        wants=_wants("A10G"),
        families=A10G,
        listeners=HTTPS,
        run="vllm serve m",
    ),
    "torchserve": Facts(
        name="torchserve",
        port=8080,
        wants=_wants("T4"),
        families=T4,
        initial_delay_s=60,
        check=("/ping", "200"),
        setup="conda create -n serve python=3.10 -y",
        run="torchserve --start --foreground --model-store store",
    ),
    "vllm-llama": Facts(
        name="vllm-llama",
        port=8000,
        replicas=2,
        wants=_wants("L4", "A10G", "L40S"),
        families=f"{L4} {A10G} {L40S}",
        probe=ReadinessProbe(
            "/v1/chat/completions",
            {
                "model": "meta-llama/Llama-3.1-8B-Instruct",
                "messages": [{"role": "user", "content": "Hi"}],
                "max_tokens": 1,
            },
            failure_threshold_s=180,
        ),
        initial_delay_s=1800,
        check=ALIVE,
        disk_gb=200,
        envs={"MODEL": "meta-llama/Llama-3.1-8B-Instruct", "HF_TOKEN": "made up"},
        setup="pip install vllm",
        run="python -m vllm.entrypoints.openai.api_server --model $MODEL --port 8000",
    ),
}


@pytest.fixture(scope="module")
def assemblies(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """File → its cloud assembly. One is for all that need nothing said at the launch."""
    apart = [file for file in FILES if file.stem in SAID or file.stem == "tls"]
    work = tmp_path_factory.mktemp("work")
    (work / "server.py").write_text("print('mine')\n", encoding="utf-8")
    # Its workdir is the directory that it is in.
    of_work = [Path(shutil.copy(file, work)) for file in FILES if file.stem == "http-workdir"]
    together = [file for file in FILES if file not in apart and file.name != of_work[0].name]
    found: dict[str, Path] = {}
    for files in ([*together, *of_work], *([file] for file in apart)):
        settings = AppSettings(
            services=tuple(files),
            inputs=SAID.get(files[0].stem, NOTHING),
            target_region=REGION,
            certificate_arn=CERTIFICATE if files[0].stem == "tls" else None,
        )
        assembly = synthesize(tmp_path_factory.mktemp("skyserve"), settings)
        found |= dict.fromkeys((file.stem for file in files), assembly)
    return found


@pytest.mark.parametrize("stem", [file.stem for file in FILES])
def test_the_stack_of_a_file_has_what_the_file_means(stem: str, assemblies: Mapping[str, Path]) -> None:
    """All that it says, and the defaults for what it doesn't say."""
    expected = EXPECTED[stem]
    template = Template.read(assemblies[stem], SERVICE_PREFIX + expected.name)
    assert _facts(template) == expected


def test_the_work_directory_is_uploaded(assemblies: Mapping[str, Path]) -> None:
    """The one archive that is deployed with the twenty stacks has what was in the directory."""
    (asset,) = {asset for assembly in assemblies.values() for asset in assembly.glob("asset.*.gz")}
    with tarfile.open(asset) as archive:
        assert archive.getnames() == ["workdir", "workdir/http-workdir.yaml", "workdir/server.py"]


def _facts(template: Template) -> Facts:
    spec, scripts = _spec(template), _scripts(template)
    environment = envfile.parse(scripts["service.env"])
    assert (environment.pop("HOST"), environment.pop("PORT")) == ("0.0.0.0", str(spec.port))
    assert environment.pop("SPOTRELAY_SERVICE") == spec.service
    group = template.only("AWS::ElasticLoadBalancingV2::TargetGroup")
    attributes = {a["Key"]: a["Value"] for a in group["TargetGroupAttributes"]}
    balancer = template.only("AWS::ElasticLoadBalancingV2::LoadBalancer")
    timeouts = {a["Key"]: a["Value"] for a in balancer["LoadBalancerAttributes"]}
    idle_timeout_s = int(timeouts["idle_timeout.timeout_seconds"])
    if "vllm" in str(scripts):  # a server that would close idle connections too soon
        assert int(environment.pop(KEEP_ALIVE)) > idle_timeout_s
    launch = template.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    (disk,) = launch["BlockDeviceMappings"]
    image = template.body["Parameters"][refers_to(template.only(IMAGE_RESOURCE)["Newest"])]["Default"]
    files = "".join(scripts.get(name, "") for name in ("prepare.sh", "mount.sh"))
    return Facts(
        name=spec.service,
        port=spec.port,
        wants=spec.requirements,
        families=" ".join(dict.fromkeys(name.partition(".")[0] for name in spec.instance_types)),
        run=_own(scripts, "run"),
        replicas=spec.replicas,
        use_spot=spec.use_spot,
        on_demand_fallback=spec.on_demand_fallback,
        base_on_demand=spec.base_on_demand,
        ordered=spec.ordered,
        overprovision=spec.overprovision,
        scaling=spec.scaling,
        probe=_own_probe(spec.readiness_probe, (group["HealthCheckPath"], group["Matcher"]["HttpCode"])),
        initial_delay_s=spec.initial_delay_s,
        check=(group["HealthCheckPath"], group["Matcher"]["HttpCode"]),
        algorithm=attributes["load_balancing.algorithm.type"],
        idle_timeout_s=idle_timeout_s,
        listeners=frozenset(map(_listener, template.all("AWS::ElasticLoadBalancingV2::Listener").values())),
        image=image.removeprefix("/aws/service/").partition("/")[0],
        disk_gb=disk["Ebs"]["VolumeSize"],
        setup=_own(scripts, "setup"),
        envs=environment,
        secrets=_secrets(template, scripts["run.sh"]),
        container=_container(scripts),
        placed=tuple(re.findall(r"^(?:place|mount_s3) .*$", files, re.MULTILINE)),
    )


def _own_probe(probe: ReadinessProbe | None, check: tuple[str, str]) -> ReadinessProbe | None:
    """The probe that is SpotRelay's alone; any other is the load balancer's check, asked from inside."""
    if probe is None or not probe.is_health_check:
        return probe
    assert (probe.path, "200") == check
    return None


def _spec(template: Template) -> ServiceSpec:
    """What the controller reads, as of the launch template's version 7."""
    return ServiceSpec.from_json(document_text(template))


def _scripts(template: Template) -> dict[str, str]:
    """The files of user data by their path below /opt/spotrelay."""
    text = flat(template.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["UserData"])
    return {
        f["path"].removeprefix("/opt/spotrelay/"): f["content"] for f in yaml.safe_load(text)["write_files"]
    }


def _own(scripts: Mapping[str, str], name: str) -> str | None:
    """What the file itself says of a script; None: nothing."""
    script = scripts.get(f"task/{name}.sh", scripts.get(f"{name}.sh", ""))
    before = "' EXIT\n" if name == "run" else '. "$SPOTRELAY_DIR/task/shell.sh"\n'
    return script.partition(before)[2].strip() or None


def _container(scripts: Mapping[str, str]) -> str | None:
    """The image that is made one of, if `run` becomes its main process."""
    made: list[str] = re.findall(r"^create (\S+)$", scripts.get("prepare.sh", ""), re.MULTILINE)
    becomes = re.search(
        "^exec docker start --attach --interactive spotrelay ", scripts["run.sh"], re.MULTILINE
    )
    assert bool(made) == bool(becomes)
    return made[0] if made else None


def _secrets(template: Template, run: str) -> dict[str, str]:
    fetched = dict(re.findall(r"^(\w+)=\$\(spotrelay_secret (\S+)\) ", run, re.MULTILINE))
    role = template.id_with("AWS::IAM::Role", "InstancesRole")
    readable = {
        flat(resource).partition(":parameter")[2]
        for statement in template.statements(role)
        if statement["Action"] == "ssm:GetParameter"
        for resource in as_list(statement["Resource"])
    }
    assert readable == {name for one in fetched.values() for name in (one, f"{one}:*")}
    return fetched


def _listener(properties: Mapping[str, Any]) -> Listener:
    (action,) = properties["DefaultActions"]
    certificates = [one["CertificateArn"] for one in properties.get("Certificates", [])]
    return (properties["Port"], properties["Protocol"], action["Type"], *(certificates or [None]))
