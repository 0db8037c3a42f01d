"""Benchmarks of who gives way: (e) to (g), the peer's own, and three of ours. "Not yet": the answer is not right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench import contention
from bench.measuring import Case, Sample, worked
from bench.settling import agree, settle, told
from gpuyard.brain.decide import decide
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.foresee import Foresight, defrag
from gpuyard.model.actions import Evict, Move, Start
from gpuyard.model.answers.outlook import Outlook
from gpuyard.model.reasons import Code, Outcome
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot

Judge = Callable[[Outlook], bool]

# --- from a snapshot in memory to the fixed point ---------------------------------------------------------------------


def contest(make: Callable[[int], Snapshot], node_count: int, right: Judge) -> Sample:
    """Fleet build and deciding until nothing changes, in ms; no figure where the end state is not the right one.

    `plan_x`: how many times as long `yard plan` takes, explanations included.
    """
    snapshot = make(node_count)
    seconds, settled = worked(lambda: settle(snapshot))
    told_s, outlook = worked(lambda: told(snapshot))
    notes = {"evicted": settled.count(Evict), "turns": len(settled.plans), "plan_ms": told_s * 1e3,
             "plan_x": told_s / seconds}  # fmt: skip
    return Sample(seconds, seconds * 1e3 if right(outlook) and agree(settled, outlook) else None, notes)


def gang_runs(outlook: Outlook) -> bool:
    """The claimant got its GPUs."""
    return any(line.job == "gang" for line in outlook.running)


def claimants_run(outlook: Outlook) -> bool:
    """Every GPU changed hands: those who waited run, those who ran wait."""
    return bool(outlook.running) and all(line.job.startswith("w") for line in outlook.running)


def refused(outlook: Outlook) -> bool:
    """Nobody was disturbed, and the gang is told that nothing is free for it, not that it could never run."""
    reasons = {told.job: told.reason for told in outlook.waiting}
    why = reasons.get("gang")
    told = why is not None and why.outcome is Outcome.NOT_NOW and why.code in (Code.NOT_ENOUGH_GPUS, Code.OUTRANKED)
    return not outlook.actions and told and _can_take()


def _can_take() -> bool:
    """A "no" counts only from an engine that says yes when the holder's quota is one lower."""
    return gang_runs(Foresight(contention.one_short(20, spare=1)).outlook())


# --- one cycle over a fleet that is built -----------------------------------------------------------------------------


def claim(snapshot: Snapshot, disturbs: type[Evict] | type[Move]) -> Sample:
    """One plan in which the gang gets its GPUs and somebody is disturbed for it, in ms."""
    build_s, fleet = worked(lambda: Fleet(snapshot))
    seconds, decision = worked(lambda: decide(fleet, Memory(), snapshot.now))
    disturbed = [action for action in decision.plan.actions if isinstance(action, disturbs)]
    runs = any(isinstance(action, Start) and action.job == "gang" for action in decision.plan.actions)
    notes = {"disturbed": len(disturbed), "build_ms": build_s * 1e3}
    return Sample(seconds, seconds * 1e3 if disturbed and runs else None, notes)


def tidying() -> Sample:
    """Timed defragmentation from the snapshot in memory to the billed proposal, in ms; no figure if nothing pays."""
    snapshot = contention.untidy()
    seconds, plan = worked(lambda: defrag(snapshot))
    notes = {"moves": len(plan.moves), "usable_gpus_gained": (plan.usable_after - plan.usable_before) / WHOLE,
             "gain_per_cost": plan.proposal.ratio}  # fmt: skip
    return Sample(seconds, seconds * 1e3 if plan.moves else None, notes)


def slowed_by_the_hopeless() -> Sample:
    """How many times longer a cycle takes when 1,000 high-priority jobs that can never run wait in it."""
    spent = {}
    for hopeless in (0, 1_000):
        snapshot = contention.busy_morning(1_000, arrivals=500, hopeless=hopeless)
        spent[hopeless], _ = worked(partial(decide, Fleet(snapshot), Memory(), snapshot.now))
    notes = {f"ms_with_{hopeless}": seconds * 1e3 for hopeless, seconds in spent.items()}
    return Sample(sum(spent.values()), spent[1_000] / spent[0], notes)


# --- rows -------------------------------------------------------------------------------------------------------------

Row = tuple[int, float | None, str]
"""Nodes, aim in ms, the peer's figure."""


def _rows(letter: str, title: str, make: Callable[[int], Snapshot], right: Judge, rows: tuple[Row, ...]) -> list[Case]:
    return [
        Case(
            f"{letter}-{count}",
            f"{title}, {count} × 8",
            "ms",
            partial(contest, make, count, right),
            aim,
            peer=peer,
            runs=3,
            bounds={} if aim is None else {"plan_x": 1.5},
        )
        for count, aim, peer in rows
    ]


CASES = (
    *_rows(
        "e", "a gang reclaims half of all GPUs", contention.half_for_a_gang, gang_runs,
        ((100, None, "KAI 950 ms"), (500, None, "KAI 9,400 ms"), (1_000, 300, "KAI 42,000 ms")),
    ),
    *_rows(
        "f", "every GPU changes hands, one by one", contention.all_change_hands, claimants_run,
        ((100, None, "KAI 4,600 ms"), (500, 800, "KAI 174,000 ms"), (1_000, 1_500, "KAI not run")),
    ),
    *_rows(
        "g", "80 GPUs would leave the holder one short: no", contention.one_short, refused,
        ((100, None, "KAI 29,000 ms"), (500, None, "KAI 125,000 ms"), (1_000, 100, "KAI 130,000 ms")),
    ),
    Case(
        "reclaim-512", "a 512-GPU gang on 5,000 × 8 full of one-GPU jobs", "ms",
        lambda: claim(contention.gang_of_512(5_000), Evict), aim=200, runs=3,
    ),
    Case(
        "defrag", "room for 4 whole nodes by moving; 1,213 × 8 at 95 %", "ms",
        lambda: claim(contention.scattered(1_213), Move), aim=1_000, runs=3,
    ),
    Case(
        "defrag-timed", "timed defragmentation with its bill; 1,213 openb nodes at 95 %", "ms", tidying,
        aim=1_000, runs=5,
    ),
    Case("hopeless", "a cycle with ÷ without 1,000 hopeless jobs", "×", slowed_by_the_hopeless, aim=2, runs=5),
)  # fmt: skip
