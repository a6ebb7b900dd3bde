"""Questions whose answers were worked out by hand, from the makers' figures: the reasons stand beside them.

All without prices, in us-east-1 as of the bundled data. GB are thousands, GiB are 1024s.
"""

from __future__ import annotations

from typing import Any

import pytest

from spotrelay.file.catalog import list_prices
from spotrelay.operator.advice.fitting import Cause
from spotrelay.operator.advice.gpu_memory import Phase
from spotrelay.operator.advice.ranking import Market, Rank

from .questions import advised, asked, bounds, groups, names, why_not

GIB = 1024**3


def test_llama_3_8b_in_bf16() -> None:
    """It fits on one GPU of 24 GB; on T4 it doesn't run, on xlarge it isn't loaded.

    Weights 8.03 B x 2 = 16.06 GB. Cache 2 x 32 x 8 x 128 x 2 = 128 KiB a token, x 8192 = 1 GiB. Overhead 20 %
    of 16.06 = 3.21 GB. Together 20.35 GB = 18.9 GiB, of which an A10G or L4 has 22.35 (22,888 MiB).
    A token reads the weights: A10G 600/16.06 = 37.4 a second, L4 300/16.06 = 18.7, L40S 864/16.06 = 53.8. For
    each GiB that is 1.67, 0.84 and 1.20: A10G, L40S, L4. RTX PRO 4500's bandwidth isn't known.
    Host: 16.06 GB = 14.96 GiB, and 2 for the system: 17, which g5.xlarge and g6.xlarge (16) haven't.
    """
    advice = advised(model="llama3-8b")
    need = advice.question.need
    assert (need.weights, need.cache) == (16.06e9, GIB)
    assert need.total == pytest.approx(20.346e9, rel=1e-4)
    assert groups(advice) == ["A10G:1", "L40S:1", "L4:1", "RTX-PRO-4500:1"]
    assert names(advice)[0] == "g5.2xlarge"
    assert bounds(advice) == pytest.approx({"A10G": 37.36, "L40S": 53.80, "L4": 18.68}, abs=0.01)
    assert str(advice.question.host_gib) == "17+"
    assert why_not(advice, "g5.xlarge") == why_not(advice, "g6.xlarge")
    assert why_not(advice, "g5.xlarge").startswith("16 GiB of host memory, where 17+")
    assert "g6e.xlarge" in names(advice), "it has 32 GiB"
    assert why_not(advice, "g4dn.2xlarge") == "T4 (Turing) has no BF16 in hardware"
    assert why_not(advice, "g5.12xlarge") == "4 A10G, of which 1 would be used"
    assert why_not(advice, "g5.16xlarge") == "64 vCPU with the same A10G:1 as g5.2xlarge, which has 8"
    assert why_not(advice, "p4d.24xlarge") == "A100:8 has 320 GiB, where A10G:1 of 22 is enough"
    # 22.35 - 18.95 = 3.4 GiB are left, of 1 GiB for a request.
    assert advice.choices[0].fit.further_requests(need) == 3


def test_llama_3_8b_by_list_prices() -> None:
    """What a USD buys at most, at on-demand's price in us-east-1 of 2026-02-09.

    A10G 37.36 x 3600 / 1.212 = 110,970 tokens, L40S 53.80 x 3600 / 1.861 = 104,070, L4 18.68 x 3600 /
    0.9776 = 68,790. So g5.2xlarge is before g6e.xlarge, and that before g6e.2xlarge (86,380), g5.4xlarge
    (82,820) and g6.2xlarge. gr6.8xlarge costs 2.4464, which is more than 2.5 times 0.9776. By speed g6e is
    first, as the source documents have it.
    """
    listed = Market(listed=list_prices())
    advice = advised(listed, model="llama3-8b")
    expected = {
        "g5.2xlarge": 110_970,
        "g6e.xlarge": 104_070,
        "g6e.2xlarge": 86_380,
        "g5.4xlarge": 82_820,
        "g6.2xlarge": 68_790,
    }
    assert names(advice)[:5] == list(expected)
    assert {c.name: c.per_usd for c in advice.choices[:5]} == pytest.approx(expected, abs=10)
    assert why_not(advice, "gr6.8xlarge").startswith("L4:1 like g6.2xlarge at 2.5 times the price")
    assert "at 22.5 times the price of g6.2xlarge" in why_not(advice, "p4d.24xlarge")  # 21.957642 / 0.9776
    assert groups(advised(listed, Rank.SPEED, model="llama3-8b"))[:3] == ["L40S:1", "A10G:1", "L4:1"]


def test_llama_3_8b_for_sixteen_long_requests_at_once() -> None:
    """The cache is then larger than the model: 16 GiB; with 18.0 for the rest 33.9, too much for 24 GB."""
    advice = advised(model="llama3-8b", batch=16)
    assert advice.question.need.cache == 16 * GIB
    assert why_not(advice, "g5.2xlarge") == "1 A10G has 22.4 GiB"
    assert {"L40S:1", "A10G:4", "L4:4", "RTX-PRO-4500:2", "H100:1", "RTX-PRO-6000:1"} == set(groups(advice))
    # One reading of the weights serves all sixteen: 16 x 864/16.06.
    assert bounds(advice)["L40S"] == pytest.approx(860.8, abs=0.1)


def test_llama_3_70b_in_fp8() -> None:
    """It fits on one GPU of 96 GB and on four of 24 to 48; one of 80 isn't enough.

    Weights 68.45 B x 1 and the vocabulary's 2.1 B x 2 = 72.65 GB. Cache 2 x 80 x 8 x 128 x 2 = 320 KiB a
    token, x 8192 = 2.5 GiB. Overhead 14.53 GB. Together 89.86 GB = 83.7 GiB: H100 has 80, RTX PRO 6000 96,
    four A10G or L4 89.4, which is 94 % and so comes last. A10G has no FP8 and computes in BF16. Host: 67.7 +
    2 = 70 GiB, which g7e.2xlarge (64) hasn't.
    """
    advice = advised(model="llama3-70b", precision="fp8")
    assert advice.question.need.weights == pytest.approx(72.65e9)
    assert advice.question.need.total / GIB == pytest.approx(83.7, abs=0.05)
    assert groups(advice) == ["L40S:4", "RTX-PRO-6000:1", "RTX-PRO-4500:4", "A10G:4", "L4:4"]
    assert why_not(advice, "p5.4xlarge") == "1 H100 has 80.0 GiB"
    assert why_not(advice, "g7e.2xlarge").startswith("64 GiB of host memory, where 70+")
    computed = {choice.fit.type.accelerator: choice.fit.computed_in for choice in advice.choices}
    assert (computed["A10G"], computed["L4"]) == ("bf16", "fp8")
    tight = {
        choice.fit.type.accelerator for choice in advice.choices if choice.fit.is_tight(advice.question.need)
    }
    assert tight == {"A10G", "L4"}
    # 4 x 864/72.65, and 1597/72.65.
    assert bounds(advice)["L40S"] == pytest.approx(47.57, abs=0.01)
    assert bounds(advice)["RTX-PRO-6000"] == pytest.approx(21.98, abs=0.01)


def test_llama_3_70b_in_int4() -> None:
    """It doesn't fit on one GPU of 48 GB with a cache of 8192 tokens, but on one of 80 and on four T4.

    Weights 68.45 B x 4.156 bits = 35.56 GB and 2.1 B x 2 = 4.2: 39.76, the size of AWQ's published
    checkpoint. Cache 2.5 GiB, overhead 7.95 GB: 50.4 GB = 46.9 GiB, where an L40S has 44.7.
    """
    advice = advised(model="llama3-70b", precision="int4")
    assert advice.question.need.weights == pytest.approx(39.76e9, rel=1e-3)
    assert advice.question.need.total / GIB == pytest.approx(46.9, abs=0.05)
    assert why_not(advice, "g6e.2xlarge") == "1 L40S has 44.7 GiB"
    assert set(groups(advice)) == {"H100:1", "A10G:4", "T4:4", "RTX-PRO-6000:1", "L4:4", "RTX-PRO-4500:2"}
    assert groups(advice)[0] == "H100:1"
    # A short cache makes the difference: 47.7 GB = 44.4 GiB and 0.3 of cache are 44.7, just too much still.
    assert "L40S:1" in groups(advised(model="llama3-70b", precision="int4", context=512))


def test_stable_diffusion_xl() -> None:
    """On any GPU of 24 GB, by arithmetic; not on T4, which has no BF16.

    Weights 3.47 B x 2 = 6.94 GB, the size of the published file; overhead 1.39: 8.33 GB = 7.8 GiB. Dense
    BF16: L40S 362, L4 121, A10G 70 TFLOP/s, for each GiB 8.1, 5.4, 3.1.
    """
    advice = advised(model="sdxl")
    assert advice.question.phase is Phase.IMAGE
    assert advice.question.need.total / GIB == pytest.approx(7.76, abs=0.01)
    assert groups(advice) == ["L40S:1", "L4:1", "A10G:1", "RTX-PRO-4500:1"]
    assert bounds(advice) == {"L40S": 362.05, "L4": 121, "A10G": 70}
    assert "no BF16" in why_not(advice, "g4dn.xlarge")


def test_whisper() -> None:
    """Large-v3 is published in FP16, takes 3.5 GiB, and runs on T4: larger GPUs than 2.5 times that are out.

    Weights 1.55 B x 2 = 3.1 GB, cache 2 x 32 x 20 x 64 x 2 = 160 KiB x 448 tokens = 73 MB, overhead 0.62.
    """
    advice = advised(model="whisper-large-v3")
    assert advice.question.need.total == pytest.approx(3.793e9, rel=1e-3)
    assert set(groups(advice)) == {"T4:1", "A10G:1", "L4:1", "RTX-PRO-4500:1"}
    assert "g4dn.xlarge" in names(advice)
    assert why_not(advice, "g6e.xlarge") == "L40S:1 has 45 GiB, where T4:1 of 16 is enough"


def test_training_on_eight_gpus_of_80_gb() -> None:
    """With NVLink: p4de, p5, p5en and p6-b200; g7e.48xlarge has the memory and no NVLink.

    600 GB = 559 GiB of p4de's and p5's 640. p4d has 320, g6e.48xlarge 358. BF16 for each GiB: B200 2250/179.1
    = 12.6, H100 989.5/80 = 12.4, H200 989.5/141 = 7.0, A100 312/80 = 3.9. B300's 2149 GiB are more than 2.5 x
    640.
    """
    options: dict[str, Any] = {"gpus": 8, "phase": "training", "interconnect": "nvlink"}
    advice = advised(model_memory="600GB", **options)
    assert names(advice) == ["p6-b200.48xlarge", "p5.48xlarge", "p5en.48xlarge", "p4de.24xlarge"]
    assert why_not(advice, "g7e.48xlarge") == "no NVLink between the 8 RTX-PRO-6000"
    assert why_not(advice, "p4d.24xlarge") == "8 A100 have 320.0 GiB"
    assert why_not(advice, "g6e.48xlarge") == "8 L40S have 357.6 GiB"
    assert why_not(advice, "p5.4xlarge") == "1 H100, where 8 are asked for"
    assert "2149 GiB" in why_not(advice, "p6-b300.48xlarge")
    # 13 B with Adam: 13 x 16 x 1.2 = 249.6 GB, which p4d's 344 hold, too. A token takes 6 x 13 B operations.
    smaller = advised(params="13B", **options)
    assert smaller.question.need.total == pytest.approx(249.6e9)
    assert "p4d.24xlarge" in names(smaller)
    assert bounds(smaller)["A100"] == pytest.approx(8 * 312e12 / 78e9)


def test_a_small_embedding_service() -> None:
    """335 M in FP16 take 0.8 GB: T4 is among the first, and a share of an L4 would do.

    Dense FP16 for each GiB: L4 121/22.4 = 5.4, T4 65/16 = 4.1, A10G 70/22.4 = 3.1.
    """
    advice = advised(params="335M", precision="fp16", phase="prefill", context=0)
    assert advice.question.need.total == pytest.approx(0.804e9)
    assert groups(advice) == ["L4:1", "T4:1", "A10G:1", "RTX-PRO-4500:1"]
    # 65e12 / (2 x 335e6) tokens a second.
    assert bounds(advice)["T4"] == pytest.approx(97_015, abs=1)
    assert "would hold it" in why_not(advice, "g6f.xlarge")


def test_what_fits_nowhere() -> None:
    """2000 B in BF16 take 4.8 TB, and the largest instance has 2.3."""
    advice = advised(params="2000B")
    assert advice.choices == ()
    assert {out.cause for out in advice.outs if out.type.name.startswith("p6")} == {Cause.SMALL}


def test_the_source_documents_order_of_speed() -> None:
    """p4d > g6e >> g5 > g6, with eight GPUs each, decoding: by bandwidth 1555 > 864 > 600 > 300 GB/s."""
    advice = advised(rank=Rank.SPEED, model_memory="100GB", gpus=8)
    known = [choice.name for choice in advice.choices if choice.bound]
    assert [name for name in known if name[:2] != "p5" and "metal" not in name] == [
        "p4d.24xlarge",
        "g6e.48xlarge",
        "g5.48xlarge",
        "g6.48xlarge",
    ]


def test_where_the_source_documents_order_is_not_the_bounds() -> None:
    """By dense arithmetic L40S is before A100 and L4 before A10G: docs/choosing.md says why."""
    advice = advised(rank=Rank.SPEED, model_memory="100GB", gpus=8, phase="image")
    rates = bounds(advice)
    assert rates["L40S"] > rates["A100"] > rates["L4"] > rates["A10G"]


@pytest.mark.parametrize("family", ["g5", "g6"])
def test_a_16_gb_model_needs_2xlarge_or_larger(family: str) -> None:
    """The source documents' advice, so that the model fits in host memory; a small one is loaded by
    xlarge."""
    large, small = advised(model="llama3-8b"), advised(model="llama3-3b")
    assert f"{family}.xlarge" not in names(large)
    assert f"{family}.2xlarge" in names(large)
    assert f"{family}.xlarge" in names(small)


def test_a_quantised_model_without_a_name_has_a_cache_like_its_nearest() -> None:
    """And says so; with the model's own figures it doesn't."""
    guessed = asked(params="8B").need
    assert guessed.cache == GIB
    assert "llama3-8b" in guessed.working[-1]
    told = asked(params="8B", attention="40x4x64").need
    assert told.cache == 2 * 40 * 4 * 64 * 2 * 8192
    assert "llama" not in " ".join(told.working)
