"""Answers in words, and as JSON."""

from __future__ import annotations

import json

from spotrelay.file.catalog import list_prices
from spotrelay.operator.advice.advising import advise, what_would
from spotrelay.operator.advice.ranking import Market, Price, Rank
from spotrelay.operator.advice.reasons import document, order, why_in, why_out, widening

from .questions import NOTHING_KNOWN, REGION, advised, asked, names


def test_each_kind_of_gpu_is_given_its_reason() -> None:
    """How much memory, in what it computes, what limits it, and how several are connected."""
    lines = why_in(advised(model="llama3-70b", precision="fp8"))
    assert len(lines) == 5
    by_gpu = dict(line.split(": ", 1) for line in lines)
    assert by_gpu["L40S:4"].startswith(
        "178.8 GiB hold 83.7 GiB; room for 38 more such requests; FP8 in hardware"
    )
    assert "864 GB/s each is the limit; no NVLink: what its GPUs exchange" in by_gpu["L40S:4"]
    assert "no FP8 in hardware: computed in BF16" in by_gpu["A10G:4"]
    assert "tight: 94% of it, where vLLM takes 90% unless told otherwise" in by_gpu["L4:4"]
    assert "its bandwidth isn't known" in by_gpu["RTX-PRO-4500:4"]
    assert "NVLink" not in by_gpu["RTX-PRO-6000:1"]
    (nvlink, *_) = why_in(advised(model_memory="600GB", gpus=8, phase="training"))
    assert "NVLink of 1800 GB/s between its GPUs" in nvlink


def test_every_type_that_is_out_is_named_or_counted_in_one_line() -> None:
    """Types with the same reason share a line; several numbers of the same GPUs, too."""
    advice = advised(model="llama3-8b")
    lines = why_out(advice.outs)
    assert len(lines) < 30
    assert "p3dn.24xlarge: V100 (Volta) has no BF16 in hardware." in lines
    (several,) = [line for line in lines if "would be used" in line]
    assert several.startswith("g5.12xlarge, g5.24xlarge, g5.48xlarge, ")
    assert several.endswith(" more: 2, 4 or 8 GPUs, of which 1 would be used.")
    assert "g5.16xlarge: 64 vCPU with the same A10G:1 as g5.2xlarge, which has 8." in lines
    told = sum(line.split(": ")[0].count(",") + 1 for line in lines)
    more = sum(int(line.split(": ")[0].split(" and ")[1].split()[0]) for line in lines if " more: " in line)
    assert told + more == len(advice.outs)
    small = why_out(advised(model="llama3-405b").outs)
    assert "g7e.2xlarge, g7e.4xlarge, g7e.8xlarge, g7e.12xlarge, g7e.24xlarge and 1 more:" in "\n".join(small)
    assert any(line.endswith("even 8 RTX-PRO-6000 have 768.0 GiB.") for line in small)


def test_a_line_for_several_types_is_true_of_each() -> None:
    """GPUs of one kind keep its name; of several hosts with the same GPUs the cheapest speaks for all."""
    many = why_out(advised(model="llama3-70b", precision="fp8").outs)
    assert (
        "g7e.12xlarge, g7e.24xlarge, g7e.48xlarge: 2, 4 or 8 RTX-PRO-6000, of which 1 would be used." in many
    )
    assert "g5.48xlarge, g6.48xlarge, g6e.48xlarge, g7.48xlarge: 8 GPUs, of which 4 would be used." in many
    listed = Market(listed=list_prices())
    large = why_out(advised(listed, model="llama3-8b").outs)
    reason = "RTX-PRO-6000:1 has 96 GiB, where A10G:1 of 22 is enough, at 3.4 times the price of g6.2xlarge"
    assert f"g7e.2xlarge, g7e.4xlarge, g7e.8xlarge: {reason}, or more." in large
    assert (
        f"p5.4xlarge: {reason.replace('RTX-PRO-6000:1 has 96', 'H100:1 has 80').replace('3.4', '7.0')}."
        in large
    )
    counted = why_out(advised(model_memory="600GB", gpus=8, phase="training").outs)
    assert [line for line in counted if line.endswith(" more: 1, 2 or 4 GPUs, where 8 are asked for.")]


def test_pools_are_counted_and_what_would_add_some_is_named() -> None:
    """With AWS's advice where the types are few."""
    many = list(widening(advised(model="llama3-8b"), 10))
    assert many[0].startswith("62 capacity pools in us-east-1: 14 types")
    assert "AWS asks" not in many[0]
    assert many[1].startswith("H100:1 would add 1 type and 6 pools")
    assert "us-west-2 53" in many[-1]
    few = list(widening(advised(model="llama3-70b", precision="fp8"), 10))
    assert few[0].endswith("AWS asks for at least 10 types for Spot.")


def test_the_order_is_told() -> None:
    """By price, by the stand-in for it, or by speed."""
    assert order(advised(model="llama3-8b")).startswith("No price is known")
    known = Market({(REGION, "g5.2xlarge"): Price(1.2)})
    assert order(advised(known, model="llama3-8b")).startswith("Ranked by what a USD buys at most, of tokens")
    copy = list_prices()
    listed = f"at on-demand's list price in us-east-1 on {copy.origin.date}."
    assert order(advised(Market(listed=copy), model="llama3-8b")).endswith(f"of tokens: {listed}")
    spot = Market({(REGION, "g5.2xlarge"): Price(None, 0.5)}, listed=copy)
    mixed = order(advised(spot, model="llama3-8b"))
    assert mixed.endswith(f"at Spot's price where it is known, and {listed[3:-1]} elsewhere.")
    assert order(advised(rank=Rank.SPEED, model="llama3-8b")).startswith("Ranked by the bound")


def test_what_would_fit_is_found_by_asking_for_less() -> None:
    """One thing less at a time, and only what gives an answer."""
    question = asked(model="llama3-8b", vcpus="7", interconnect="nvlink")
    assert advise(question, NOTHING_KNOWN).choices == ()
    would = what_would(question, NOTHING_KNOWN, {"smaller": asked(model="llama3-1b", vcpus="7")})
    assert [line.split(":")[0] for line in would] == ["with any number of vCPU"]
    nowhere = asked(model="llama3-405b", regions=("eu-west-1",))
    assert [line.split(":")[0] for line in what_would(nowhere, NOTHING_KNOWN, {})] == ["in another region"]


def test_as_json_everything_is_said() -> None:
    """Choices with their figures, reasons, pools; all of it is JSON."""
    advice = advised(model="llama3-8b")
    told = json.loads(json.dumps(document(advice)))
    assert [row["instance_type"] for row in told["recommended"]] == names(advice)
    assert told["recommended"][0]["bound"] == {"at_most": 37.4, "unit": "tokens/s", "limit": "bandwidth"}
    assert told["recommended"][0]["zones"][REGION]
    assert told["recommended"][-1]["bound"] is None
    assert told["need"]["host_memory_gib"] == "17+"
    assert {row["cause"] for row in told["not_recommended"]} >= {"host", "many", "large", "maker", "arch"}
    assert told["pools"] == 62
    assert told["list_prices"] is None
    copied = document(advised(Market(listed=list_prices()), model="llama3-8b"))
    assert copied["list_prices"]["region"] == "us-east-1"
    assert copied["list_prices"]["licence"] == "Apache-2.0"
    assert copied["recommended"][0]["on_demand_usd"] == 1.212
