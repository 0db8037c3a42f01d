"""All checks, in the order in which one would mend what is wrong. Called by `yard doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from gpuyard.agent.doctor import containers, devices, driver
from gpuyard.agent.doctor.examining import Check, Patient


def examined(patient: Patient) -> Iterator[Check]:
    """One answer for each."""
    for check in (*driver.CHECKS, *devices.CHECKS, *containers.CHECKS):
        yield check(patient)
