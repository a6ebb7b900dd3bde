"""The means by which a service's starts get shorter: when each is to be had, what it changes, what it costs.

`start_plan` chooses among them. None is done here: each is something to write, to run or to pay for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from spotrelay.file.values.disk import INSTANCE_STORE, TIERS, disk
from spotrelay.operator.advice.start_time import GB, VLLM, Phase, Setting, Weights, rates, usual_pack

Kinds = frozenset[str]
"""The accelerators of a service's instance types."""


@dataclass(frozen=True, slots=True)
class At:
    """Where one of the means would begin."""

    setting: Setting
    kinds: Kinds
    path: str
    """The service file's."""


class Way(ABC):
    """One of the means."""

    phases: tuple[Phase, ...]
    """What was measured of them without it says nothing of them with it."""
    cost = "nothing"
    is_rent = False
    """Whether it costs for as long as the service is there."""

    @abstractmethod
    def applies(self, at: At) -> bool:
        """Whether it is to be had, and isn't there yet."""

    @abstractmethod
    def change(self, at: At) -> Setting:
        """What a start depends on then."""

    @abstractmethod
    def what(self, at: At) -> str:
        """What to write or to run."""

    def costs(self, at: At) -> str:  # noqa: ARG002 - some need it
        """What it costs."""
        return self.cost


class PackIt(Way):
    """`spotrelay pack`, for a file that declares a pack."""

    cost = "an on-demand instance of the cheapest type, once, for as long as set-up takes"
    phases = (Phase.SET_UP, Phase.MODELS, Phase.LOAD)

    def applies(self, at: At) -> bool:
        """None is there, or nobody has looked."""
        return at.setting.is_pack_declared and at.setting.pack is None

    def change(self, at: At) -> Setting:
        """Engine caches come with it, if any are kept."""
        caches = at.kinds if at.setting.is_cache_kept else at.setting.caches
        return replace(at.setting, is_pack_declared=True, pack=usual_pack(at.setting.engine), caches=caches)

    def what(self, at: At) -> str:
        """The command."""
        looks = "" if at.setting.is_pack_known else ", unless that is done: validate --account looks"
        return f"{_packing(at)}{looks}"


class DeclareIt(PackIt):
    """A pack, for a file that declares none."""

    def applies(self, at: At) -> bool:
        """There is a set-up for which one may stand."""
        return at.setting.may_be_packed and not at.setting.is_pack_declared

    def change(self, at: At) -> Setting:
        """With a goal it keeps by itself what vLLM compiles."""
        return super().change(self._declared(at))

    def what(self, at: At) -> str:
        """What to write, and the command."""
        return (
            "write spotrelay.pack: {paths: [the directories that setup makes]}, deploy it, then"
            f" {_packing(self._declared(at))}"
        )

    @staticmethod
    def _declared(at: At) -> At:
        is_kept = at.setting.engine == VLLM and at.setting.may_keep_cache
        return replace(at, setting=replace(at.setting, is_cache_kept=is_kept))


class MakeCaches(Way):
    """Engine caches for accelerators that have none."""

    cost = "an on-demand instance of each kind, once, for as long as two starts take"
    phases = (Phase.LOAD,)

    def applies(self, at: At) -> bool:
        """They are kept: then a set-up is packed, on which they are made, or `PackIt` is chosen before."""
        return at.setting.is_cache_kept

    def change(self, at: At) -> Setting:
        """Each has one."""
        return replace(at.setting, is_cache_kept=True, caches=at.kinds)

    def what(self, at: At) -> str:
        """A command for each."""
        lacking = sorted(at.kinds - at.setting.caches)
        return ", ".join(f"spotrelay pack {at.path} --accelerator {kind}" for kind in lacking)


class KeepCaches(MakeCaches):
    """The same for a file that says no to them."""

    def applies(self, at: At) -> bool:
        """They could be kept."""
        setting = at.setting
        return setting.pack is not None and not setting.is_cache_kept and setting.may_keep_cache

    def what(self, at: At) -> str:
        """What to write, and the command."""
        its = _packing(replace(at, setting=replace(at.setting, is_cache_kept=True)))
        return f"write spotrelay.pack.warm: true, deploy it, then {its}"


class FromBucket(Way):
    """Weights from a bucket, which come beside set-up, instead of from Hugging Face after it."""

    phases = (Phase.MODELS, Phase.LOAD)

    def applies(self, at: At) -> bool:
        """`run` fetches them."""
        return at.setting.weights is Weights.HUB

    def change(self, at: At) -> Setting:
        """On the instance store, where that loses nothing."""
        on_volume = not at.setting.may_use_store
        return replace(at.setting, weights=Weights.BUCKET, is_on_volume=on_volume)

    def what(self, at: At) -> str:
        """What to copy, and to write."""
        where = f"{INSTANCE_STORE}/NAME" if at.setting.may_use_store else "/models/NAME"
        return (
            "copy the model to a bucket of the region, write spotrelay.models:"
            f" [{{source: s3://BUCKET/PREFIX, path: {where}}}], and let run serve that directory"
        )

    def costs(self, at: At) -> str:
        """What S3 takes to keep it: getting it costs nothing there."""
        size = at.setting.weights_bytes
        if size is None:
            return "what S3 takes to keep it"
        return f"{size / GB * rates()['storage']['usd_per_gb_month']:.2f} USD a month"


class OnStore(Way):
    """Weights on the instance store instead of the root volume."""

    phases = (Phase.MODELS, Phase.LOAD)

    def applies(self, at: At) -> bool:
        """They lie on the volume, and no standby would lose them."""
        return at.setting.weights is Weights.BUCKET and at.setting.is_on_volume and at.setting.may_use_store

    def change(self, at: At) -> Setting:
        """They don't any more."""
        return replace(at.setting, is_on_volume=False)

    def what(self, at: At) -> str:
        """What to write."""
        return (
            f"write a path below {INSTANCE_STORE} into spotrelay.models of {at.path}, and let run serve that"
        )


class FasterDisk(Way):
    """A faster root volume."""

    phases = (Phase.BOOT, Phase.SET_UP, Phase.MODELS, Phase.LOAD)
    is_rent = True

    def __init__(self, tier: str) -> None:
        self._tier = tier
        _, self._mibps = TIERS[tier]

    def applies(self, at: At) -> bool:
        """The volume is of a tier. A slower one shortens nothing, and isn't chosen."""
        return at.setting.disk_tier is not None

    def change(self, at: At) -> Setting:
        """It has this tier."""
        return replace(at.setting, disk_tier=self._tier, throughput_mibps=self._mibps)

    def what(self, at: At) -> str:
        """What to write."""
        return f"write resources.disk_tier: {self._tier} instead of {at.setting.disk_tier}"

    def costs(self, at: At) -> str:
        """For every hour of every instance, beside what is there."""
        usd = disk(self._tier, 0).usd_per_hour - disk(at.setting.disk_tier or "low", 0).usd_per_hour
        return f"{usd:.3f} USD an hour for each instance"


WAYS: tuple[Way, ...] = (
    PackIt(),
    MakeCaches(),
    DeclareIt(),
    KeepCaches(),
    FromBucket(),
    OnStore(),
    *map(FasterDisk, TIERS),
)
"""The simplest first: a command, lines, a bucket, and what costs for every hour."""


def _packing(at: At) -> str:
    kinds = ", ".join(sorted(at.kinds))
    more = f", and --accelerator NAME for each GPU that it says has no cache: {kinds}"
    return f"spotrelay pack {at.path}{more if at.setting.is_cache_kept and len(at.kinds) > 1 else ''}"
