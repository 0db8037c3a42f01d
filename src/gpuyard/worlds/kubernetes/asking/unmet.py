"""Marks of other schedulers that nothing here stands for: conditions are refused by name, wishes told and left aside.

What has a counterpart is read beside our own marks (`gathering.wishes`); the guide to migrating lists both.
"""

from __future__ import annotations

_PARTS = "parts of a gang cannot each be given a domain of their own"
CONDITIONS = {
    "kueue.x-k8s.io/podset-slice-required-topology": _PARTS,
    "kueue.x-k8s.io/podset-slice-required-topology-constraints": _PARTS,
    "kai.scheduler/segment-topology-required-placement": _PARTS,
}
"""What a gang asks for and would break without, and why it cannot be had."""

WISHES = {
    "kueue.x-k8s.io/priority-class": "name a PriorityClass on its pods (priorityClassName)",
    "kueue.x-k8s.io/job-min-parallelism": "gpuyard.dev/gang-min on its pods says how few may run",
    "kai.scheduler/segment-topology-preferred-placement": "gpuyard.dev/topology-preferred is for the whole gang",
    "priorityClassName": "name a PriorityClass on its pods (priorityClassName)",
    "volcano.sh/numa-topology-policy": "the kubelet's own Topology Manager decides",
}
"""What is left aside, and what does the same here."""
