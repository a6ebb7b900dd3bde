"""In which order types come, and which aren't worth their money."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.file import catalog
from spotrelay.operator.advice.ranking import Market, Price, Rank

from .questions import REGION, advised, asked, bounds, groups, names, why_not


def market(**prices: tuple[float | None, float | None]) -> Market:
    """On-demand and Spot of types, whose dots are underscores here."""
    return Market({(REGION, name.replace("_", ".")): Price(*both) for name, both in prices.items()})


LISTED = Market(listed=catalog.list_prices())


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_without_prices_the_order_is_the_one_that_list_prices_give(phase: str) -> None:
    """The bound for each GiB of GPU memory orders the single-GPU types with 8 vCPU as their prices do."""
    options: dict[str, Any] = {"params": "3B", "precision": "fp16", "phase": phase, "vcpus": "8", "gpus": 1}
    listed = catalog.list_prices().usd
    priced = [name for name in names(advised(LISTED, **options)) if name in listed]
    unpriced = [name for name in names(advised(**options)) if name in listed]
    # L40S is more than 2.5 times T4's size, and so is left out where nobody knows what it costs.
    assert set(priced) >= {"g4dn.2xlarge", "g5.2xlarge", "g6.2xlarge"}
    assert [name for name in priced if name in unpriced] == unpriced


def test_with_prices_what_a_usd_buys_comes_first() -> None:
    """Spot's price counts where it is known, and on-demand's elsewhere; what has none comes last."""
    known = market(g5_2xlarge=(1.2, 0.6), g6_2xlarge=(1.0, 0.2), g5_4xlarge=(1.6, None))
    advice = advised(known, model="llama3-8b", vcpus="8+")
    # L4 18.68/0.2 = 93, A10G 37.36/0.6 = 62, A10G 37.36/1.6 = 23 tokens a second for each USD an hour.
    assert names(advice)[:3] == ["g6.2xlarge", "g5.2xlarge", "g5.4xlarge"]
    assert advice.is_priced
    assert advice.choices[0].per_usd == pytest.approx(18.68 * 3600 / 0.2, rel=1e-3)


def test_by_speed_prices_do_not_count() -> None:
    """The highest bound first, whatever it costs."""
    known = market(g5_2xlarge=(1.2, 0.6), g6_2xlarge=(1.0, 0.1), g6e_2xlarge=(2.2, 0.9))
    assert groups(advised(known, Rank.SPEED, model="llama3-8b"))[0] == "L40S:1"


def test_the_same_gpus_at_a_price_above_on_demand_are_out() -> None:
    """A larger host as Spot that costs more than the small one on-demand, which stands in anyway."""
    known = market(g5_2xlarge=(1.212, 0.5), g5_16xlarge=(4.096, 1.5), g5_8xlarge=(2.448, 1.1))
    advice = advised(known, model="llama3-8b")
    assert why_not(advice, "g5.16xlarge").startswith("A10G:1 like g5.2xlarge at 3.4 times the price")
    assert "g5.8xlarge" in names(advice)


def test_without_a_spot_price_two_and_a_half_times_is_the_limit() -> None:
    """Spot usually costs so much less."""
    known = market(g5_2xlarge=(1.0, None), g5_4xlarge=(2.4, None), g5_8xlarge=(2.6, None))
    advice = advised(known, model="llama3-8b")
    assert "g5.4xlarge" in names(advice)
    assert "g5.8xlarge" not in names(advice)


def test_what_does_far_less_for_the_money_as_spot_than_another_on_demand_is_out() -> None:
    """L4 at 1.3 USD: 14.4 tokens a second for each; A10G on-demand at 1.2: 31.1, more than twice as many.

    With less of a difference it stays: the bounds of two kinds of GPU aren't that exact.
    """
    advice = advised(market(g5_2xlarge=(1.2, 0.6), g6_2xlarge=(1.5, 1.3)), model="llama3-8b")
    assert "g5.2xlarge on-demand does 2.2 times as much" in why_not(advice, "g6.2xlarge")
    nearer = advised(market(g5_2xlarge=(1.2, 0.6), g6_2xlarge=(1.0, 0.7)), model="llama3-8b")
    assert "g6.2xlarge" in names(nearer)


def test_no_gpu_is_out_by_peak_arithmetic_that_the_source_documents_advise_for_images() -> None:
    """g5, g6 and g6e, at list prices as at Spot's: an L40S does 2.5 times what an A10G does, not 5.2."""
    assert set(groups(advised(LISTED, model="sdxl"))) >= {"L40S:1", "L4:1", "A10G:1"}
    spot = market(g5_xlarge=(1.006, 0.5), g6_xlarge=(0.805, 0.4), g6e_xlarge=(1.861, 0.9))
    assert set(groups(advised(spot, model="sdxl"))) >= {"L40S:1", "L4:1", "A10G:1"}


def test_a_far_larger_gpu_is_in_only_where_it_is_cheap() -> None:
    """H100 for a model that 24 GB hold: as Spot below the cheapest on-demand type, and not above."""
    dear = advised(market(g5_2xlarge=(1.2, 0.6), p5_4xlarge=(6.9, 1.3)), model="llama3-8b")
    assert "where g5.2xlarge costs 1.200 on-demand" in why_not(dear, "p5.4xlarge")
    cheap = advised(market(g5_2xlarge=(1.2, 0.6), p5_4xlarge=(6.9, 1.1)), model="llama3-8b")
    assert names(cheap)[0] == "p5.4xlarge"


def test_the_budget_is_an_hours() -> None:
    """What is known to cost more is out; what has no price isn't judged."""
    advice = advised(market(g5_2xlarge=(1.2, 0.6), g6_2xlarge=(1.0, 0.2)), model="llama3-8b", budget="0.5/h")
    assert why_not(advice, "g5.2xlarge") == "0.600 USD an hour, where the budget is 0.5"
    assert "g6.2xlarge" in names(advice)
    assert "g6.4xlarge" in names(advice)


def test_a_type_is_recommended_where_it_is_cheapest() -> None:
    """Of several regions."""
    prices = {("us-east-1", "g5.2xlarge"): Price(1.2, 0.6), ("us-west-2", "g5.2xlarge"): Price(1.2, 0.4)}
    advice = advised(Market(prices), model="llama3-8b", regions=("us-east-1", "us-west-2"))
    assert (advice.choices[0].name, advice.choices[0].region) == ("g5.2xlarge", "us-west-2")
    zones = catalog.offered("g5.2xlarge")
    assert advice.choices[0].fit.pools == len(zones["us-east-1"]) + len(zones["us-west-2"])


def test_a_copy_of_list_prices_stands_in_where_none_is_known() -> None:
    """A told price counts before it; another region's gives an order and nothing more."""
    known = Market({(REGION, "g6.2xlarge"): Price(1.0, 0.2)}, listed=catalog.list_prices())
    assert known.price(REGION, "g6.2xlarge") == Price(1.0, 0.2)
    assert known.price(REGION, "g5.2xlarge") == Price(1.212)
    assert known.price("eu-central-1", "g5.2xlarge") == Price(1.212, is_elsewhere=True)
    assert known.price(REGION, "g7.2xlarge") == Price()
    spot = {(region, "g5.2xlarge"): Price(None, 0.4) for region in (REGION, "eu-central-1")}
    told = Market(spot, listed=catalog.list_prices())
    assert told.price(REGION, "g5.2xlarge") == Price(1.212, 0.4)
    assert told.price("eu-central-1", "g5.2xlarge") == Price(None, 0.4)
    assert names(advised(LISTED, model="llama3-8b"))[:3] == ["g5.2xlarge", "g6e.xlarge", "g6e.2xlarge"]
    elsewhere = advised(LISTED, model="llama3-8b", regions=("eu-central-1",), budget="1/h")
    assert names(elsewhere)[0] == "g5.2xlarge", "the budget is of another region's prices"
    assert not elsewhere.is_affordability_known
    both = advised(LISTED, model="llama3-8b", regions=("eu-central-1", REGION))
    assert {choice.region for choice in both.choices} == {REGION}


def test_arithmetic_limits_large_batches() -> None:
    """A batch that reads its weights once can't compute faster than the GPU: T4 65e12 / (2 x 1 B)."""
    rates = bounds(advised(params="1B", precision="fp16", batch=1000, context=1))
    assert rates["T4"] == pytest.approx(32_500)
    assert bounds(advised(params="1B", precision="fp16", batch=10, context=1))["T4"] == pytest.approx(1600)


def test_of_a_mixture_of_experts_a_token_reads_its_own_experts() -> None:
    """All of them must be held: 30 B x 2, and 3 B x 2 are read."""
    whole, active = advised(params="30B"), advised(params="30B", active_params="3B")
    assert whole.question.need == active.question.need
    assert bounds(active)["L40S"] == pytest.approx(10 * bounds(whole)["L40S"])


def test_loading_takes_the_faster_of_network_and_disk() -> None:
    """g5.2xlarge: 10 Gbit/s are 1250 MB/s, its EBS 437.5: 16.06 GB in 12.8 s at least."""
    advice = advised(model="llama3-8b")
    assert advice.choices[0].load_s == pytest.approx(16.06 / 1.25)
    large = next(choice for choice in advice.choices if choice.name == "g6.8xlarge")
    assert large.load_s == pytest.approx(16.06 / 3.125)


def test_one_more_accelerator_and_other_regions_are_told() -> None:
    """Those that hold the model and were left out as larger, and where else the same types are."""
    advice = advised(model="llama3-8b")
    more = {str(one.accelerators): (one.types, one.pools) for one in advice.more_accelerators()}
    assert more["H100:1"] == (1, len(catalog.offered("p5.4xlarge")[REGION]))
    assert more["RTX-PRO-6000:1"][0] == 3
    assert "A10G:4" not in more, "it isn't one more kind: one of them is enough"
    regions = dict(advice.more_regions())
    assert REGION not in regions
    assert regions["us-west-2"] == sum(
        len(catalog.offered(name).get("us-west-2", ())) for name in names(advice)
    )


def test_a_region_that_lacks_a_type_is_told_with_others_that_have_it() -> None:
    """p5e isn't everywhere."""
    reason = why_not(advised(model="llama3-405b", precision="fp8"), "p5e.48xlarge")
    assert reason.startswith(f"not offered in {REGION} (but in us-east-2")


@given(
    st.floats(0.5, 2000),
    st.sampled_from(["bf16", "fp16", "fp8", "int8", "fp4", "int4", "fp32", "tf32"]),
    st.sampled_from(["decode", "prefill", "training", "image"]),
    st.integers(0, 200_000),
    st.integers(1, 64),
    st.sampled_from([None, 1, 2, 4, 8]),
)
def test_every_type_is_in_or_out_once_and_what_is_in_holds_the_model(
    billions: float, precision: str, phase: str, context: int, batch: int, gpus: int | None
) -> None:
    """Whatever is asked; and nothing is out without a reason."""
    advice = advised(
        params=f"{billions:.3f}B", precision=precision, phase=phase, context=context, batch=batch, gpus=gpus
    )
    told = [*names(advice), *(out.type.name for out in advice.outs)]
    assert sorted(told) == sorted(type_.name for type_ in catalog.all_types() if type_.accelerator)
    assert all(out.reason for out in advice.outs)
    for choice in advice.choices:
        assert choice.fit.gpu_bytes >= advice.question.need.total
        assert choice.fit.type.memory_gib >= advice.question.host_gib.value
        assert gpus in (None, choice.fit.used)
        assert choice.fit.pools >= 1


def test_the_cheapest_is_never_out_for_its_size_or_price() -> None:
    """Something that fits is always recommended, as long as no budget forbids it."""
    for known in (Market(), LISTED):
        for params in ("100M", "1B", "8B", "70B", "400B"):
            assert advised(known, params=params).choices, params


def test_a_kind_of_gpu_that_is_in_is_not_one_more() -> None:
    """Where only some of its types are out as too dear."""
    known = market(g5_2xlarge=(1.2, 0.5), g5_16xlarge=(4.1, 1.5))
    advice = advised(known, model="llama3-8b")
    assert "g5.16xlarge" not in names(advice)
    assert "A10G:1" not in {str(more.accelerators) for more in advice.more_accelerators()}


def test_chips_of_other_makes_are_out_with_what_they_need() -> None:
    """AWS's own run what the Neuron SDK compiled."""
    advice = advised(model="llama3-1b")
    assert "Neuron SDK" in why_not(advice, "inf2.xlarge")
    assert why_not(advice, "dl2q.24xlarge") == "Qualcomm AI100 doesn't run CUDA"


def test_arm_needs_to_be_asked_for() -> None:
    """One image can't serve both architectures."""
    assert asked(params="1B").arch == "x86_64"
    advice = advised(params="1B", precision="fp16", arch="arm64")
    assert groups(advice) == ["T4g:1"]
    assert why_not(advice, "g5.2xlarge") == "x86_64, which needs an image of its own (--arch x86_64)"
