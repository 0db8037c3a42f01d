"""Nodes that refuse are left for a while, by everybody or only by whom they do not suit."""

from __future__ import annotations

from gpuyard.worlds.kubernetes.avoiding import AVOID_MAX_S, AVOID_S, CALM_S, Avoidance


class Hands:
    """A clock that is set."""

    at = 0.0

    def monotonic(self) -> float:
        return self.at


def avoidance(clock: Hands) -> Avoidance:
    return Avoidance(clock, lambda _node: None, lambda _gang: None)  # type: ignore[arg-type]


def closed_for(avoided: Avoidance, clock: Hands) -> float:
    begun, step = clock.at, 1.0
    while avoided.nodes:
        clock.at += step
        avoided.lapse()
    return clock.at - begun


def test_a_pod_that_does_not_fit_into_a_machine_closes_it_to_nobody_else():
    avoided = avoidance(Hands())
    for _ in range(10):
        avoided.refused_by("n0", "TopologyAffinityError", "team-a/odd")
    assert avoided.nodes == {}
    assert avoided.shunned_by("team-a/odd") == ("n0",)
    assert avoided.shunned_by("team-b/other") == ()


def test_a_node_that_refuses_again_is_left_for_longer_and_after_calm_as_at_first():
    clock = Hands()
    avoided = avoidance(clock)
    times = []
    for _ in range(7):
        avoided.refused_by("n0", "UnexpectedAdmissionError", "team-a/x")
        times.append(closed_for(avoided, clock))
    assert times == sorted(times)
    assert (times[0], times[1], times[-1]) == (AVOID_S, 2 * AVOID_S, AVOID_MAX_S)
    clock.at += CALM_S
    avoided.refused_by("n0", "UnexpectedAdmissionError", "team-a/x")
    assert closed_for(avoided, clock) == AVOID_S
