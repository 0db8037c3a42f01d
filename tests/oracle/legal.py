"""Whether what a plan does is allowed: places, bounds, rights, protections, and an order that can be applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from tests.oracle.claims import Claim, Unit, View, budget_broken, in_min_runtime
from tests.oracle.places import Load, busy, lifted, shuns, suits_group, together
from tests.oracle.plans import UNASKED, Evict, Move, Plan, Start, Verdict, changed, end_moment, places
from tests.oracle.shapes import RESOURCES, Job, Moment, Spot, State
from tests.oracle.shares import fair_shares, stays_within_share, use

MOST_VARIANTS = 9


def places_are_lawful(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Rules 5, 10, 11, 13 in the end state, for whoever the plan placed."""
    for sentence in Load.of(moment, plan.end).broken():
        yield Verdict("overbooked", "", sentence)
    for name, spots in plan.end.items():
        job = moment.jobs[name]
        new = [s for s in spots if not places(moment.state.get(name, ()))[_place(s)]]
        if not new:
            continue
        if not together(moment, job, spots) and together(moment, job, moment.state.get(name, ())):
            yield Verdict("domain-crossed", name, f"{name} crosses a required level: {_told(spots)}")
        for spot in new:
            yield from _wrong_spot(moment, job, spot, spots)
            yield from _wrong_company(moment, plan, job, spot)
        if not moment.complete(job, spots):
            yield Verdict("partial", name, f"{name} starts below its minimum")


def _wrong_spot(moment: Moment, job: Job, spot: Spot, spots: tuple[Spot, ...]) -> Iterator[Verdict]:
    node = moment.nodes[spot.node]
    if any(node.devices[gpu].sick for gpu in spot.gpus):
        yield Verdict("sick", job.name, f"{job.name} is put on a sick GPU of {node.name}")
    if not suits_group(moment, job, job.group(spot.group), node, list(spots)):
        yield Verdict("model", job.name, f"{job.name} is put on {node.model}, or on two models")
    if job.group(spot.group).gpus and not node.aligned(node.devices[gpu] for gpu in spot.gpus):
        yield Verdict("unaligned", job.name, f"{job.name} is put where the kubelet of {node.name} would refuse it")
    if len(set(spot.gpus)) != len(spot.gpus) and not spot.mig:
        yield Verdict("overbooked", job.name, f"{job.name} has a GPU twice")


def _wrong_company(moment: Moment, plan: Plan, job: Job, spot: Spot) -> Iterator[Verdict]:
    """Rule 14: taints, neighbours and power."""
    node = moment.nodes[spot.node]
    if not set(node.taints) <= set(job.tolerates):
        yield Verdict("taint", job.name, f"{job.name} is put on {node.name} and does not tolerate {node.taints}")
    for other, spots in plan.end.items():
        for avoid in shuns(moment, job, moment.jobs[other]):
            here = node.domain(avoid.level)
            beside = [s for s in spots if s is not spot and moment.nodes[s.node].domain(avoid.level) == here]
            if here is not None and beside:
                yield Verdict("neighbours", job.name, f"{job.name} comes to {other} in {here}")
    load = Load.of(replace(moment, going=()), plan.end)
    for pool, level, most in moment.caps:
        nodes = {n.name for n in moment.nodes.values() if n.pool == pool and n.domain(level) == node.domain(level)}
        if node.name in nodes and spot.gpus and node.domain(level) and len(busy(load, nodes)) > most:
            yield Verdict("cap", job.name, f"{job.name} makes {level} {node.domain(level)} busier than {most}")


def _place(spot: Spot) -> tuple[str, str, tuple[int, ...], tuple[str, ...]]:
    return (spot.group, spot.node, tuple(sorted(spot.gpus)), tuple(sorted(spot.mig)))


def bounds_are_kept(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Rules 2 and 3 where something was added."""
    was, now = use(moment, moment.state, going=False), use(moment, plan.end, going=False)
    firm, firm_was = use(moment, plan.end, False, True), use(moment, moment.state, False, True)
    for name, queue in moment.queues.items():
        for r in range(len(RESOURCES)):
            quota = queue.quota[r]
            if now[name][r] > queue.limit[r] and now[name][r] > was[name][r]:
                yield Verdict("over-limit", "", f"{name} holds {float(now[name][r])} above its limit")
            if quota is not None and firm[name][r] > quota and firm[name][r] > firm_was[name][r]:
                yield Verdict("over-quota", "", f"{name} holds {float(firm[name][r])} firmly, above its quota")


def shares_are_right(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Rule 6, as printed: of the end, where parts of GPUs cost what they cost on the cards they got."""
    shares = fair_shares(end_moment(moment, plan))
    for name, printed in sorted(plan.shares.items()):
        if name in shares and abs(float(shares[name][0]) - printed) > 0.001:
            yield Verdict("share", name, f"{name} is due {float(shares[name][0]):.3f} GPUs, the plan says {printed}")


# --- printed order (rule 26) ------------------------------------------------------------------------------------------


def actions_lead_to_the_end(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """What the actions say is what runs in the end, and nothing is both started and evicted."""
    found = {name: places(spots) for name, spots in moment.state.items()}
    for action in plan.actions:
        here = found.setdefault(action.job, Counter())
        if isinstance(action, Evict):
            here -= places(action.spots) if action.spots else Counter(here)
        elif isinstance(action, Move):
            here = here - places(action.source) + places(action.target)
        else:
            here = here + places(action.spots)
        found[action.job] = here
    for name in moment.jobs:
        if found.get(name, Counter()) != places(plan.end.get(name, ())):
            yield Verdict("untrue-end", name, f"the actions leave {name} elsewhere than `running` says")
    for action in plan.evicts:
        if action.job in plan.starts:
            yield Verdict("started-and-evicted", action.job, f"{action.job} is both started and evicted")


def order_can_be_applied(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Done in the printed order, nothing is put on what is still held; `after` names whoever must go first."""
    load = Load.of(moment, moment.state)
    done: set[str] = set()
    holders = _holders(moment)
    for action in plan.actions:
        if isinstance(action, Evict):
            for spot in _going(moment, action):
                load.put(moment.jobs[action.job], spot, -1)
            done.add(action.job)
            continue
        waits = set(action.after)
        if early := waits - done:
            yield Verdict("not-applicable", action.job, f"{action.job} comes after {sorted(early)}, printed later")
        yield from _step(moment, load, action)
        here = action.spots if isinstance(action, Start) else action.target
        leaving = {h for spot in here for gpu in spot.gpus for h in holders.get((spot.node, gpu), ())}
        for holder in sorted(leaving - waits - {action.job}):
            if _had_to_go(moment, plan, holder, action.job, here):
                yield Verdict(
                    "not-applicable", action.job, f"{action.job} needs what {holder} holds, and does not wait"
                )
        if isinstance(action, Move):
            done.add(action.job)
    yield from _circles(plan)


def _step(moment: Moment, load: Load, action: Move | Start) -> Iterator[Verdict]:
    job = moment.jobs[action.job]
    if isinstance(action, Move):
        for spot in action.source:
            load.put(job, spot, -1)
    before = set(load.broken())
    for spot in action.spots if isinstance(action, Start) else action.target:
        load.put(job, spot)
    for sentence in sorted(set(load.broken()) - before):
        yield Verdict("not-applicable", job.name, f"when {job.name} comes, {sentence}")


def _going(moment: Moment, action: Evict) -> tuple[Spot, ...]:
    return action.spots or moment.state.get(action.job, ())


def _holders(moment: Moment) -> dict[tuple[str, int], set[str]]:
    found: dict[tuple[str, int], set[str]] = {}
    for name, spots in moment.state.items():
        for spot in spots:
            for gpu in spot.gpus:
                found.setdefault((spot.node, gpu), set()).add(name)
    return found


def _had_to_go(moment: Moment, plan: Plan, holder: str, newcomer: str, here: tuple[Spot, ...]) -> bool:
    """Whether the newcomer could not stand there while the holder is still where it was."""
    load = Load(moment)
    for spot in moment.state[holder]:
        load.put(moment.jobs[holder], spot)
    for name, spots in plan.end.items():
        if name not in (holder, newcomer):
            for spot in spots:
                if places(moment.state.get(name, ()))[_place(spot)]:
                    load.put(moment.jobs[name], spot)
    before = set(load.broken())
    for spot in here:
        load.put(moment.jobs[newcomer], spot)
    return any("GPUs" in sentence or "slices" in sentence for sentence in set(load.broken()) - before)


def _circles(plan: Plan) -> Iterator[Verdict]:
    waits = {a.job: _still_there(plan, a) for a in plan.actions if not isinstance(a, Evict)}
    for job in sorted(waits):
        seen, edge = set(), set(waits[job])
        while edge:
            seen |= edge
            edge = {n for m in edge for n in waits.get(m, ())} - seen
        if job in seen:
            yield Verdict("circle", job, f"{job} waits for itself")


def _still_there(plan: Plan, action: Move | Start) -> set[str]:
    """For whom it waits once all are gone who stop: who shrinks and moves leaves the one before the other."""
    here = action.spots if isinstance(action, Start) else action.target
    shrinking = {evict.job for evict in plan.evicts}
    moving = {move.job for move in plan.moves if any(_meet(one, other) for one in move.source for other in here)}
    return {name for name in action.after if name not in shrinking or name in moving}


def _meet(one: Spot, other: Spot) -> bool:
    """Whether the two want something of one GPU, or of one node where either needs none."""
    return one.node == other.node and (not one.gpus or not other.gpus or bool(set(one.gpus) & set(other.gpus)))


# --- who was disturbed ------------------------------------------------------------------------------------------------


def victims_may_go(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Protections of rules 19, 21 and 22, budgets over the whole plan."""
    for evict in plan.evicts:
        if evict.code not in UNASKED:
            yield from _protected(moment, evict.job, _going(moment, evict), "is stopped")
        elif evict.code == "Stale":
            yield from _released(moment, evict)
    for move in plan.moves:
        yield from _protected(moment, move.job, _left(moment, plan, move.job), "is moved")
    gone = [
        (name, _left(moment, plan, name))
        for name in moment.state
        if name not in {e.job for e in plan.evicts if e.code in UNASKED}
    ]
    if broken := budget_broken(moment, moment.state, [(name, spots) for name, spots in gone if spots]):
        yield Verdict("budget", broken, f"budget {broken} is broken")


def _left(moment: Moment, plan: Plan, name: str) -> tuple[Spot, ...]:
    """Tasks that do not stand any more where they stood."""
    stays = places(plan.end.get(name, ()))
    found = []
    for spot in moment.state.get(name, ()):
        if stays[_place(spot)]:
            stays[_place(spot)] -= 1
        else:
            found.append(spot)
    return tuple(found)


def _protected(moment: Moment, name: str, spots: tuple[Spot, ...], what: str) -> Iterator[Verdict]:
    job = moment.jobs[name]
    if not job.preemptible:
        yield Verdict("protected", name, f"{name} is not preemptible and {what}")
    if job.evictions >= moment.protect_after:
        yield Verdict("protected", name, f"{name} was evicted {job.evictions} times and {what}")
    if in_min_runtime(moment, job) and not _youngest(moment, job, spots):
        yield Verdict("min-runtime", name, f"{name} is inside its minimum runtime and {what}")


def _youngest(moment: Moment, job: Job, spots: tuple[Spot, ...]) -> bool:
    """Whether these are extras, and the ones that came last (rule 19)."""
    for group in job.groups:
        live = sorted((s for s in moment.state[job.name] if s.group == group.name), key=lambda s: s.task)
        if not {s for s in spots if s.group == group.name} <= set(live[group.wanted :]):
            return False
    return moment.complete(job, moment.state[job.name])


def _released(moment: Moment, evict: Evict) -> Iterator[Verdict]:
    job = moment.jobs[evict.job]
    if moment.complete(job, moment.state[job.name]):
        yield Verdict("stale", job.name, f"{job.name} is released as stale and has its minimum")
    since = moment.now if job.stale_since is None else job.stale_since
    if job.stale_grace < 0 or moment.now - since < job.stale_grace:
        yield Verdict("stale", job.name, f"{job.name} is released inside its grace")


def stale_gangs_go(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Rule 22: below its minimum with its grace over, a gang does not stay."""
    for name, spots in plan.end.items():
        job = moment.jobs[name]
        if not spots or moment.complete(job, spots) or job.stale_since is None or job.stale_grace < 0:
            continue
        if moment.now - job.stale_since > job.stale_grace and places(spots) == places(moment.state.get(name, ())):
            yield Verdict("stale", name, f"{name} is below its minimum, its grace is over, and it stays")


def shrinking_keeps_the_minimum(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Extras go one by one, a gang goes whole, and nobody loses a task that no action took."""
    stopped = {e.job: e for e in plan.evicts}
    for name, spots in moment.state.items():
        job, left = moment.jobs[name], plan.end.get(name, ())
        counts = Counter(s.group for s in spots), Counter(s.group for s in left)
        fewer = any(counts[0][g] > counts[1][g] for g in counts[0])
        if fewer and left and moment.complete(job, spots) and not moment.complete(job, left):
            yield Verdict("below-minimum", name, f"{name} runs on below its minimum")
        if fewer and name not in stopped:
            yield Verdict("lost-extra", name, f"{name} has fewer tasks than before and no eviction says so")


def takers_have_a_right(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Rules 16 to 18: whoever stops for a claimant could go in some order in which each has to."""
    view, late = View.of(moment, strict=False), fair_shares(end_moment(moment, plan))
    views = [view] if late == view.shares else [view, replace(view, shares=late)]
    for claimant in sorted({e.claimant for e in plan.evicts if e.code not in UNASKED}):
        evicts = [e for e in plan.evicts if e.claimant == claimant and e.code not in UNASKED]
        if claimant not in moment.jobs:
            yield Verdict("in-vain", evicts[0].job, f"{evicts[0].job} is stopped for nobody")
            continue
        if not plan.end.get(claimant) or not changed(moment, plan, claimant):
            yield Verdict("in-vain", claimant, f"{evicts[0].job} is stopped for {claimant}, which gets nothing")
            continue
        units = [u for e in evicts for u in units_of(moment, e)]
        if not any(_some_history(v, plan, claimant, units) or _some_chain(v, plan, units) for v in views):
            names = ", ".join(e.job for e in evicts)
            yield Verdict("no-right", claimant, f"{claimant} had no right to stop {names}")


def units_of(moment: Moment, evict: Evict) -> list[Unit]:
    """What an eviction takes: extras singly, then what makes up the minimum."""
    spots = _going(moment, evict)
    if evict.spots and len(spots) < len(moment.state[evict.job]):
        return [Unit(evict.job, (spot,), True) for spot in spots]
    job = moment.jobs[evict.job]
    found, rest = [], []
    for group in job.groups:
        live = sorted((s for s in spots if s.group == group.name), key=lambda s: s.task)
        complete = moment.complete(job, moment.state[job.name])
        found += [Unit(job.name, (s,), True) for s in live[group.wanted :]] if complete else []
        rest += live[: group.wanted] if complete else live
    return [*found, Unit(job.name, tuple(sorted(rest)), False)] if rest else found


def _some_history(view: View, plan: Plan, claimant: str, units: list[Unit]) -> bool:
    """Whether the claim was lawful in some state that this plan may have passed through."""
    gangs = [u for u in units if not u.extra]
    for state in _histories(view.moment, plan, claimant, units):
        job = view.moment.jobs[claimant]
        if view.moment.complete(job, state.get(claimant, ())):
            if not gangs and _grows(view, state, claimant, units):
                return True
            continue
        claim = Claim(view, state, claimant)
        if claim.lawful(units):
            return True
        more = sum(claim.lacking.values()) < len(plan.end[claimant]) - len(state.get(claimant, ()))
        if more and any(claim.lawful([*gangs, *some]) for some in _subsets([u for u in units if u.extra])):
            return True
    return False


def _some_chain(view: View, plan: Plan, units: list[Unit]) -> bool:
    """Whether each could go, one after the other, for somebody who waited: the net change names the last of a chain.

    Those who wait may start in between; and whoever runs and could be stopped for one of them may have waited
    meanwhile, have claimed, and stand again. Nothing is asked of what a side can bear.
    """
    moment, going = view.moment, {unit.job for unit in units}
    seen: set[tuple[frozenset[Unit], frozenset[str]]] = set()

    def go(left: frozenset[Unit], waits: frozenset[str], state: State) -> bool:
        if not left:
            return True
        if (left, waits) in seen:
            return False
        seen.add((left, waits))
        for name in sorted(waits):
            claim = Claim(view, state, name)
            for unit in left:
                first = unit.extra or not any(u.extra and u.job == unit.job for u in left)
                goes = first and claim.right(unit.job, claim.used)
                if goes and go(left - {unit}, waits, lifted(state, [(unit.job, unit.spots)])):
                    return True
            spots = _when_started(moment, plan, name, state)
            if go(left, waits - {name}, {**state, name: spots}):
                return True
            for other in sorted(n for n in state if state[n] and n not in waits | going and moment.jobs[n].preemptible):
                if claim.right(other, claim.used) and go(left, waits | {other}, {**state, other: ()}):
                    return True
        return False

    waited = (n for n, j in moment.jobs.items() if not moment.complete(j, moment.state.get(n, ())))
    return go(frozenset(units), frozenset(waited), moment.state)


def _when_started(moment: Moment, plan: Plan, name: str, state: State) -> tuple[Spot, ...]:
    """What a job holds that starts in between: as the plan has it, as it stood, or somewhere."""
    job, spots = moment.jobs[name], plan.end.get(name) or moment.state.get(name, ())
    if moment.complete(job, spots):
        return spots
    return (*state.get(name, ()), *_pretended(moment, job, state.get(name, ())))


def _grows(view: View, state: State, claimant: str, units: list[Unit]) -> bool:
    groups = [g.name for g in view.moment.jobs[claimant].groups]
    return all(any(Claim(view, state, claimant, {g: 1}).lawful([u]) for g in groups) for u in units)


def _subsets(units: list[Unit]) -> Iterator[tuple[Unit, ...]]:
    for count in range(len(units), -1, -1):
        yield from combinations(units, count)


def _histories(moment: Moment, plan: Plan, claimant: str, units: list[Unit]) -> Iterator[State]:
    """States before the claim: with any of the other changes of the plan made, and any who wait started meanwhile."""
    mine = {u.job for u in units}
    changes: list[tuple[str, tuple[Spot, ...]]] = []
    for name in sorted(moment.jobs):
        spots = moment.state.get(name, ())
        if name == claimant or name in mine:
            continue
        if changed(moment, plan, name):
            changes.append((name, plan.end.get(name, ())))
        elif not moment.complete(moment.jobs[name], spots):
            changes.append((name, (*spots, *_pretended(moment, moment.jobs[name], spots))))
    if len(plan.end.get(claimant, ())) > 1:
        changes.append((claimant, plan.end[claimant][:-1]))
    if moment.state.get(claimant) and changed(moment, plan, claimant):
        changes.append((claimant, ()))  # somebody stopped it before
    for count in range(min(len(changes), MOST_VARIANTS) + 1):
        for some in combinations(changes[:MOST_VARIANTS], count):
            yield {**moment.state, **dict(some)}


def _pretended(moment: Moment, job: Job, spots: tuple[Spot, ...]) -> list[Spot]:
    node = next(iter(sorted(moment.nodes)))
    return [Spot(g, node, ()) for g, n in moment.missing(job, spots).items() for _ in range(n)]


def movers_may_move(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Rule 15: a claimant above its fair share moves lower or equal priorities, and twice its own GPUs at most."""
    shares = fair_shares(moment)
    for claimant in sorted({m.claimant for m in plan.moves}):
        moves = [m for m in plan.moves if m.claimant == claimant and not _repaired(moment, plan, m.job)]
        if not moves:
            continue
        if claimant not in moment.jobs or not changed(moment, plan, claimant):
            yield Verdict(
                "in-vain", moves[0].job, f"{moves[0].job} is moved for {claimant or 'nobody'} who gets nothing"
            )
            continue
        job = moment.jobs[claimant]
        need = moment.need(job, moment.state.get(claimant, ()))
        least = lifted(moment.state, [(e.job, _going(moment, e)) for e in plan.evicts])
        if stays_within_share(moment, shares[job.queue], use(moment, least, going=False)[job.queue], need):
            continue
        gpus = sum(moment.spot_cost(moment.jobs[m.job], s)[0] for m in moves for s in m.source)
        above = [m.job for m in moves if moment.jobs[m.job].priority > job.priority and not plan_takes(plan, m.job)]
        if above or (gpus > 2 * need[0] and need[0]):
            yield Verdict("no-right-to-move", claimant, f"{claimant}, above its share, moves {[m.job for m in moves]}")


def _repaired(moment: Moment, plan: Plan, name: str) -> bool:
    """Whether it ran below its minimum and is whole elsewhere: released, and started again (rule 22)."""
    job = moment.jobs[name]
    return not moment.complete(job, moment.state[name]) and moment.complete(job, plan.end.get(name, ()))


def plan_takes(plan: Plan, name: str) -> bool:
    """Whether the job is also stopped in part."""
    return any(e.job == name for e in plan.evicts)


# --- deadlocks (rule 23) ----------------------------------------------------------------------------------------------


def deadlocks_are_broken(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """Whoever goes for a deadlock is named in one, and was half-placed."""
    named = {line["break"] for line in plan.deadlocks if "break" in line}
    for evict in plan.evicts:
        if evict.code != "Deadlock":
            continue
        job = moment.jobs[evict.job]
        if evict.job not in named or moment.complete(job, moment.state[job.name]):
            yield Verdict("deadlock", evict.job, f"{evict.job} goes for a deadlock that does not name it")


def _told(spots: tuple[Spot, ...]) -> str:
    return ", ".join(f"{s.node}:{'+'.join(map(str, s.gpus))}" for s in sorted(spots))


CHECKS = (
    places_are_lawful,
    bounds_are_kept,
    shares_are_right,
    actions_lead_to_the_end,
    order_can_be_applied,
    victims_may_go,
    stale_gangs_go,
    shrinking_keeps_the_minimum,
    takers_have_a_right,
    movers_may_move,
    deadlocks_are_broken,
)
