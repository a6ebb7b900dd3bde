"""Good service files: what is read, what is filled in, what is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.demo.settings import DEFAULT_WARNING_S
from spotrelay.file import catalog
from spotrelay.file.compile.loading import BALANCER_LAG_S
from spotrelay.file.service import Disk, describe, eligible_instance_types, load
from spotrelay.file.values.parsing import Wishes, parse_accelerators, parse_cpus, parse_memory
from spotrelay.plane.core.requirements import Accelerators, Amount, Requirements
from spotrelay.plane.core.spec import ReadinessProbe
from spotrelay.plane.core.timing import DRAIN_SETTLE_S

from .conftest import GOOD, Loader

SERVICES = Path(__file__).parents[2] / "services"


def test_the_demo_service_has_many_pools_and_drains_within_its_warning() -> None:
    """services/demo.yaml is right without a warning, every request fits, and there is time to serve on."""
    demo = load(SERVICES / "demo.yaml")
    assert (demo.name, demo.replicas, demo.use_spot, demo.port) == ("demo", 3, True, 8081)
    assert {t.accelerator for t in demo.instance_types} == {"A10G", "L4", "L40S", "T4"}
    assert len(demo.instance_types) == 22
    assert demo.readiness_probe is not None
    assert demo.readiness_probe.post_data is not None
    assert demo.readiness_probe.post_data["model"] == demo.envs["MODEL_NAME"]
    assert demo.drain_s + BALANCER_LAG_S < DEFAULT_WARNING_S
    assert int(demo.envs["TOKENS"]) * float(demo.envs["TOKEN_S"]) < demo.drain_s
    assert demo.warnings == ()


def test_the_second_demo_service_shares_no_pool_with_the_first() -> None:
    """services/demo-2.yaml can lose its whole market and demo.yaml not notice; its requests fit."""
    demo, second = load(SERVICES / "demo.yaml"), load(SERVICES / "demo-2.yaml")
    assert {t.name for t in demo.instance_types}.isdisjoint(t.name for t in second.instance_types)
    assert int(second.envs["TOKENS"]) * float(second.envs["TOKEN_S"]) < second.drain_s
    assert second.envs["MODEL_NAME"] == demo.envs["MODEL_NAME"], "the load asks both for it"
    assert second.warnings == ()


def test_the_llama3_service_is_the_gss_example_on_at_least_ten_types() -> None:
    """services/llama3.yaml has the article's fields, a real readiness request and no secret in it."""
    llama3 = load(SERVICES / "llama3.yaml")
    assert (llama3.name, llama3.replicas, llama3.use_spot, llama3.port) == ("llama3", 2, True, 8081)
    assert llama3.readiness_probe == ReadinessProbe(
        "/v1/chat/completions",
        {
            "model": "meta-llama/Meta-Llama-3-8B-Instruct",
            "messages": [{"role": "user", "content": "Hello! What is your name?"}],
            "max_tokens": 1,
        },
        timeout_s=15,
        failure_threshold_s=180,
    )
    assert llama3.disk == Disk(128, 3000, 250)
    assert len(llama3.instance_types) >= 10
    assert {t.vcpus for t in llama3.instance_types} == {8, 16, 32}, "no dear fallback"
    assert int(llama3.envs["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > llama3.idle_timeout_s
    assert llama3.secrets == {"HF_TOKEN": "/spotrelay/llama3/hf-token"}
    assert llama3.warnings == ()


def test_a_minimal_file_is_filled_in_with_the_documented_defaults(service: Loader) -> None:
    """Everything but replicas, accelerators, ports and run may be left out."""
    chat = service(GOOD)
    assert chat.name == "chat"
    assert (chat.use_spot, chat.on_demand_fallback, chat.ordered) == (True, True, False)
    assert (chat.health_check_path, chat.readiness_probe) == ("/health", ReadinessProbe("/health", None, 4))
    assert (chat.drain_s, chat.initial_delay_s, chat.idle_timeout_s) == (30, 1200, 120)
    assert chat.drain_unhurried_s == chat.deregistration_delay_s == 300
    assert chat.disk == Disk(256, 3000, 250)
    assert (chat.envs, chat.secrets, chat.setup) == ({}, {}, None)
    assert chat.image.is_parameter
    assert chat.image.reference.startswith("/aws/service/deeplearning/ami/x86_64/")


def test_eligible_types_have_exactly_as_many_gpus_as_asked_for(service: Loader) -> None:
    """`A10G:1` takes g5.16xlarge, which has one, and not g5.12xlarge, which has four."""
    names = [
        t.name for t in eligible_instance_types(service(GOOD.replace("{A10G, L4, L40S}", "{A10G:1, L4:1}")))
    ]
    assert names == [
        *("g5.xlarge", "g5.2xlarge", "g5.4xlarge", "g5.8xlarge", "g5.16xlarge"),
        *("g6.xlarge", "g6.2xlarge", "g6.4xlarge", "gr6.4xlarge", "g6.8xlarge", "gr6.8xlarge", "g6.16xlarge"),
    ]


def test_cpus_and_memory_narrow_the_choice_exactly_or_at_least(service: Loader) -> None:
    """`8+` is at least 8, `64` exactly 64 GiB."""
    chat = service(GOOD.replace("ports:", "cpus: 8+\n  memory: 64\n  ports:"))
    assert chat.instance_type_names == ("g5.4xlarge", "g6.4xlarge", "g6e.2xlarge")


def test_an_accelerators_memory_counts_as_its_maker_counts(service: Loader) -> None:
    """`24+` takes A10G and L4, which AWS gives 22.35 GiB and everybody calls 24 GB; `24` takes no L40S."""
    chat = service(GOOD.replace("{A10G, L4, L40S}", "{A10G, L40S, T4}\n  accelerator_memory: 24+"))
    assert {t.accelerator for t in chat.instance_types} == {"A10G", "L40S"}
    exactly = service(GOOD.replace("{A10G, L4, L40S}", "{A10G, L40S, T4}\n  accelerator_memory: 24"))
    assert {t.accelerator for t in exactly.instance_types} == {"A10G"}


def test_memory_alone_stands_for_any_one_nvidia_gpu(service: Loader) -> None:
    """Without accelerators, `accelerator_memory` takes every type with one NVIDIA GPU of that size."""
    chat = service(GOOD.replace("accelerators: {A10G, L4, L40S}", "accelerator_memory: 24+"))
    assert {t.accelerator for t in chat.instance_types} >= {"A10G", "L4", "L40S", "H100", "RTX-PRO-6000"}
    assert {(t.accelerator_count, t.manufacturer, t.arch) for t in chat.instance_types} == {
        (1, "NVIDIA", "x86_64")
    }


def test_types_and_families_can_be_excluded(service: Loader) -> None:
    """`exclude` takes single types and whole families out of the choice."""
    chat = service(GOOD.replace("{A10G, L4, L40S}", "{A10G, L4}\n  exclude: [g5, gr6, g6.16xlarge]"))
    assert chat.instance_type_names == ("g6.xlarge", "g6.2xlarge", "g6.4xlarge", "g6.8xlarge")


def test_what_the_controller_is_to_know_is_compiled(service: Loader) -> None:
    """Price cap, base and requirements come out as values, with the architecture that the image settled."""
    text = GOOD.replace("replicas: 2", "replicas: 2\n  base_on_demand: 1").replace(
        "{A10G, L4, L40S}",
        "{A10G, L4, L40S}\n  max_price: 70%\n  cpus: 8+\n  exclude: [g6e]"
        "\n  zones: [us-east-1a, us-east-1b]\n  regions: [us-east-1]",
    )
    chat = service(text)
    assert (chat.base_on_demand, chat.max_price_share) == (1, 0.7)
    assert chat.requirements == Requirements(
        accelerators=(Accelerators("A10G", 1), Accelerators("L4", 1), Accelerators("L40S", 1)),
        cpus=Amount(8, at_least=True),
        exclude=("g6e",),
        zones=("us-east-1a", "us-east-1b"),
        regions=("us-east-1",),
        arch="x86_64",
    )
    plain = service(GOOD)
    assert (plain.base_on_demand, plain.max_price_share) == (0, None)


def test_what_has_no_effect_is_a_warning(service: Loader) -> None:
    """A price cap or an on-demand base without Spot, and an exclusion of nothing known, are told."""
    chat = service(
        GOOD.replace("replicas: 2", "replicas: 2\n  base_on_demand: 1").replace(
            "ports:", "use_spot: false\n  max_price: 70%\n  exclude: [g5.3xlarge, g5.xlarge]\n  ports:"
        )
    )
    assert [(w.field, w.message) for w in chat.warnings] == [
        (
            "resources.exclude[0]",
            "g5.3xlarge is no known instance type or family (did you mean g5.xlarge?)",
        ),
        ("resources.max_price", "is for Spot, which use_spot turns off"),
        ("service.base_on_demand", "with use_spot: false every replica is on-demand"),
    ]


def test_few_pools_are_counted_over_the_zones(service: Loader) -> None:
    """Less than ten types times zones says so, and what the zones and exclusions leave out."""
    chat = service(GOOD.replace("{A10G, L4, L40S}", "A10G\n  zones: [us-east-1a]\n  exclude: [g5.xlarge]"))
    (warning,) = chat.warnings
    assert warning.message.startswith(
        "only 4 capacity pools (instance types: 4, zones: 1) are eligible, where AWS asks for at least 10 "
        "types for Spot. Wider with a shorter exclude (it leaves out g5.xlarge), or with more zones than "
        "us-east-1a, "
    )


def test_listed_instance_types_are_all_there_is_and_keep_their_order(service: Loader) -> None:
    """`instance_types` restricts the choice and gives a preference, with or without accelerators."""
    listed = "instance_types: [g6e.2xlarge, g5.xlarge]"
    chat = service(GOOD.replace("accelerators: {A10G, L4, L40S}", listed))
    assert chat.instance_type_names == ("g6e.2xlarge", "g5.xlarge")
    assert chat.ordered


def test_arm_types_are_chosen_only_if_nothing_else_is_asked_for(service: Loader) -> None:
    """One image can't serve two architectures: T4g alone boots an arm64 image, beside L4 it adds nothing."""
    alone = service(GOOD.replace("{A10G, L4, L40S}", "T4g"))
    assert alone.arch == "arm64"
    assert "/ami/arm64/" in alone.image.reference
    beside = service(GOOD.replace("L40S", "L40S, T4g"))
    assert beside.arch == "x86_64"
    assert [w.message for w in beside.warnings] == [
        "T4g:1 adds no instance type: g5g.xlarge, g5g.2xlarge, g5g.4xlarge, g5g.8xlarge "
        "(arm64, where the others are x86_64)"
    ]


def test_another_make_of_chip_needs_an_image_of_its_own(service: Loader) -> None:
    """Inferentia is matched when it is named, together with an image that suits it."""
    file = GOOD.replace("{A10G, L4, L40S}", "Inferentia2\n  image: ami-0123456789abcdef0")
    chat = service(file)
    assert {t.accelerator for t in chat.instance_types} == {"Inferentia2"}
    assert not chat.image.is_parameter


def test_env_values_keep_the_text_that_was_written(service: Loader) -> None:
    """Numbers and booleans need no quotes, and 1.10 stays 1.10."""
    chat = service(GOOD + 'envs: {V: 1.10, N: 010, T: True, E: "", H: 0x1F, D: 2026-11-21, Y: yes}')
    assert chat.envs == {
        "V": "1.10",
        "N": "010",
        "T": "True",
        "E": "",
        "H": "0x1F",
        "D": "2026-11-21",
        "Y": "yes",
    }


def test_sections_with_nothing_in_them_are_empty(service: Loader) -> None:
    """`envs:` with all entries commented out is no error."""
    chat = service(GOOD + "envs:\nsecrets:\nsetup:\nname:\n")
    assert (chat.envs, chat.secrets, chat.setup, chat.name) == ({}, {}, None, "chat")


def test_variables_in_the_probe_are_expanded_in_every_text(service: Loader) -> None:
    """`$NAME` and `${NAME}` stand for envs and PORT in any depth, `$$` for a dollar sign."""
    probe = "readiness_probe: {path: /p, post_data: {a: [$M, '${M}s'], b: {c: 'costs $$5'}, n: 1, p: $PORT}}"
    chat = service(GOOD.replace("replicas: 2", f"replicas: 2\n  {probe}") + "envs: {M: llama}")
    assert chat.readiness_probe is not None
    assert chat.readiness_probe.post_data == {
        "a": ["llama", "llamas"],
        "b": {"c": "costs $5"},
        "n": 1,
        "p": "8081",
    }


def test_post_data_may_be_json_text(service: Loader) -> None:
    """As in SkyServe, the request may be given as one JSON string."""
    data = """post_data: '{"n": 1}'"""
    probe = f"readiness_probe: {{path: /p, {data}, timeout_seconds: 5, initial_delay_seconds: 60}}"
    chat = service(GOOD.replace("replicas: 2", f"replicas: 2\n  {probe}"))
    assert chat.readiness_probe == ReadinessProbe("/p", {"n": 1}, timeout_s=5, failure_threshold_s=180)
    assert chat.initial_delay_s == 60
    assert chat.health_check_path == "/health"


@pytest.mark.parametrize(
    ("more", "fetching_s"),
    [
        ("", 0),
        ("file_mounts: {/a: s3://data}", 600),
        ("file_mounts: {/a: {source: s3://data, mode: MOUNT}}", 0),
        ("image_id: docker:vllm/vllm-openai:v0.33.0\n", 600),
    ],
)
def test_what_is_fetched_does_not_count_as_a_start(service: Loader, more: str, fetching_s: float) -> None:
    """As in SkyServe, whose initial delay begins behind it: an image, and buckets that are copied."""
    probe = "readiness_probe: {path: /p, initial_delay_seconds: 60}"
    text = GOOD.replace("replicas: 2", f"replicas: 2\n  {probe}")
    if more.startswith("image_id"):
        text, more = text.replace("resources:\n", f"resources:\n  {more}"), ""
    assert service(f"{text}{more}\n").initial_delay_s == 60 + fetching_s


@pytest.mark.parametrize("probe", ["readiness_probe: /ready", "readiness_probe: {path: /ready}"])
def test_a_probe_without_post_data_is_the_load_balancers_check(service: Loader, probe: str) -> None:
    """It becomes the target group's check; the prober sends the same before a replica is registered."""
    chat = service(GOOD.replace("replicas: 2", f"replicas: 2\n  {probe}"))
    assert (chat.health_check_path, chat.readiness_probe) == ("/ready", ReadinessProbe("/ready", None, 4))
    assert chat.readiness_probe is not None
    assert chat.readiness_probe.is_health_check


def test_what_a_given_target_group_checks_is_not_guessed(service: Loader) -> None:
    """Only its owner knows: a replica is asked before it is registered where the file says what."""
    brought = "spotrelay: {target_group: 'arn:aws:elasticloadbalancing:us-east-1:000000000000:targetgroup/a/0"
    brought += "123456789abcdef', security_groups: [sg-0123456789abcdef0]}\n"
    assert service(GOOD + brought).readiness_probe is None
    said = GOOD.replace("replicas: 2", "replicas: 2\n  readiness_probe: /ready")
    assert service(said + brought).readiness_probe == ReadinessProbe("/ready", None, 4)


def test_few_types_are_a_warning_that_says_what_would_widen_the_choice(service: Loader) -> None:
    """Fewer than ten types for Spot is answered with the requirement to relax and the GPUs to add."""
    chat = service(GOOD.replace("{A10G, L4, L40S}", "A10G\n  cpus: 8+"))
    assert [str(w).partition("chat.yaml:")[2] for w in chat.warnings] == [
        "5:3: resources.accelerators: "
        "only 4 instance types are eligible, where AWS asks for at least 10 for Spot. "
        "Wider with a smaller cpus (it leaves out g5.xlarge), or with L4:1 (6 more), or with L40S:1 (4 more)."
    ]
    listed = service(GOOD.replace("accelerators: {A10G, L4, L40S}", "instance_types: [g5.xlarge]"))
    assert "List more in instance_types" in listed.warnings[0].message
    assert service(GOOD.replace("{A10G, L4, L40S}", "A10G\n  use_spot: false")).warnings == ()


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ("drain_seconds: 99", None),
        ("drain_seconds: 100", "100 s leave a warned replica no time to serve on: there are 120 s in all"),
        ("drain_seconds: 100\n  on_warning: serve_on", "100 s leave a warned replica no time to serve on"),
        ("drain_seconds: 119\n  on_warning: leave", None),
        ("drain_seconds: 120\n  on_warning: leave", "120 s hold only for replicas that EC2 doesn't take"),
    ],
)
def test_a_drain_that_leaves_no_time_is_a_warning(service: Loader, fields: str, warned: str | None) -> None:
    """What doesn't fit into EC2's two minutes is told: to serve on, and at all; not to who leaves at once."""
    text = GOOD.replace("replicas: 2", f"replicas: 2\n  {fields}")
    chat = service(text)
    assert [(w.line, w.field) for w in chat.warnings] == ([(3, "service.drain_seconds")] if warned else [])
    assert all(w.message.startswith(warned or "") for w in chat.warnings)
    assert service(text.replace("ports", "use_spot: false\n  ports")).warnings == ()


def bridged(standby: str, more: str = "") -> str:
    """The good file, of two replicas, with standbys."""
    probe = "readiness_probe: {path: /v1, post_data: {a: 1}}"
    return (
        GOOD.replace("replicas: 2", f"replicas: 2\n  {probe}{more}") + f"spotrelay: {{standby: {standby}}}\n"
    )


@pytest.mark.parametrize(
    ("standby", "count"), [("0", 0), ("3", 3), ("1%", 1), ("50%", 1), ("51%", 2), ("100%", 2), ("101%", 3)]
)
def test_standbys_are_a_number_or_a_share_of_the_replicas(service: Loader, standby: str, count: int) -> None:
    """A share is rounded up: part of a standby bridges nothing."""
    chat = service(bridged(standby))
    assert (chat.standby, describe(chat).standby) == (count, count)
    assert chat.warnings == ()


def test_how_many_standbys_pay_may_be_left_to_the_control_plane(service: Loader) -> None:
    """It begins with one for each replica on Spot, and all that is said of a number is said of it."""
    chat = service(bridged("auto", "\n  base_on_demand: 1"))
    assert (chat.standby, chat.standby_auto) == (1, True)
    assert (describe(chat).standby, describe(chat).standby_auto) == (1, True)
    assert chat.warnings == ()
    assert not service(bridged("100%")).standby_auto
    (warning,) = service(bridged("auto", "\n  drain_seconds: 41")).warnings
    assert warning.field == "service.drain_seconds"
    (warning,) = service(bridged("auto") + "envs: {HF_HOME: /opt/dlami/nvme/hf}\n").warnings
    assert warning.field == "spotrelay.standby"


def test_what_rules_out_standbys_is_right_without(service: Loader) -> None:
    """A file that asks for none, or for a share of no replicas, needs no probe and may do as it likes."""
    more = "\n  on_demand_fallback: false\n  on_warning: leave"
    assert (
        service(GOOD.replace("replicas: 2", f"replicas: 2{more}") + "spotrelay: {standby: 0}\n").warnings
        == ()
    )
    assert service(GOOD.replace("replicas: 2", "replicas: 0") + "spotrelay: {standby: 100%}\n").standby == 0
    assert service(GOOD + "setup: fetch /opt/dlami/nvme/model\n").warnings == ()


@pytest.mark.parametrize(
    ("more", "field", "message"),
    [
        ("\n  drain_seconds: 40", "", ""),
        ("\n  drain_seconds: 41", "service.drain_seconds", "41 s leave a warned replica less time"),
        ("\n  drain_seconds: 100", "service.drain_seconds", "100 s leave a warned replica no time"),
        ("\n  on_warning: leave", "service.on_warning", "a warned replica leaves at once, and the standby"),
    ],
)
def test_who_leaves_before_a_standby_comes_is_warned(
    service: Loader, more: str, field: str, message: str
) -> None:
    """A standby takes about a minute of the two that EC2 leaves, and the drain and the balancer the rest."""
    warnings = service(bridged("1", more)).warnings
    assert [w.field for w in warnings] == ([field] if field else [])
    assert all(w.message.startswith(message) for w in warnings)


@pytest.mark.parametrize("more", ["envs: {HF_HOME: /opt/dlami/nvme/hf}\n", ""])
def test_a_model_that_a_standby_forgets_is_warned_of(service: Loader, more: str) -> None:
    """What `run` keeps on the host's disks is empty after each stop, and loaded anew."""
    text = bridged("1") + more
    if not more:
        text = text.replace("run: python3", "run: HF_HOME=/opt/dlami/nvme/hf python3")
    (warning,) = service(text).warnings
    assert warning.field == "spotrelay.standby"
    assert "loses what is below /opt/dlami/nvme" in warning.message


def test_the_balancers_lag_is_the_controllers() -> None:
    """The limit that a service file is held to is the one that the controller acts by."""
    assert BALANCER_LAG_S == DRAIN_SETTLE_S


def test_what_is_likely_a_mistake_is_a_warning(service: Loader) -> None:
    """A drain longer than EC2's warning and a token among the envs are allowed, with a warning."""
    chat = service(
        GOOD.replace("replicas: 2", "replicas: 2\n  drain_seconds: 600")
        + "envs: {HF_TOKEN: abc, MAX_TOKENS: 5, EMPTY_TOKEN: ''}"
    )
    assert [(w.line, w.field) for w in chat.warnings] == [(3, "service.drain_seconds"), (9, "envs.HF_TOKEN")]


def test_a_description_tells_what_the_service_amounts_to(service: Loader) -> None:
    """The facts for `spotrelay validate` come from the validated service."""
    patient = service(GOOD.replace("replicas: 2", "replicas: 2\n  idle_timeout_seconds: 600"))
    assert (patient.idle_timeout_s, describe(patient).idle_timeout_s) == (600, 600)
    facts = describe(service(GOOD))
    assert facts.accelerators == ("A10G:1 (5 types)", "L4:1 (7 types)", "L40S:1 (5 types)")
    assert facts.pools_per_zone == 17
    assert facts.purchase == "Spot, on-demand when there is none"
    asking = service(
        GOOD.replace("replicas: 2", "replicas: 2\n  readiness_probe: {path: /up, headers: {x: y}}")
    )
    assert describe(asking).readiness_probe == "GET /up"
    only = service(GOOD.replace("replicas: 2", "replicas: 2\n  on_demand_fallback: false"))
    assert describe(only).purchase == "Spot only"
    capped = service(
        GOOD.replace("replicas: 2", "replicas: 2\n  base_on_demand: 1").replace(
            "ports:", "max_price: 70%\n  zones: [us-east-1a, us-east-1b]\n  ports:"
        )
    )
    assert describe(capped).purchase == (
        "1 always on-demand, the rest Spot, on-demand when there is none; "
        "Spot for at most 70% of the on-demand price"
    )
    assert describe(capped).zones == ("us-east-1a", "us-east-1b")
    assert describe(service(GOOD.replace("ports", "use_spot: false\n  ports"))).purchase == "on-demand"
    group = "arn:aws:resource-groups:us-east-1:123456789012:group/chat"
    reserved = service(GOOD + f"spotrelay: {{capacity_reservations: {group}}}\n")
    assert describe(reserved).purchase == (
        "Spot, on-demand when there is none; on-demand in the capacity reservations of chat first"
    )


OFFERED = sorted({(t.accelerator, t.accelerator_count) for t in catalog.all_types() if t.accelerator_count})


@given(st.lists(st.sampled_from(OFFERED), min_size=1, unique_by=lambda offered: offered[0]))
def test_every_way_of_writing_accelerators_means_the_same(wanted: list[tuple[str, int]]) -> None:
    """A list, a mapping, a set and, for one, a string give the same accelerators; only a list orders them."""
    expected = tuple(Accelerators(name, count) for name, count in wanted)
    texts = [f"{name}:{count}" for name, count in wanted]
    in_order, any_of_them = Wishes(expected, ordered=len(expected) > 1), Wishes(expected)
    assert parse_accelerators(texts) == in_order
    assert parse_accelerators(texts * 2) == in_order
    assert parse_accelerators(dict(wanted)) == any_of_them
    assert parse_accelerators({name: float(count) for name, count in wanted}) == any_of_them
    assert parse_accelerators(dict.fromkeys(texts)) == any_of_them
    for item in expected:
        assert parse_accelerators(str(item)) == parse_accelerators(f"{item}.0") == Wishes((item,))
    if all(count == 1 for _, count in wanted):
        assert parse_accelerators([name for name, _ in wanted]) == in_order
        assert parse_accelerators(dict.fromkeys(name for name, _ in wanted)) == any_of_them


@given(st.integers(1, 9_999_999), st.booleans(), st.integers(0, 10_000_000))
def test_amounts_read_back_as_written_and_accept_what_they_say(value: int, plus: bool, offered: int) -> None:
    """`8` accepts 8 and nothing else, `8+` accepts 8 and everything above."""
    for parse in (parse_cpus, parse_memory):
        amount = parse(f"{value}+" if plus else value)
        assert amount == Amount(value, plus)
        assert parse(str(amount)) == amount
        assert amount.accepts(offered) == (offered >= value if plus else offered == value)
