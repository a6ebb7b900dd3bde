"""`resources` in SkyServe's format: sizes, alternatives, places, ports, images; and what AWS lacks."""

from __future__ import annotations

import re

import pytest

from spotrelay.file.fields.resources import Resources
from spotrelay.file.model import Image
from spotrelay.file.service import Disk, Problem, Service, describe
from spotrelay.plane.core.requirements import Accelerators, Amount, Requirements

from .conftest import Loader, Refuser

HEAD = "name: chat\nservice: {replicas: 2, surge: 1}\nrun: serve\n"
ELSEWHERE = "SpotRelay runs on AWS only, and this asks for 'gcp': say aws, or leave it out"
UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
L4, A10G, L40S = Accelerators("L4", 1), Accelerators("A10G", 1), Accelerators("L40S", 1)


def file(resources: str, head: str = HEAD) -> str:
    """A service file with these resources, which begin in line 5."""
    lines = "".join(f"  {line}\n" for line in resources.strip().splitlines())
    return f"{head}resources:\n{lines}"


def told(problems: tuple[Problem, ...]) -> list[str]:
    """Problems without the file's name and the column."""
    return [re.sub(r"^chat.yaml:(\d+):\d+:", r"\1:", str(problem)) for problem in problems]


def asked(service: Service) -> Requirements:
    """What the controller is to look for."""
    assert service.requirements is not None
    return service.requirements


# Without a GPU


@pytest.mark.parametrize(
    ("resources", "cpus", "memory"),
    [
        ("", "8+", None),
        ("cpus: 4+", "4+", None),
        ("cpus: 4", "4", None),
        ("cpus: 4.0", "4", None),
        ("cpus: 0.5+", "1+", None),
        ("cpus: 1.5+", "2+", None),
        ("memory: 16", None, "16"),
        ("memory: 16+", None, "16+"),
        ("memory: 16GB+", None, "16+"),
        ("memory: 16 GiB", None, "16"),
        ("memory: 16gb", None, "16"),
        ("memory: 0.5TB+", None, "512+"),
        ("memory: 1536MB+", None, "2+"),
        ("cpus: 2+\nmemory: 32+", "2+", "32+"),
    ],
)
def test_a_size_is_all_that_a_service_needs(
    service: Loader, resources: str, cpus: str | None, memory: str | None
) -> None:
    """Without an accelerator the size decides, however it is written; without a size it is 8+ vCPU."""
    chat = service(file(f"{resources}\nports: 80"))
    wanted = Requirements(
        cpus=Amount.parse(cpus) if cpus else None,
        memory_gib=Amount.parse(memory) if memory else None,
        arch="x86_64",
    )
    assert asked(chat) == wanted
    assert chat.instance_types
    assert not [t.name for t in chat.instance_types if t.accelerator]


def test_a_service_without_a_gpu_boots_ubuntu(service: Loader) -> None:
    """Canonical's image, whose snapshot is small; the standard quotas count it; no accelerator is shown."""
    chat = service(file("disk_size: 8\nports: 80"))
    assert chat.image == Image(UBUNTU)
    assert chat.warnings == ()
    facts = describe(chat)
    assert facts.accelerators == ()
    assert str(facts.instance_types[0]) == "m6a.2xlarge: 8 vCPU, 32 GiB"
    assert [re.sub(r".*\((L-\w+)\)", r"\1", str(quota)) for quota in facts.quotas] == [
        "L-34B43A08: 16 vCPU",
        "L-1216C47A: 16 vCPU",
    ]


def test_a_size_leaves_the_gpu_alone(service: Loader) -> None:
    """Beside an accelerator cpus and memory narrow the choice, and the image has NVIDIA's driver."""
    chat = service(file("accelerators: A10G:1\ncpus: 8\nmemory: 32GB\nports: 80"))
    assert chat.instance_type_names == ("g5.2xlarge",)
    assert "deeplearning" in chat.image.reference
    (type_,) = describe(chat).instance_types
    assert str(type_) == "g5.2xlarge: A10G:1 of 24 GB, 8 vCPU, 32 GiB"
    assert type_.why == ("A10G:1, cpus 8, memory 32",)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("cpus: 0.5", "5: resources.cpus: no instance type has exactly 0.5 vCPU: write 1, or 1+"),
        (
            "cpus: 7",
            "5: resources.cpus: no instance type without an accelerator has 7 vCPU: "
            "there are 1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 384",
        ),
        (
            "cpus: 4\nmemory: 20",
            "4: resources: no instance type without an accelerator has 20 GiB and 4 vCPU: "
            "there are 8, 16, 32 GiB",
        ),
        (
            "memory: lots",
            "5: resources.memory: expected GiB (32, or 32GB: exactly) or 32+ (at least), got 'lots'",
        ),
        ("cpus: true", "5: resources.cpus: expected a number (8: exactly) or 8+ (at least), got true"),
        ("cpus: .inf", "5: resources.cpus: expected a number (8: exactly) or 8+ (at least), got inf"),
        ("cpus: 0", "5: resources.cpus: expected a number (8: exactly) or 8+ (at least), got 0"),
        (
            "disk_size: 7",
            "5: resources.disk_size: expected GiB from 8 to 16384, such as 256, 256GB or 1TB, got 7",
        ),
    ],
)
def test_a_size_that_nothing_has_is_one_clear_error(problems: Refuser, resources: str, expected: str) -> None:
    """What isn't an amount says what would be; what no type has says what there is."""
    assert told(problems(file(f"{resources}\nports: 80"))) == [expected]


# Accelerators


@pytest.mark.parametrize("kind", ["A100", "A100-80GB", "H100", "H200", "L40S", "T4", "A10G"])
def test_accelerators_as_people_write_them(service: Loader, kind: str) -> None:
    """Names and counts as in public files are understood, under both names of the field and as 8.0."""
    count = 8 if kind[0] in "AH" else 1
    for text in (
        f"accelerators: {kind}:{count}",
        f"gpus: {kind}:{count}.0",
        f"accelerators: {{{kind}: {count}.0}}",
    ):
        chat = service(file(f"{text}\nports: 80"))
        assert {(t.accelerator, t.accelerator_count) for t in chat.instance_types} == {(kind, count)}


def test_a_list_of_accelerators_is_an_order(service: Loader) -> None:
    """The first of a list is preferred; a set or a mapping prefers none, and neither does a list of one."""
    in_order = service(file("accelerators: [L40S:1, A10G:1]\nports: 80"))
    assert in_order.ordered
    assert asked(in_order).accelerators == (L40S, A10G)
    assert in_order.instance_type_names[0] == "g6e.xlarge"
    for text in ("{L40S, A10G}", "{L40S: 1, A10G: 1}", "[L40S:1]", "L40S"):
        assert not service(file(f"accelerators: {text}\nports: 80")).ordered


def test_what_aws_lacks_is_left_out_beside_what_it_has(service: Loader) -> None:
    """An H20, a single A100 and a TPU are warnings as long as there is an L4."""
    chat = service(file("accelerators: [H20:8, A100:1, L4:1, tpu-v5e-8]\nuse_spot: false\nports: 80"))
    assert asked(chat).accelerators == (L4,)
    assert not chat.ordered
    assert [(w.field, w.message) for w in chat.warnings] == [
        ("resources.accelerators[0]", "is left out, as others remain: no instance type has 'H20'"),
        (
            "resources.accelerators[1]",
            "is left out, as others remain: no instance type has exactly 1 A100: there are A100:8",
        ),
        ("resources.accelerators[3]", "is left out, as others remain: no instance type has 'tpu-v5e-8'"),
    ]


@pytest.mark.parametrize(
    "name",
    [
        "tpu-v5e",
        "RTX4090",
        "RTX-6000-Ada",
        "A10",
        "L40",
        "H20",
        "A100-80GB-SXM4",
        "H100-MEGA-80GB",
        "MI300X",
        "P100",
    ],
)
def test_a_gpu_of_another_cloud_is_no_slip(service: Loader, name: str) -> None:
    """Near as the names are to those of AWS, they are left out beside an L4 and not taken for slips."""
    chat = service(file(f"accelerators: {{{name}: 1, L4: 1}}\nports: 80"))
    assert {t.accelerator for t in chat.instance_types} == {"L4"}


def test_a_slip_is_an_error_even_beside_others(problems: Refuser) -> None:
    """A name that is nearly one of ours was meant to be it: leaving it out would lose pools."""
    (problem,) = problems(file("accelerators: [L4:1, A10GG:1]\nports: 80"))
    assert problem.message.startswith("no instance type has 'A10GG' (did you mean A10G?): there are A100,")


# One line for what can't run on AWS


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (
            "infra: gcp/us-central1\naccelerators: H20:8\nports: many",
            f"5: resources.infra: {ELSEWHERE}",
        ),
        (
            "infra: kubernetes\ndisk_tier: none",
            "5: resources.infra: SpotRelay runs on AWS only, and this asks for 'kubernetes': "
            "say aws, or leave it out",
        ),
        (
            "region: us-central1\nzone: us-central1-a\ncloud: gcp",
            f"7: resources.cloud: {ELSEWHERE}",
        ),
        (
            "any_of:\n- {cloud: gcp, region: us-central1}\n- {cloud: gcp, accelerators: [1]}",
            f"5: resources.any_of: {ELSEWHERE}",
        ),
        (
            "ports: 0\naccelerators: A100:1",
            "6: resources.accelerators: no instance type has exactly 1 A100: there are A100:8",
        ),
    ],
)
def test_a_file_for_another_cloud_gets_one_line(problems: Refuser, resources: str, expected: str) -> None:
    """Whatever else is wrong with it, the reason why it can't run here is all that is told."""
    assert told(problems(file(resources))) == [expected]


def test_a_tpu_alone_gets_one_line(problems: Refuser) -> None:
    """So do several accelerators of which AWS has none, in a list or as alternatives."""
    (problem,) = problems(file("accelerators: tpu-v5e:8"))
    assert problem.message.startswith("no instance type has 'tpu-v5e'. There are A100, A100-80GB, A10G,")
    (problem,) = problems(file("accelerators: {H20: 8, A100: 1}"))
    assert problem.message.startswith(
        "AWS has none of these: no instance type has 'H20'; no instance type has ex"
    )
    (problem,) = problems(file("any_of:\n- {accelerators: tpu-v5e:8}\n- {infra: gcp}"))
    assert problem.message.startswith("AWS has none of these: no instance type has 'tpu-v5e'.")
    assert problem.field == "resources.any_of"


def test_several_nodes_get_one_line(problems: Refuser, service: Loader) -> None:
    """One node is what a replica is; two can't be run, and the line doesn't say to remove the field."""
    head = HEAD.replace("service:", "num_nodes: {}\nservice:")
    assert service(file("accelerators: L4\nports: 80", head.replace("{}", "1", 1))).instance_types
    assert told(problems(file("accelerators: tpu\nzzz: 1", head.replace("{}", "2", 1)))) == [
        "2: num_nodes: a replica is one instance, and this asks for 2: SpotRelay can't run it"
    ]


# Alternatives


def test_alternatives_have_what_stands_outside(service: Loader) -> None:
    """Outer fields are defaults, inner ones replace them; a place replaces the whole place."""
    chat = service(
        file(
            "use_spot: true\ncpus: 8+\ninfra: aws/us-east-1\nports: 80\nany_of:\n"
            "- {accelerators: L4:1}\n- {gpus: A10G:1, cpus: 4, zone: us-west-2b}\n"
            "- {accelerators: L40S, memory: 64+}"
        )
    )
    eight = Amount(8, at_least=True)
    assert asked(chat).alternatives == (
        Requirements((L4,), cpus=eight, regions=("us-east-1",)),
        Requirements((A10G,), cpus=Amount(4, at_least=False), zones=("us-west-2b",)),
        Requirements((L40S,), cpus=eight, memory_gib=Amount(64, at_least=True), regions=("us-east-1",)),
    )
    assert (asked(chat).regions, asked(chat).zones) == ((), ())
    assert "g5.xlarge" in chat.instance_type_names
    assert "g5.2xlarge" not in chat.instance_type_names
    assert not chat.ordered


def test_alternatives_alone_may_say_how_instances_are_bought(service: Loader) -> None:
    """What those say that are left is what the whole service does, whatever stands outside."""
    each = "- {accelerators: L4, use_spot: false}\n- {accelerators: A10G, use_spot: false}\n- {infra: gcp}"
    chat = service(file(f"ports: 80\nuse_spot: true\nany_of:\n{each}"))
    assert not chat.use_spot
    assert not asked(chat).use_spot
    assert describe(chat).purchase == "on-demand"


def test_ordered_alternatives_are_a_preference(service: Loader) -> None:
    """Types come in the order of the alternatives, and the order is heeded at the launch."""
    chat = service(file("ports: 80\nordered:\n- {accelerators: L40S:1}\n- {accelerators: A10G:1}"))
    assert chat.ordered
    assert list(dict.fromkeys(t.accelerator for t in chat.instance_types)) == ["L40S", "A10G"]


def test_regions_of_all_alternatives_are_where_it_may_be(service: Loader) -> None:
    """It may be deployed where any alternative is; that it then runs in one region only is told."""
    chat = service(
        file("accelerators: {L4, A10G}\nports: 80\nany_of:\n- {infra: aws/us-east-1}\n- {region: us-west-2}")
    )
    assert asked(chat).regions == ("us-east-1", "us-west-2")
    assert chat.warnings == ()
    assert [(n.field, n.message) for n in chat.notices] == [
        (
            "resources.any_of",
            "a service runs in one region: deploy it to each of us-east-1, us-west-2 that you want",
        )
    ]


def test_an_alternative_that_aws_lacks_is_left_out(service: Loader) -> None:
    """Another cloud, a GPU that AWS hasn't, a size that no type has; the rest of it isn't looked at."""
    chat = service(
        file(
            "ports: 80\nuse_spot: false\nany_of:\n- {cloud: gcp, region: us-central1, zzz: 1}\n"
            "- {accelerators: H20:8}\n"
            "- {accelerators: L4:1, cpus: 999}\n- {accelerators: L4:1}"
        )
    )
    assert asked(chat) == Requirements((L4,), arch="x86_64", use_spot=False), "one is left: no alternatives"
    assert [w.field for w in chat.warnings] == [
        "resources.any_of[0].cloud",
        "resources.any_of[1].accelerators",
        "resources.any_of[2].cpus",
    ]


def test_what_all_alternatives_say_is_the_services(service: Loader) -> None:
    """A disk that is the same in each is the service's one disk."""
    chat = service(
        file(
            "ports: 80\nany_of:\n- {accelerators: L4, disk_size: 100, disk_tier: best}\n"
            "- {accelerators: A10G, disk_size: 100, disk_tier: best}"
        )
    )
    assert chat.disk == Disk(100, 4000, 1000)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (
            "any_of: [{cpus: 4}]\nordered: [{cpus: 4}]",
            ["6: resources.ordered: stands beside any_of: keep one of the two"],
        ),
        (
            "accelerators: L4\nany_of:\n- {use_spot: true}\n- {use_spot: false}",
            [
                "6: resources.any_of: some alternatives use Spot and some don't: say use_spot once, outside; "
                "on-demand stands in for Spot by itself with "
                "service.replica_policy.dynamic_ondemand_fallback: true"
            ],
        ),
        (
            "any_of:\n- {accelerators: L4, cpus: x, zzz: 1}\n- {accelerators: A10G, disk_size: 99}",
            [
                "6: resources.any_of[0].cpus: expected a number (8: exactly) or 8+ (at least), got 'x'",
                "6: resources.any_of[0].zzz: unknown field: there are accelerators, gpus, "
                "accelerator_memory, instance_type, instance_types, exclude, cpus, memory, infra, cloud, "
                "region, zone, zones, regions, use_spot",
                "7: resources.any_of[1].disk_size: unknown field here: it belongs at resources.disk_size",
            ],
        ),
        (
            "any_of: []",
            [
                "5: resources.any_of: expected a list of alternatives, each with fields such as "
                "accelerators, got an empty list"
            ],
        ),
        (
            "any_of: L4",
            [
                "5: resources.any_of: expected a list of alternatives, each with fields such as "
                "accelerators, got 'L4'"
            ],
        ),
        (
            "region: us-east-1\nany_of:\n- {accelerators: L4, exclude: [g5]}\n"
            "- {accelerators: A10G:1, instance_type: g6.xlarge}",
            [
                "8: resources.any_of[1].instance_type: g6.xlarge has L4:1, but accelerators asks for A10G:1: "
                "change one of the two"
            ],
        ),
    ],
)
def test_alternatives_that_are_wrong_are_told_where_they_stand(
    problems: Refuser, resources: str, expected: list[str]
) -> None:
    """Each problem names the alternative, all of them in one round."""
    assert told(problems(file(f"{resources}\nports: 80"))) == expected


def test_a_list_of_alternatives_that_is_too_long_is_named(problems: Refuser) -> None:
    """Parameter Store takes 8 KB, and it is the alternatives that fill it."""
    alternatives = "".join(
        f"- {{accelerators: L4, exclude: [g{n}.xlarge, g{n}.2xlarge]}}\n" for n in range(200)
    )
    (problem,) = problems(file(f"ports: 80\nany_of:\n{alternatives}"))
    assert problem.field == "resources.any_of"
    assert "Parameter Store takes 8192" in problem.message


# Places


@pytest.mark.parametrize(
    ("resources", "regions", "zones"),
    [
        ("infra: aws", (), ()),
        ("infra: '*'", (), ()),
        ("infra: AWS/us-east-1", ("us-east-1",), ()),
        ("infra: aws/*/us-east-1a", (), ("us-east-1a",)),
        ("infra: aws/us-east-1/us-east-1a", ("us-east-1",), ("us-east-1a",)),
        ("cloud: aws\nregion: us-east-1", ("us-east-1",), ()),
        ("region: us-east-1\nzone: us-east-1a", ("us-east-1",), ("us-east-1a",)),
        ("region: '*'", (), ()),
    ],
)
def test_places_limit_where_it_may_be(
    service: Loader, resources: str, regions: tuple[str, ...], zones: tuple[str, ...]
) -> None:
    """`infra` and the older words for it become the regions and zones that are allowed."""
    wanted = asked(service(file(f"{resources}\naccelerators: L4\nports: 80")))
    assert (wanted.regions, wanted.zones) == (regions, zones)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (
            "infra: aws/us-east-1/us-east-1a/x",
            "5: resources.infra: expected aws/REGION/ZONE at most, got 'aws/us-east-1/us-east-1a/x'",
        ),
        (
            "infra: aws/Ohio",
            "5: resources.infra: expected a region such as us-east-1, or *, in aws/REGION/ZONE, got 'Ohio'",
        ),
        ("region: Ohio", "5: resources.region: expected a region such as us-east-1, got 'Ohio'"),
        (
            "infra: aws/us-east-1/eu-west-1a",
            "5: resources.infra: eu-west-1a is in none of the regions us-east-1",
        ),
        (
            "region: us-east-1\nzone: eu-west-1a",
            "6: resources.zone: eu-west-1a is in none of the regions us-east-1",
        ),
        (
            "infra: aws\nregion: us-east-1",
            "6: resources.region: says the same as infra, which is here, too: remove one",
        ),
        (
            "region: us-east-1\nregions: [us-east-1]",
            "6: resources.regions: says the same as region, which is here, too: remove one",
        ),
        ("gpus: L4", "7: resources.accelerators: says the same as gpus, which is here, too: remove one"),
    ],
)
def test_a_place_that_is_none_is_told(problems: Refuser, resources: str, expected: str) -> None:
    """A region or zone that can't be, and a thing that is said twice, are placed at their field."""
    text = file(f"{resources}\nports: 80\naccelerators: L4")
    assert told(problems(text)) == [expected]


# Types, disks, ports, labels, images


def test_a_named_type_is_the_only_one(service: Loader) -> None:
    """`instance_type` takes that one and prefers nothing; too little choice is told at the field."""
    chat = service(file("instance_type: t3.medium\nports: 80"))
    assert (chat.instance_type_names, chat.ordered) == (("t3.medium",), False)
    assert [w.field for w in chat.warnings] == ["resources.instance_type"]
    arm = service(file("instance_types: [m7g.xlarge, c7g.2xlarge]\nports: 80\nuse_spot: false"))
    assert (arm.arch, arm.ordered) == ("arm64", True)
    assert "/arm64/" in arm.image.reference


@pytest.mark.parametrize(
    ("written", "gib"),
    [
        ("100", 100),
        ("99.9", 99),
        ("100GB", 100),
        ("'100'", 100),
        ("0.5TB", 512),
        ("102400MB", 100),
        ("100Gi", 100),
    ],
)
def test_disk_sizes_are_rounded_down(service: Loader, written: str, gib: int) -> None:
    """With a unit or without, whole or not."""
    assert service(file(f"accelerators: L4\ndisk_size: {written}\nports: 80")).disk.size_gib == gib


def test_the_fastest_disk_is_ultra(service: Loader) -> None:
    """SkyServe's highest tier is gp3's limit."""
    assert service(file("accelerators: L4\ndisk_tier: ultra\nports: 80")).disk == Disk(256, 8000, 2000)


@pytest.mark.parametrize(
    ("resources", "serving", "port"),
    [
        ("ports: 8080", "", 8080),
        ("ports: '8080'", "", 8080),
        ("ports: [8080]", "", 8080),
        ("ports: ['8080']", "", 8080),
        ("ports: 8080-8080", "", 8080),
        ("ports: [8080, 9000]", ", ports: 9000", 9000),
        ("ports: 8000-8010", ", ports: 8003", 8003),
        ("cpus: 8+", ", ports: 8080", 8080),
    ],
)
def test_one_port_serves(service: Loader, resources: str, serving: str, port: int) -> None:
    """Of one port that one; of several the one that service.ports names."""
    chat = service(file(f"accelerators: L4\n{resources}", HEAD.replace("1}", f"1{serving}}}")))
    assert chat.port == port


@pytest.mark.parametrize(
    ("resources", "serving", "expected"),
    [
        (
            "cpus: 8+",
            "",
            "4: resources.ports: missing: expected the port that `run` listens on, such as 8080",
        ),
        (
            "ports: [8080, 8081]",
            "",
            "6: resources.ports: several ports, and service.ports doesn't say which one serves: "
            "add it, or leave one here",
        ),
        (
            "ports: 8080",
            ", ports: 80",
            "2: service.ports: 80 isn't one of resources.ports: change one of the two",
        ),
        ("ports: 9-1", "", "6: resources.ports: expected a port from 1 to 65535, such as 8080, got '9-1'"),
        (
            "ports: [80, x]",
            "",
            "6: resources.ports[1]: expected a port from 1 to 65535, such as 8080, got 'x'",
        ),
    ],
)
def test_ports_that_say_too_little_are_told(
    problems: Refuser, resources: str, serving: str, expected: str
) -> None:
    """None, several without one that serves, and one that isn't open."""
    text = file(f"accelerators: L4\n{resources}", HEAD.replace("1}", f"1{serving}}}"))
    assert told(problems(text)) == [expected]


def test_labels_are_tags(service: Loader, problems: Refuser) -> None:
    """They are kept for the launch; what EC2 or SpotRelay takes for itself is refused."""
    chat = service(file("accelerators: L4\nports: 80\nlabels: {team: search, cost centre: '42'}"))
    assert chat.labels == {"team": "search", "cost centre": "42"}
    text = file(
        "accelerators: L4\nports: 80\nlabels: {'aws:x': a, 'SpotRelay:service': b, Name: c, n: 1, 'a*': d}"
    )
    assert [problem.field for problem in problems(text)] == [
        "resources.labels.aws:x",
        "resources.labels.SpotRelay:service",
        "resources.labels.Name",
        "resources.labels.n",
        "resources.labels.a*",
    ]
    many = ", ".join(f"l{n}: x" for n in range(41))
    (problem,) = problems(file(f"accelerators: L4\nports: 80\nlabels: {{{many}}}"))
    assert problem.message == "expected at most 40 labels, got 41"


def test_images_in_skyserves_words(service: Loader) -> None:
    """An AMI, one for each region, which are then all it may be in, and a container's image."""
    ami = service(file("accelerators: L4\nports: 80\nimage_id: ami-0123456789abcdef0"))
    assert ami.image == Image("ami-0123456789abcdef0")
    each = {"us-east-1": "ami-0123456789abcdef0", "eu-west-1": "ami-0123456789abcdef1"}
    by_region = service(file(f"accelerators: L4\nports: 80\nimage_id: {each}"))
    assert by_region.image.by_region == each
    assert asked(by_region).regions == ("us-east-1", "eu-west-1")
    docker = service(file("accelerators: L4\nports: 80\nimage_id: docker:vllm/vllm-openai:v0.8"))
    assert docker.container == "vllm/vllm-openai:v0.8"
    assert "deeplearning" in docker.image.reference
    plain = service(file("ports: 80\nimage_id: docker:nginx"))
    assert "deeplearning" in plain.image.reference, "Ubuntu's image has no Docker"


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (
            "image_id: ubuntu",
            "7: resources.image_id: expected docker:IMAGE, an AMI (ami-0123456789abcdef0), or one for each "
            "region, got 'ubuntu'",
        ),
        (
            "image_id: skypilot:gpu-ubuntu-2004",
            "7: resources.image_id: 'skypilot:gpu-ubuntu-2004' is SkyPilot's own image: "
            "remove it, or name one of yours",
        ),
        (
            "image_id: {us-east-1: docker:x}",
            "7: resources.image_id.us-east-1: expected an AMI (ami-0123456789abcdef0), got 'docker:x'",
        ),
        (
            "image_id: {us-east-1: ami-0123456789abcdef0}\nregion: eu-west-1",
            "7: resources.image_id: has no AMI for eu-west-1: add it",
        ),
        (
            "image_id: docker:x\nimage: ami-0123456789abcdef0",
            "7: resources.image_id: says the same as image, which is here, too: remove one",
        ),
    ],
)
def test_an_image_that_is_none_is_told(problems: Refuser, resources: str, expected: str) -> None:
    """What can't be booted, or not everywhere."""
    assert told(problems(file(f"accelerators: L4\nports: 80\n{resources}"))) == [expected]


def test_what_means_nothing_to_a_service_is_a_notice(service: Loader) -> None:
    """Fields of SkyServe's for clusters and jobs are accepted, and it is told that they do nothing."""
    names = ("autostop", "job_recovery", "spot_recovery", "priority", "network_tier", "accelerator_args")
    fields = "\n".join(f"{name}: {{a: 1}}" for name in names)
    chat = service(file(f"accelerators: {{L4, A10G, L40S}}\nports: 80\n{fields}"))
    assert chat.warnings == ()
    assert [n.field for n in chat.notices] == [f"resources.{name}" for name in names]
    assert all(n.message.startswith("has no effect: ") for n in chat.notices)


def test_fields_without_a_value_are_not_there(service: Loader) -> None:
    """`cpus:` whose value is commented out is no error."""
    chat = service(file("accelerators: L4\nports: 80\ncpus:\nmemory:\nimage_id:\nlabels:\nany_of:\ninfra:"))
    assert asked(chat) == Requirements((L4,), arch="x86_64")


def test_all_problems_of_the_section_come_in_one_round(problems: Refuser) -> None:
    """A choice that leaves nothing is told together with wrong fields that it doesn't depend on."""
    text = file(
        "accelerators: A10G:1\ncpus: 96+\ndisk_tier: x\nports: 0\nlabels: {a: 1}\nroot_device: /dev/xvda"
    )
    assert [(p.line, p.field) for p in problems(text)] == [
        (6, "resources.cpus"),
        (7, "resources.disk_tier"),
        (8, "resources.ports"),
        (9, "resources.labels.a"),
    ]
    without = file("accelerators: A10G:1\ndisk_tier: x\nroot_device: /dev/xvda\ndisk_size: 20")
    assert [(p.line, p.field) for p in problems(without)] == [
        (4, "resources.ports"),
        (6, "resources.disk_tier"),
        (7, "resources.root_device"),
        (8, "resources.disk_size"),
    ]


def test_the_json_schema_has_what_may_be_written() -> None:
    """Editors complete and check what people write, not what it becomes."""
    properties = Resources.model_json_schema()["properties"]
    kinds = {
        name: {one.get("type") for one in properties[name]["anyOf"]}
        for name in ("accelerators", "cpus", "memory", "ports", "image_id", "disk_size")
    }
    assert kinds == {
        "accelerators": {"string", "array", "object"},
        "cpus": {"number", "string"},
        "memory": {"number", "string"},
        "ports": {"integer", "string", "array"},
        "image_id": {"string", "object"},
        "disk_size": {"number", "string"},
    }
    assert properties["infra"]["type"] == "string"
