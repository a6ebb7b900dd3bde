"""What is known of the software that a file names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotrelay.file.instance.software import environment, notices
from spotrelay.file.service import Service, load
from spotrelay.file.values.disk import disk
from tests.service.test_llama3 import ROOT

from .conftest import GOOD, Loader, on_cpus


def said(service: Service) -> dict[str, str]:
    """Field → notice."""
    return {".".join(map(str, where)): message for where, message in notices(service)}


def test_vllm_keeps_idle_connections_for_longer_than_the_load_balancer(service: Loader) -> None:
    """Its own five seconds would be 502s; what the file says is left as it is, and so are other servers."""
    chat = service(GOOD)
    assert environment(replace(chat, run="exec vllm serve x")) == {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "130"}
    inside = replace(chat, container="docker.io/vllm/vllm-openai:v1", idle_timeout_s=600)
    assert environment(inside) == {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "610"}
    own = replace(chat, run="vllm serve x", envs={"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "900"})
    assert environment(own) == environment(chat) == {}


@pytest.mark.parametrize(
    ("run", "option"),
    [
        ("uvicorn app:app --port 8081", "--timeout-keep-alive 130"),
        ("gunicorn app:app", "--keep-alive 130"),
        ("hypercorn app:app", "--keep-alive 130"),
        ("uvicorn app:app --timeout-keep-alive 300", ""),
        ("python3 serve.py", ""),
    ],
)
def test_a_server_that_closes_idle_connections_sooner_is_told(service: Loader, run: str, option: str) -> None:
    """With the option and its value; who has given the option knows."""
    told = said(replace(service(GOOD), run=run)).get("run", "")
    assert option in told
    assert bool(told) == bool(option)


def test_a_server_that_cannot_be_told_otherwise_is_told_too(service: Loader) -> None:
    """Its clients can."""
    assert "repeat such a request" in said(replace(service(GOOD), run="exec llama-server -m x"))["run"]


def test_an_answer_that_is_not_streamed_needs_time(service: Loader) -> None:
    """A language model's server with the default of 120 seconds; one with 300, or another server, is fine."""
    chat = replace(service(GOOD), run="vllm serve x")
    assert "longer than 120 s fails with 504" in said(chat)["spotrelay.idle_timeout_seconds"]
    assert said(replace(chat, idle_timeout_s=300)) == said(service(GOOD)) == {}


@pytest.mark.parametrize(
    ("setup", "is_told"),
    [
        ("pip install vllm==0.6.3.post1", True),
        ("uv pip install vllm==0.11.0 flashinfer", True),
        ("pip install vllm==0.12.0", False),
        ("pip install vllm==1.0", False),
        ("pip install 'vllm>=0.6'", False),
        ("pip install vllm==0.6.3 'transformers<5'", False),
        ("pip install vllm==0.6.3 transformers==4.45.2", False),
        ("pip install vllm==0.6.3 transformers", True),
    ],
)
def test_a_pin_that_has_rotted_is_told(service: Loader, setup: str, is_told: bool) -> None:
    """A vLLM of before 0.12 allows any transformers, and fails with the one that is installed today."""
    assert ("setup" in said(replace(service(GOOD), setup=setup, idle_timeout_s=300))) is is_told


def test_a_container_needs_room_for_its_image_twice(service: Loader) -> None:
    """Below 128 GiB that is told; without GPUs the instance's own image is small."""
    inside = replace(service(GOOD), container="x", disk=disk("low", 100, None))
    assert "choose 128 or more" in said(inside)["resources.disk_size"]
    assert said(replace(inside, disk=disk("low", 128, None))) == {}
    assert said(on_cpus(inside)) == {}


def test_a_standby_of_an_engine_comes_after_the_warning_is_over(service: Loader) -> None:
    """Who keeps one for vLLM learns what it doesn't bridge; a server that starts at once needs no words."""
    kept = replace(service(GOOD), standby=1, run="vllm serve m", idle_timeout_s=300)
    assert "three to five minutes" in said(kept)["spotrelay.standby"]
    assert said(replace(kept, standby=0)) == {}
    assert said(replace(kept, run="serve")) == {}


def test_the_quick_example_is_told_of_what_it_cannot_change() -> None:
    """Its engine's idle connections, and nothing else."""
    assert list(said(load(ROOT / "services" / "llama3-quick.yaml"))) == ["run"]


@pytest.mark.parametrize("name", ["llama3", "sdxl", "demo"])
def test_no_example_has_anything_to_be_told_of(name: str) -> None:
    """They are what a reader copies."""
    assert said(load(ROOT / "services" / f"{name}.yaml")) == {}
