"""Every verdict on one plan. Verdicts that follow from an earlier one are left out: a wrong share explains a claim."""

from __future__ import annotations

from tests.oracle import ends, legal, packing, promises, story
from tests.oracle.plans import Planner, Verdict, read_plan
from tests.oracle.shapes import Document, read

FOLLOW_FROM_UNTIL = ("refused-start", "restless")
"""A reservation that promises a wrong time opens a gap that is none."""


def judge(document: Document, planner: Planner, again: bool = True) -> list[Verdict]:
    """What is wrong with the plan that the planner makes of this snapshot document; each kind once."""
    moment = read(document)
    plan = read_plan(planner(document))
    found = [verdict for check in (*legal.CHECKS, *promises.CHECKS) for verdict in check(moment, plan)]
    if not any(v.kind == "share" for v in found):
        found += ends.nobody_is_refused(moment, plan)
        found += ends.everybody_grew(moment, plan)
        found += ends.priority_grows_first(moment, plan)
        found += story.decisions_are_the_best(moment, plan)
    found += packing.newcomers_pack(moment, plan)
    found += ends.nobody_moved_in_vain(moment, plan)
    if again:
        found += ends.planning_again_changes_nothing(moment, plan, planner)
    if any(v.kind == "until" for v in found):
        found = [v for v in found if v.kind not in FOLLOW_FROM_UNTIL]
    kinds: dict[str, Verdict] = {}
    for verdict in found:
        kinds.setdefault(verdict.kind, verdict)
    return list(kinds.values())
