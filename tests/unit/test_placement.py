"""Where to launch, in which order, and what a refusal teaches."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from spotrelay.model import (
    Cooldown,
    Offering,
    PurchaseOption,
    Refusal,
    RefusalKind,
)
from spotrelay.policy import placement
from tests.examples import demo_spec, on_demand_pool, spot_pool
from tests.unit.cases import NOW


def test_the_fallback_order() -> None:
    """Spot that is not cooling, Spot that is, on-demand: each offering in one step only."""
    cooling = [Cooldown(spot_pool("us-east-1a", "g5.xlarge"), NOW, "loss")]
    steps = placement.plan(demo_spec(), cooling)
    assert [(s.purchase_option, len(s.pools)) for s in steps] == [
        (PurchaseOption.SPOT, 3),
        (PurchaseOption.SPOT, 1),
        (PurchaseOption.ON_DEMAND, 4),
    ]


def test_a_service_may_refuse_to_fall_back() -> None:
    """`on_demand_fallback: false` waits for Spot rather than pay the on-demand price."""
    steps = placement.plan(replace(demo_spec(), on_demand_fallback=False), [])
    assert {s.purchase_option for s in steps} == {PurchaseOption.SPOT}


def test_a_service_without_spot_never_asks_for_it() -> None:
    """`use_spot: false` means on-demand only."""
    steps = placement.plan(demo_spec(use_spot=False), [])
    assert {s.purchase_option for s in steps} == {PurchaseOption.ON_DEMAND}


@given(
    st.sets(
        st.builds(
            lambda option, pool: Offering(pool, option),
            st.sampled_from(PurchaseOption),
            st.sampled_from(demo_spec().pools),
        )
    )
)
def test_every_offering_is_tried_exactly_once(resting: set[Offering]) -> None:
    """Whatever cools, no pool is left out for good and none is asked twice."""
    steps = placement.plan(demo_spec(), [Cooldown(o, NOW, "test") for o in resting])
    tried = [Offering(p, s.purchase_option) for s in steps for p in s.pools]
    assert sorted(tried) == sorted(Offering(p, o) for p in demo_spec().pools for o in PurchaseOption)


def test_only_what_is_about_a_pool_cools_it() -> None:
    """A quota that is used up says nothing about the pool that was asked."""
    pool = on_demand_pool("us-east-1a", "g5.xlarge")
    cooled = {
        kind: placement.cooldown_of(Refusal(kind, "code", "message", pool), NOW) for kind in RefusalKind
    }
    assert {kind for kind, cooldown in cooled.items() if cooldown} == {
        RefusalKind.CAPACITY,
        RefusalKind.UNSUPPORTED,
    }
