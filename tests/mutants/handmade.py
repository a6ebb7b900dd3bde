"""Mutants made by hand: mistakes that somebody might well make, and no operator draws.

Each replaces a text that must occur once in the package, wherever: code that moves takes its mutants along.
`make mutants` fails on one that doesn't: bring it up to date when you change the code, or take it out when
its mistake has become impossible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutants.mutant import Mutant
from tests.mutants.sites import PACKAGE, ROOT, module_of


class StaleMutantError(ValueError):
    """A mutant by hand that no longer fits the code."""


@dataclass(frozen=True, slots=True)
class HandMade:
    """A text to be replaced, and what is wrong then."""

    name: str
    old: str
    new: str
    wrong: str
    is_quick: bool = False
    """Whether the simulation's first seeds notice it: these are the sample of `make test`."""

    def mutant(self) -> Mutant:
        """The mutant.

        Raises:
            StaleMutantError: its text doesn't occur in the package, or more than once.
        """
        found = [(path, text) for path, text in _sources() for _ in range(text.count(self.old))]
        if len(found) != 1:
            files = dict.fromkeys(str(path.relative_to(ROOT)) for path, _ in found)
            where = f", in {', '.join(files)}" if files else ""
            raise StaleMutantError(
                f"stale mutant {self.name!r}: its text occurs {len(found)} times in {PACKAGE.name}{where}, "
                "and must occur once: bring it up to date in tests/mutants/handmade.py"
            )
        ((path, source),) = found
        line = source[: source.index(self.old)].count("\n") + 1
        changed = source.replace(self.old, self.new)
        return Mutant(self.name, module_of(path), line, self.wrong, lambda: (source, changed))


@cache
def _sources() -> Sequence[tuple[Path, str]]:
    """Each file of the package, and what is in it."""
    return [(path, path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))]


def handmade() -> list[Mutant]:
    """All of them. Raises `StaleMutantError`."""
    return [made.mutant() for made in HAND_MADE]


HAND_MADE: Sequence[HandMade] = (
    HandMade(
        "unknown-load-scales-down",
        """\
        return replace(held, falling_since=None)
""",
        """\
        pass
""",
        "a load that nobody could measure counts as none",
        is_quick=True,
    ),
    HandMade(
        "load-followed-at-once",
        "since = before.falling_since or now",
        "since = before.falling_since or now - seconds(scaling.downscale_delay_s)",
        "replicas go at the first look that needs fewer",
        is_quick=True,
    ),
    HandMade(
        "requests-never-end",
        "if request is not None and request.counts(now):",
        "if request is not None:",
        "an operator's number counts on when its time is over",
        is_quick=True,
    ),
    HandMade(
        "warnings-go-by-the-file",
        "wanted = spec and rollout.in_effect(spec, rows, now)",
        "wanted = spec",
        "the fast path reads the service file's number, whatever an operator asks for",
    ),
    HandMade(
        "document-in-effect-kept",
        "store.keep_document(spec, rollout.earlier_kept(kept, spec, rows))",
        "store.keep_document(rollout.in_effect(spec, rows, ports.clock.now()), {})",
        "what an operator asks for is kept as the service file's number, and outlives its time",
    ),
    HandMade(
        "base-beyond-the-replicas",
        "base = min(spec.base_on_demand, self.replicas)",
        "base = spec.base_on_demand",
        "more replicas are always on-demand than are desired",
    ),
    HandMade(
        "successors-not-read",
        old="return rows if related <= replica_ids else",
        new="return rows if True else",
        wrong="a warned replica whose replacement is under way gets a second one",
    ),
    HandMade(
        "warnings-of-the-dead-believed",
        old="slots.on_spot(rows, observed)",
        new="slots.on_spot(rows, ())",
        wrong="what EC2 took and shows as ended is warned, and an instance that no row has never is",
    ),
    HandMade(
        "commits-go-on-after-a-lost-race",
        old="list(takewhile(partial(self._commit, outcome), wanted))",
        new="[change for change in wanted if self._commit(outcome, change)]",
        wrong="what was decided together with a lost commit is written without it",
    ),
    HandMade(
        "lost-races-not-decided-again",
        old="            outcome.is_won = False\n",
        new="",
        wrong="a signal that lost its race is done with all the same",
        is_quick=True,
    ),
    HandMade(
        "drained-but-in-rotation",
        old="self._take_out(outcome, spec, leaving, ports, out)",
        new="True",
        wrong="what the tick drains stays in rotation",
        is_quick=True,
    ),
    HandMade(
        "lease-kept",
        old="            ports.store.release(service, holder)\n",
        new="            pass\n",
        wrong="the next tick must wait until the lease of this one expires",
        is_quick=True,
    ),
    HandMade(
        "terminates-nothing",
        old="lambda: self._terminate(service, terminate)",
        new="lambda: None",
        wrong="instances that have done their work go on being paid for",
        is_quick=True,
    ),
    HandMade(
        "next-tick-not-announced",
        old="            self._performer.announce(service, due, serving)\n",
        new="            pass\n",
        wrong="after a tick nobody looks before the minute is over",
        is_quick=True,
    ),
    HandMade(
        "not-deregistered-again",
        old="self._take_out(outcome, spec, again, ports, out)",
        new="pass",
        wrong="what a tick registered while the warning was handled stays in rotation",
    ),
    HandMade(
        "registered-without-reading-again",
        old="ready = [r.instance_id for r in entering if r.instance_id]",
        new="ready = sorted(answering)",
        wrong="a replica that drained while it was probed comes back into rotation",
    ),
    HandMade(
        "launches-on-without-its-record",
        old="""\
        if not _is_committed(ports, ordered):
            break
        launched""",
        new="""\
        _is_committed(ports, ordered)
        launched""",
        wrong="the next step is launched for replicas that somebody else looks after by now",
    ),
    HandMade(
        "throttled-is-refused",
        old="later = tuple(replace(r, retry_at=retry_at) for r in waiting)",
        new="later = tuple(_refused(r, now) for r in waiting)",
        wrong="a request that was never made counts as an attempt, and buys on-demand",
    ),
    HandMade(
        "intent-stays-open",
        old="open_intent=next_intent, close_intents=(intent.id,)",
        new="open_intent=next_intent",
        wrong="a launch that has its answer is waited for until it expires",
    ),
    HandMade(
        "failed-batch-is-dropped",
        old="failed = set(signals.values())",
        new="failed = set()",
        wrong="signals are deleted from the queue though nothing was done about them",
        is_quick=True,
    ),
    HandMade(
        "ids-given-twice",
        old="            highest_id = raised = commit.highest_id[1]\n",
        new="            pass\n",
        wrong="the second commit of a decision gives the IDs of the first again",
    ),
    HandMade(
        "brake-forgets-the-first-commit",
        old="        window = commit.window[1] if commit.window else window\n",
        new="",
        wrong="each commit of a decision may use the whole of a minute's launches",
    ),
    HandMade(
        "successor-not-on-record",
        old="        row = row.but(replaced_by=creates[0].id)\n",
        new="        pass\n",
        wrong="nobody knows that a replica is replaced already",
        is_quick=True,
    ),
    HandMade(
        "replacement-always-on-spot",
        old="        purchase_option=row.purchase_option,\n        replaces=row.id,\n",
        new="        purchase_option=PurchaseOption.SPOT,\n        replaces=row.id,\n",
        wrong="the on-demand base shrinks with each of its losses",
    ),
    HandMade(
        "strikes-never-add-up",
        old="strikes = known.strikes + 1",
        new="strikes = known.strikes",
        wrong="a pool that goes on losing instances cools no longer each time",
    ),
    HandMade(
        "held-for-another-version",
        old="    if version != backoff.version:\n        return None\n",
        new="",
        wrong="a version waits for what another one did",
    ),
    HandMade(
        "least-final-state-wins",
        old="max(states, key=_FINALITY.index",
        new="min(states, key=_FINALITY.index",
        wrong="of two state changes in a batch the instance's end is overlooked",
    ),
    HandMade(
        "pools-without-a-subnet",
        old="tuple(pool for pool in survey.pools if pool.zone in zones) or spec.pools",
        new="tuple(survey.pools)",
        wrong="launches ask for zones in which the service has no subnet",
    ),
    HandMade(
        "surge-off-by-one",
        old="in_turn[: max(spec.surge - beyond, 0)]",
        new="in_turn[: max(spec.surge - beyond + 1, 0)]",
        wrong="one replica more than the service allows is superseded at a time",
    ),
    HandMade(
        "superseded-goes-before-its-successor-serves",
        old="if successor.stays and (not serves or (may_go > 0 and _is_settled",
        new="if True or (not serves or (may_go > 0 and _is_settled",
        wrong="on EC2's recommendation alone a replica is drained that nobody stands in for",
    ),
    HandMade(
        "adopts-nothing",
        old="    for intent in overdue:\n",
        new="    for intent in overdue[:0]:\n",
        wrong="an instance whose launch got no answer is terminated instead of used",
        is_quick=True,
    ),
    HandMade(
        "intents-expire-at-once",
        old="return now - created_at >= seconds(timing.INTENT_EXPIRES_S)",
        new="return True",
        wrong="a launch that isn't recorded by the next tick is taken for failed",
        is_quick=True,
    ),
    HandMade(
        "orphans-live-on",
        old="and now - instance.launched_at >= seconds(timing.ORPHAN_GRACE_S)",
        new="and False",
        wrong="instances of ours that no row knows are paid for without end",
        is_quick=True,
    ),
    HandMade(
        "adopted-is-an-orphan",
        old="    taken = {instance.id for instance in adopted.values()}\n",
        new="    taken: set[str] = set()\n",
        wrong="an instance is adopted and taken in by the same tick",
    ),
    HandMade(
        "warned-is-ours-to-end",
        old="return instance.id in seen.warned or not was_spared",
        new="return False",
        wrong="an instance that EC2 takes back may be terminated, and its first hour paid for",
    ),
    HandMade(
        "young-is-gone",
        old="return launched_at is not None and now - launched_at < seconds(timing.VISIBLE_WITHIN_S)",
        new="return False",
        wrong="an instance that EC2 doesn't describe yet is taken for lost",
    ),
    HandMade(
        "one-missing-is-enough",
        old="    missing = spec.replicas - there\n    if missing <= 0:\n",
        new="    missing = spec.replicas - there\n    if missing <= 1:\n",
        wrong="one replica fewer than wanted stays so",
        is_quick=True,
    ),
    HandMade(
        "fallbacks-stay",
        old="[: max(len(others) - missing, 0)]",
        new="[:0]",
        wrong="on-demand goes on being paid for when Spot is back",
        is_quick=True,
    ),
    HandMade(
        "retry-at-ignored",
        old="        and (replica.retry_at is None or now >= replica.retry_at)\n",
        new="",
        wrong="what was refused is asked for again by every tick, and the brake brakes nothing",
    ),
    HandMade(
        "fallback-for-the-on-demand-base",
        old="if replica.purchase_option.fallback is None or (before is not None and before.stays):",
        new="if before is not None and before.stays:",
        wrong="what is bought on-demand anyway gets an on-demand fallback",
        is_quick=True,
    ),
    HandMade(
        "time-without-a-zone",
        old="        if at.tzinfo is not None:\n",
        new="        if True:\n",
        wrong="an event's time without a zone is taken for one in the function's zone",
    ),
    HandMade(
        "launched-under-the-old-version",
        old="    launched = replace(waiting, version=version, port=port_of(spec, rows, version))\n",
        new="    launched = waiting\n",
        wrong="what a new version fails at is booked to the one before",
    ),
    HandMade(
        "counts-nobody-who-serves",
        old="replace(commit, serving=serving.after(commit), ",
        new="replace(commit, ",
        wrong="two of the last ones leave, because each relies on the other",
    ),
    HandMade(
        "relies-on-who-has-gone",
        old=", update=(*commit.update, *relied.of(group)))",
        new=")",
        wrong="the last but one leaves, and the last one has gone since",
    ),
    HandMade(
        "an-empty-answer-is-believed",
        old='    if health is TargetState.HEALTHY:\n        return "and it answers its checks"',
        new='    if False:\n        return "and it answers its checks"',
        wrong="what EC2 doesn't show is gone, though it answers its checks",
    ),
    HandMade(
        "half-the-fleet-is-believed-gone",
        old="        if lost > max(len(group) * timing.CREDIBLE_SHARE, is_ready):\n",
        new="        if False:\n",
        wrong="one answer without instances drains all that the load balancer doesn't call healthy",
    ),
    HandMade(
        "the-last-one-is-gone-if-nobody-shows-it",
        old="    if may_serve and health is not TargetState.UNHEALTHY and not seen.stays_without(replica):\n",
        new="    if False:\n",
        wrong="two empty answers end the only replica",
    ),
    HandMade(
        "what-starts-is-thrown-away",
        old="    return replica.state in _MAY_SERVE\n",
        new="    return replica.state is ReplicaState.READY\n",
        wrong="a replica that is warned while it starts leaves, though nobody else serves",
    ),
    HandMade(
        "what-has-left-is-left",
        old=" if n < room or r.id in answering}\n",
        new=" if False}\n",
        wrong="nothing comes back, though nobody serves",
    ),
    HandMade(
        "all-that-has-left-comes-back",
        old="    room = max(spec.replicas - sum(r.comes_back for r in rows), 0)\n",
        new="    room = spec.replicas\n",
        wrong="what was ever replaced is kept and paid for while nobody serves",
    ),
    HandMade(
        "the-repair-is-not-tried",
        old="    if is_again and rollout.may_repair(spec, seen.rows, replica):\n",
        new="    if False:\n",
        wrong="an ill version is replaced with itself for ever, though another one is deployed",
    ),
    HandMade(
        "the-strongest-goes",
        old="        return spec.scaling.qps(replica.offering.pool.instance_type)\n",
        new="        return 0.0\n",
        wrong="scaling in takes the one that the number counts on",
    ),
    HandMade(
        "who-missed-one-check-is-taken-back",
        old="r.state is ReplicaState.READY and not _is_ill(r, now)}",
        new="r.serves}",
        wrong="one of a version that was given up goes, though it may serve again and is needed",
    ),
    HandMade(
        "what-comes-back-is-counted",
        old="not (self.is_warned or self.stands_by or self.comes_back)",
        new="not (self.is_warned or self.stands_by)",
        wrong="its replacement is given up for one that left for a reason",
    ),
    HandMade(
        "the-last-moment-is-the-last-word",
        old=(
            '            outcome.attempt("ask", '
            "lambda: said.update(self._ports.fleet.warned({*last.values()})))\n"
        ),
        new="            pass\n",
        wrong="the last one leaves though EC2 has taken its warning back",
    ),
    HandMade(
        "refusing-ones-vouch-for-warned-ones",
        old="    silence.take_out,\n    warned,\n",
        new="    warned,\n    silence.take_out,\n",
        wrong="a warned replica leaves on the strength of those that leave by the same tick",
    ),
    HandMade(
        "tags-are-believed",
        old="    return instance.id in seen.recorded or (is_from_ours and instance.launch_id is not None)\n",
        new="    return True\n",
        wrong="an instance that somebody tagged is taken in, and ended",
        is_quick=True,
    ),
    HandMade(
        "a-missing-document-is-a-removal",
        old="            if not self._is_let_go(service, kept, holding):\n",
        new="            if False:\n",
        wrong="a parameter that is hidden for a moment ends the service",
    ),
    HandMade(
        "nobody-looks-again",
        old="lambda: self._call_back(spec, done)",
        new="lambda: None",
        wrong="a tick that hangs keeps a warned replica in rotation until its end",
    ),
    HandMade(
        "all-leave-at-once",
        old="    if spec.on_warning is OnWarning.LEAVE or staying >= enough(spec):\n",
        new="    if True:\n",
        wrong="a warned replica leaves though nobody else serves",
        is_quick=True,
    ),
    HandMade(
        "serving-fallbacks-are-dropped",
        old="    return [*quiet, *[r for r in given_up if r.serves][: max(serving, 0)]]\n",
        new="    return [*given_up]\n",
        wrong="a fallback goes while no Spot replica serves",
        is_quick=True,
    ),
    HandMade(
        "the-last-row-is-not-waited-for",
        old="    if has_lost_its_ids(rows, now):\n        return rows\n",
        new="",
        wrong="rows above a highest ID that got lost are taken for newborn, and their instances for orphans",
    ),
    HandMade(
        "what-is-gone-never-ends",
        old="    if instance.state is InstanceState.TERMINATED:\n        yield steps.end(",
        new="    if False:\n        yield steps.end(",
        wrong="the rows of what drained and ended never end",
    ),
    HandMade(
        "rolls-out-all-at-once",
        old="replacements = [] if is_surplus else _in_turn(",
        new="replacements = list(due.values()) or _in_turn(",
        wrong="a deployment doubles the fleet, and a version that fails is tried by every replica",
    ),
    HandMade(
        "a-loss-tries-the-new-version",
        old="    return max(served, default=lost.version if lost and is_to_stay else spec.version)\n",
        new="    return spec.version\n",
        wrong="what is lost is replaced with a version of which nobody knows that it serves",
    ),
    HandMade(
        "what-waits-for-the-others-enters-alone",
        old="if is_complete or not is_waiting(spec, rows, r)]",
        new="if True or not is_waiting(spec, rows, r)]",
        wrong="where all change at once, clients meet both versions while the new one comes up",
    ),
    HandMade(
        "half-of-the-old-ones-leave",
        old="len(serving) >= spec.replicas and all(_heir(spec, rows, r) in settled for r in old)",
        new="any(_heir(spec, rows, r) in settled for r in old)",
        wrong="all old ones leave as soon as one new one serves",
    ),
    HandMade(
        "an-old-version-has-the-new-port",
        old="    if version == spec.version:\n        return spec.port\n",
        new="    if True:\n        return spec.port\n",
        wrong="what is launched with the version before is registered at a port where nobody listens",
    ),
    HandMade(
        "a-stopped-roll-out-goes-on",
        old="is_old(spec, replica) and not is_stopped(spec, rows)",
        new="is_old(spec, replica)",
        wrong="a version that failed twice is tried by one replica after the other",
    ),
    HandMade(
        "a-new-version-that-does-not-answer-rolls-on",
        old="    return has_failed(spec, rows) or any(",
        new="    return has_failed(spec, rows) or False and any(",
        wrong="replicas that serve are given up for ones that don't answer their checks",
    ),
    HandMade(
        "a-roll-out-does-not-wait-for-the-new-one-to-stay",
        old="return successor.version == replica.version or rollout.baked_at(spec, successor) <= now",
        new="return True",
        wrong="the one before is gone when the new version turns ill soon after it got ready",
    ),
    HandMade(
        "an-ill-version-is-tried-again",
        old="for id_ in given_up):\n        yield steps.give_up(spec.version)\n",
        new="for id_ in given_up):\n        pass\n",
        wrong="a version that turns ill is launched and given up for ever, each time by another replica",
    ),
    HandMade(
        "an-ill-successor-stays",
        old="        elif replica.serves and _is_ill(successor, now):\n",
        new="        elif False:\n",
        wrong="one that doesn't answer is paid for without end, beside the one that it was to replace",
    ),
    HandMade(
        "the-needless-are-replaced",
        old="missed[: max(len(missed) + left - spec.replicas, 0)]",
        new="missed[:0]",
        wrong="what a smaller service loses is launched again, and then given up",
    ),
    HandMade(
        "only-the-first-step-is-written",
        old="getattr(following, one) or getattr(self, one)",
        new="getattr(self, one) or getattr(following, one)",
        wrong="a replica that gets ready and is one too many serves on, and no next stage knows",
    ),
    HandMade(
        "moves-leave-no-note",
        old="row.but(move_tried_at=now) if is_move else row",
        new="row",
        wrong="a move that EC2 refused is tried again by every tick",
    ),
    HandMade(
        "refused-moves-wait",
        old="        if is_waiting and replica.moves_in(seen.rows):\n",
        new="        if False:\n",
        wrong="a move that was refused is launched again for days, though what was to move serves",
    ),
    HandMade(
        "moves-beside-a-resumed-standby",
        old="r.stays and not r.is_fallback and not",
        new="r.stays and not",
        wrong="a replica moves while a standby stands in for another that is missing",
    ),
    HandMade(
        "lost-moves-are-replaced",
        old="is_moving = lost.moves_in(rows)",
        new="is_moving = False",
        wrong="a move whose new instance is warned gets another, for any price, and one replica too many",
    ),
    HandMade(
        "moves-by-one-reading",
        old="        is_reached = survey.at - newer >= seconds(timing.SCORES_LAST_S)\n",
        new="        is_reached = bool(earlier)\n",
        wrong="where surveys come in short order, the one that scores must last since is forgotten",
    ),
    HandMade(
        "moves-across-a-gap",
        old="        if is_reached or newer - reading.at > seconds(timing.SURVEY_OLD_S):\n",
        new="        if is_reached:\n",
        wrong="a replica moves by a score of today and one of last week",
    ),
    HandMade(
        "moves-by-score-to-anywhere",
        old="max_price=None, min_score=None)",
        new="max_price=None)",
        wrong="what comes in place of a lost replica waits for a zone with a good score",
    ),
    HandMade(
        "everything-is-news",
        """\
    if not told.revision:
        return News(gap.told)
    made""",
        """\
    made""",
        "what a service has when it is looked at for the first time is told",
        is_quick=True,
    ),
    HandMade(
        "losses-told-again",
        "if r.state is not ReplicaState.DRAINING and not r.lost_at",
        "if r.state is not ReplicaState.DRAINING",
        "what serves on is told lost by every tick",
    ),
    HandMade(
        "ready-told-again",
        "if ReplicaState.READY in r.entered and not told.replicas.get(r.id)]",
        "if ReplicaState.READY in r.entered]",
        "every tick tells that a replica serves",
    ),
    HandMade(
        "young-losses-untold",
        "opened = [r for r in replicas if r.id in told.replicas or r.id > told.highest_id]",
        "opened = [r for r in replicas if r.id in told.replicas]",
        "what came and went between two ticks is never told",
        is_quick=True,
    ),
    HandMade(
        "a-scale-up-is-a-gap",
        "short = min(desired, told.whole_at) - ready",
        "short = desired - ready",
        "a first start and a scale-up are told as a loss of strength",
    ),
    HandMade(
        "standbys-alone-are-fallbacks",
        '"fallback": replica.is_fallback',
        '"fallback": replica.is_standby',
        "a fallback that was bought anew is told as none",
    ),
    HandMade(
        "gap-begins-with-the-tick",
        "            return min(at, now)\n    return now\n",
        "            return now\n    return now\n",
        "a gap is as long as ticks have known of it",
    ),
    HandMade(
        "served-on-is-forgotten",
        "return sorted({*told.replicas, *went_on, *since} - rows.replicas.keys())",
        "return sorted({*told.replicas, *since} - rows.replicas.keys())",
        "a gap begins with the tick if one that served on has ended by then",
    ),
    HandMade(
        "gap-from-the-last-that-left",
        "            turns[came] += 1\n",
        "",
        "a gap begins too late if something came to serve meanwhile",
    ),
    HandMade(
        "gap-ends-with-the-tick",
        "over = turned_at if turned_at > told.gap_since else max(told.gap_since, now)",
        "over = max(told.gap_since, now)",
        "a gap is longer than it was",
    ),
    HandMade(
        "unsent-for-ever",
        "again = tuple(n for n in told.unsent if now - n.at < seconds(TRIED_S))[-MOST_UNSENT:]",
        "again = told.unsent[-MOST_UNSENT:]",
        "an event that EventBridge never takes is tried for ever",
    ),
    HandMade(
        "unsent-is-dropped",
        "unsent=tuple(n for n in news.notices if n.id in unsent)",
        "unsent=()",
        "an event that wasn't taken is never told",
        is_quick=True,
    ),
    HandMade(
        "what-was-just-taken-out-enters-again",
        "id_ in coming.keys() - won.keys() if",
        "id_ in () if",
        "a tick that read the row before registers what a call took out as its time had come",
    ),
    HandMade(
        "who-may-serve-is-given-up",
        "else _unclear(spec, seen)",
        "else set[int]()",
        "scaling in believes rows, though neither EC2 nor the load balancer shows anybody",
    ),
    HandMade(
        "what-a-person-ends-vouches-for-the-next-tick",
        "if r.state is ReplicaState.DRAINING or r.id in ended}",
        "if r.state is ReplicaState.DRAINING}",
        "nobody comes back in the tick that ends the last one that serves",
    ),
    HandMade(
        "replaced-is-forgotten",
        "id_ in rows.replicas or id_ in awaited or (r.replaced_by or 0) > rows.highest_id",
        "id_ in rows.replicas or (r.replaced_by or 0) > rows.highest_id",
        "a replacement that comes after the lost one has ended is told as replacing nobody",
    ),
    HandMade(
        "a-standby-is-a-loss",
        "return self.lost_at is None and not (self.stands_by or self.comes_back)",
        "return self.lost_at is None and not self.comes_back",
        "events and metrics tell a loss that the history doesn't have",
    ),
)
