"""SkyServe's format: each field means here what it means there, or a notice says how it differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotrelay.file.service import InvalidServiceFileError, Service, load
from spotrelay.file.source.inputs import Inputs, InputsError, inputs
from spotrelay.file.source.yaml11 import text_of
from spotrelay.plane.core.spec import ReadinessProbe

THEIRS = """\
service:
  readiness_probe: /v1/models
resources:
  accelerators: {A10G, L4, L40S}
  ports: 8000
run: serve
"""


def loaded(tmp_path: Path, text: str, said: Inputs | None = None, name: str = "chat") -> Service:
    """A service file with this text."""
    file = tmp_path / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, said or Inputs())


def notices(service: Service) -> dict[str, str]:
    """Every notice by its field."""
    return {notice.field: notice.message for notice in service.notices}


def refused(tmp_path: Path, text: str, said: Inputs | None = None) -> list[str]:
    """Its problems, without the file's name."""
    with pytest.raises(InvalidServiceFileError) as caught:
        loaded(tmp_path, text, said)
    return [str(problem).partition("chat.yaml:")[2] for problem in caught.value.problems]


def test_what_says_nothing_of_spot_is_on_demand_and_says_so(tmp_path: Path) -> None:
    """In SkyServe's format; one line puts the same file on Spot with on-demand as its fallback."""
    theirs = loaded(tmp_path, THEIRS)
    assert (theirs.use_spot, theirs.replicas) == (False, 1)
    assert "add `spotrelay: {}`" in notices(theirs)["resources"]
    ours = loaded(tmp_path, THEIRS + "spotrelay: {}\n")
    assert (ours.use_spot, ours.on_demand_fallback, ours.notices) == (True, True, ())


def test_spot_without_a_fallback_means_spot_only_and_says_so(tmp_path: Path) -> None:
    """With dynamic_ondemand_fallback it has one."""
    spot = THEIRS.replace("ports:", "use_spot: true\n  ports:")
    only = loaded(tmp_path, spot)
    assert (only.use_spot, only.on_demand_fallback) == (True, False)
    assert notices(only)["resources.use_spot"].startswith("means Spot only in SkyServe's format")
    fallbacks = "base_ondemand_fallback_replicas: 1, dynamic_ondemand_fallback: true"
    policy = f"replica_policy: {{min_replicas: 3, {fallbacks}}}"
    both = loaded(tmp_path, spot.replace("service:", f"service:\n  {policy}"))
    assert (both.replicas, both.base_on_demand, both.on_demand_fallback) == (3, 1, True)
    assert both.notices == ()


@pytest.mark.parametrize("word", ["yes", "on", "Yes", "true", "!!bool yes"])
def test_yaml_11s_words_for_true_mean_true(tmp_path: Path, word: str) -> None:
    """SkyPilot reads YAML 1.1. Ours are YAML 1.2's, in which `yes` is text, and refused."""
    assert loaded(tmp_path, THEIRS.replace("ports:", f"use_spot: {word}\n  ports:")).use_spot
    assert loaded(tmp_path, "%YAML 1.1\n---\n" + THEIRS.replace("ports:", "use_spot: on\n  ports:")).use_spot


def test_what_promises_no_get_is_alive_when_it_answers_anything(tmp_path: Path) -> None:
    """A probe with post_data promises no /health: the balancer GETs / and takes 200 to 499."""
    posts = THEIRS.replace("/v1/models", "{path: /v1/chat, post_data: {a: 1}}")
    service = loaded(tmp_path, posts)
    assert (service.health_check_path, service.health_check_codes) == ("/", "200-499")
    assert "service" in notices(service)
    gets = loaded(tmp_path, THEIRS)
    assert (gets.health_check_path, gets.health_check_codes) == ("/v1/models", "200")
    ours = loaded(tmp_path, posts + "spotrelay:\n")
    assert (ours.health_check_path, ours.health_check_codes) == ("/health", "200")


def test_the_whole_probe_is_read(tmp_path: Path) -> None:
    """Headers, threshold and a longer time-out; what is done in another way is said."""
    probe = (
        "{headers: {Authorization: Bearer $KEY, X-N: 3}, timeout_seconds: 60,"
        " endpoint_probe_interval_seconds: 5, consecutive_failure_threshold_timeout: 30}"
    )
    service = loaded(tmp_path, THEIRS.replace("/v1/models", probe) + "envs: {KEY: abc}\n")
    assert service.readiness_probe == ReadinessProbe(
        "/", None, 20, {"Authorization": "Bearer abc", "X-N": "3"}, failure_threshold_s=60
    )
    assert {
        f"service.readiness_probe.{name}"
        for name in (
            "timeout_seconds",
            "endpoint_probe_interval_seconds",
            "consecutive_failure_threshold_timeout",
        )
    } < notices(service).keys()


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        ("{path: /v1, timeout_seconds: 60}", "the load balancer's own check, which waits for 4 s"),
        ("{path: /v1, timeout_seconds: 5}", "the load balancer's own check, which waits for 4 s"),
        ("{path: /v1, timeout_seconds: 4}", None),
        ("{path: /v1}", None),
        ("{path: /v1, timeout_seconds: 60, headers: {A: b}}", "prober waits for 20 s"),
        ("{path: /v1, timeout_seconds: 20, headers: {A: b}}", None),
    ],
)
def test_who_asks_and_how_long_it_waits_is_said(tmp_path: Path, probe: str, said: str | None) -> None:
    """A plain GET is the load balancer's, whatever the file would wait."""
    told = notices(loaded(tmp_path, THEIRS.replace("/v1/models", probe)))
    found = told.get("service.readiness_probe.timeout_seconds")
    assert (said in str(found)) if said else found is None


def test_the_balancers_words(tmp_path: Path) -> None:
    """The stream's time-out is the idle time-out; a policy is the balancer's algorithm; tls is ACM's."""
    text = THEIRS.replace(
        "service:",
        "service:\n  load_balancer: {stream_timeout_seconds: 600}\n  load_balancing_policy: round_robin\n"
        "  tls: {keyfile: key.pem, certfile: cert.pem}",
    )
    service = loaded(tmp_path, text)
    assert (service.idle_timeout_s, service.load_balancing, service.certificate_arn) == (
        600,
        "round_robin",
        None,
    )
    assert "aws acm import-certificate" in notices(service)["service.tls"]
    aware = loaded(tmp_path, text.replace("round_robin", "instance_aware_least_load"))
    assert "outstanding requests" in notices(aware)["service.load_balancing_policy"]
    arn = "arn:aws:acm:us-east-1:000000000000:certificate/01-23"
    named = loaded(tmp_path, text + f"spotrelay: {{certificate_arn: '{arn}'}}\n")
    assert named.certificate_arn == arn
    assert "service.tls" not in notices(named)


def test_a_mount_is_read_only_and_says_so(tmp_path: Path) -> None:
    """In SkyServe it is writable; what is copied, or named as writable, says nothing."""
    text = THEIRS + "file_mounts: {/out: {source: s3://data}, /in: {source: s3://data, mode: copy}}\n"
    told = notices(loaded(tmp_path, text))
    assert "add `spotrelay: {writable_mounts: [/out]}`" in told["file_mounts./out"]
    assert "file_mounts./in" not in told
    assert notices(loaded(tmp_path, text + "spotrelay: {writable_mounts: [/out]}\n")) == {}


def test_names_are_substituted_everywhere_and_unknown_ones_stay(tmp_path: Path) -> None:
    """As in SkyServe: the path, too; a dollar sign stands for itself, twice for two."""
    text = THEIRS.replace(
        "/v1/models", "{path: '/$V/${MODEL}', post_data: {a: '$MODEL $OTHER $$ ${MODEL}s', b: ['$$MODEL']}}"
    )
    service = loaded(tmp_path, text + "envs: {MODEL: llama, V: 1}\n")
    assert service.readiness_probe
    assert service.readiness_probe.path == "/1/llama"
    assert service.readiness_probe.post_data == {"a": "llama $OTHER $$ llamas", "b": ["$llama"]}


def test_json_text_is_substituted_within(tmp_path: Path) -> None:
    """A value with a quotation mark doesn't end the text."""
    text = THEIRS.replace("/v1/models", """{path: /v1, post_data: '{"model": "$MODEL"}'}""")
    service = loaded(tmp_path, text + """envs: {MODEL: 'a "b"'}\n""")
    assert service.readiness_probe
    assert service.readiness_probe.post_data == {"model": 'a "b"'}


def test_a_secret_in_the_probe_is_refused_with_the_reason(tmp_path: Path) -> None:
    """The probe is part of a document that anybody in the account may read."""
    text = THEIRS.replace("/v1/models", "{path: /v1, headers: {Authorization: Bearer $KEY}}")
    assert refused(tmp_path, text + "secrets: {KEY: null}\n") == [
        "2:42: service.readiness_probe.headers.Authorization: $KEY is a secret, and this is stored in the "
        "clear: leave it out"
    ]


def test_an_env_without_a_value_takes_one_from_outside(tmp_path: Path) -> None:
    """Also one that the file has, and one that it hasn't."""
    text = THEIRS + "envs: {MODEL: null, SIZE: 7}\n"
    service = loaded(tmp_path, text, Inputs({"MODEL": "m", "SIZE": "8", "MORE": "x"}))
    assert service.envs == {"MODEL": "m", "SIZE": "8", "MORE": "x"}
    (problem,) = refused(tmp_path, text)
    assert problem.startswith("7:8: envs.MODEL: has no value: give it with --env NAME=VALUE")


def test_a_value_from_outside_is_held_to_the_same_rules(tmp_path: Path) -> None:
    """What CloudFormation would replace, what systemd would ignore, what is no text."""
    said = Inputs({"A": "{{resolve:ssm:x}}", "B": "\x07", "SPOTRELAY_X": "1"})
    assert [problem.split(": ")[1] for problem in refused(tmp_path, THEIRS, said)] == [
        "envs.A",
        "envs.B",
        "envs.SPOTRELAY_X",
    ]
    with pytest.raises(InputsError, match="--env A: its value isn't UTF-8"):
        inputs(["A=\udcff"])


def test_an_option_of_the_wrong_kind_is_told(tmp_path: Path) -> None:
    """A secret given as an env would stand in the template in the clear."""
    text = THEIRS + "envs: {A: null}\nsecrets: {B: null}\n"
    assert refused(tmp_path, text, Inputs({"B": "x"}, {"A": "y"})) == [
        "7:8: envs.A: is no secret in the file: give it with --env, or move it under `secrets`",
        "8:11: secrets.B: is a secret in the file: give it with --secret",
    ]


def test_secrets_without_a_parameter_have_one_of_their_service(tmp_path: Path) -> None:
    """Null or literal: the value is in Parameter Store, never in the template."""
    text = THEIRS + "secrets: {HF_TOKEN: null, KEY: abc}\n"
    service = loaded(tmp_path, text, Inputs(secrets={"MORE": "x"}), name="My_Chat")
    assert service.secrets == {
        "HF_TOKEN": "/spotrelay/my-chat/HF_TOKEN",
        "KEY": "/spotrelay/my-chat/KEY",
        "MORE": "/spotrelay/my-chat/MORE",
    }
    assert service.secret_values == {"KEY": "abc"}
    assert "abc" not in repr(service)
    assert "take it out of the file" in notices(service)["secrets.KEY"]
    assert "--secret HF_TOKEN=" in notices(service)["secrets.HF_TOKEN"]


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("My_Service", "my-service"),
        ("3d", "s-3d"),
        ("a" * 20_000, "a" * 24),
        ("Müller: chat!", "muller-chat"),
        ("a" * 23 + "-b", "a" * 23),
    ],
)
def test_any_name_becomes_one_that_aws_takes_and_says_so(tmp_path: Path, name: str, becomes: str) -> None:
    """Whether the file says it, or a command does."""
    service = loaded(tmp_path, THEIRS + f"name: '{name}'\n")
    assert service.name == becomes
    assert f"becomes {becomes}" in notices(service)["name"]
    assert loaded(tmp_path, THEIRS, Inputs(name=name)).name == becomes


@pytest.mark.parametrize(
    ("word", "text"),
    [
        *[
            ("yes", "True"),
            ("off", "False"),
            ("1.10", "1.1"),
            ("010", "8"),
            ("0x1F", "31"),
            ("1_000", "1000"),
        ],
        *[("1:30", "90"), (".inf", "inf"), ("-1.5", "-1.5"), ("7", "7"), ("hello", "hello"), ("1e3", "1e3")],
        *[("1.0e+3", "1000.0"), ("null", "null"), ("0b11", "3"), ("2026-11-23", "2026-11-23"), (".", ".")],
    ],
)
def test_what_skypilot_makes_of_a_bare_word(word: str, text: str) -> None:
    """YAML 1.1's value, in Python's text."""
    assert text_of(word) == text


def test_a_value_that_skypilot_would_change_is_told(tmp_path: Path) -> None:
    """Ours keeps what was written; a value in quotes is the same in both."""
    service = loaded(tmp_path, THEIRS + "envs: {A: yes, B: 'yes', C: 1.10, D: 1.5}\n")
    assert service.envs == {"A": "yes", "B": "yes", "C": "1.10", "D": "1.5"}
    assert [field for field in notices(service) if field.startswith("envs")] == ["envs.A", "envs.C"]
    assert notices(service)["envs.A"] == "is yes as it was written; SkyServe would make 'True' of it"


def test_host_and_port_may_be_the_files_own(tmp_path: Path) -> None:
    """SkyServe sets neither, so its files may; ours may not."""
    text = THEIRS + "envs: {PORT: 8000, HOST: 127.0.0.1}\n"
    assert loaded(tmp_path, text).envs == {"PORT": "8000", "HOST": "127.0.0.1"}
    assert len(refused(tmp_path, text + "spotrelay: {}\n")) == 2


def test_all_problems_come_in_one_round(tmp_path: Path) -> None:
    """What can't be read doesn't hide what is at odds with the rest, nor what is missing."""
    text = """\
service:
  replicas: -1
  surge: 1
  health_check: /health
  readiness_probe: /ready
resources:
  accelerators: A10G
  zones: [us-east-1a]
  regions: [eu-west-1]
  disk_size: 20
  ports: 0
envs: {A: [1]}
secrets: {B: /b}
"""
    assert [problem.partition(": ")[2].partition(":")[0] for problem in refused(tmp_path, text)] == [
        "run",
        "service.replicas",
        "service.health_check",
        "resources.zones[0]",
        "resources.disk_size",
        "resources.ports",
        "envs.A",
    ]


def test_what_is_wrong_brings_no_second_error_with_it(tmp_path: Path) -> None:
    """A choice of types that can't be read isn't missing, and one that was taken for it isn't at odds."""
    text = THEIRS.replace("{A10G, L4, L40S}", "A10X") + "spotrelay: {instance_types: [g5.xlarge, x]}\n"
    assert len(refused(tmp_path, text)) == 2
    many = THEIRS.replace("service:", "service:\n  replicas: many") + "spotrelay: {base_on_demand: 2}\n"
    assert len(refused(tmp_path, many)) == 1
    both = THEIRS.replace("/v1/models", "{path: v1, post_data: {a: 1}}") + "spotrelay: {standby: 1}\n"
    assert len(refused(tmp_path, both)) == 1


@pytest.mark.parametrize("name", ["config: {aws: {}}", "experimental: {a: 1}", "inputs: {a: 1}"])
def test_skypilots_own_settings_have_no_effect_and_say_so(tmp_path: Path, name: str) -> None:
    """They are no error: they say nothing of the service."""
    assert "has no effect" in notices(loaded(tmp_path, THEIRS + name + "\n"))[name.partition(":")[0]]


def test_a_pool_gets_exactly_one_line(tmp_path: Path) -> None:
    """Whatever else is wrong with it."""
    (problem,) = refused(tmp_path, "pool: {workers: 2}\nresources: 3\nzzz: 1\n")
    assert "serves no HTTP" in problem
