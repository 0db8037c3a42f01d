"""Known holes in what lets containers reach GPUs, and the version that closes each.

Looked up by `yard doctor`. From NVIDIA's security bulletins (nvidia.com/security) and the CVE records; scores: CVSS 3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TOOLKIT = "nvidia-container-toolkit"


@dataclass(frozen=True, slots=True)
class Cve:
    """One hole: in which product, closed by which version, how bad, and what it lets somebody do."""

    name: str
    product: str
    fixed: str
    score: float
    words: str


CVES: tuple[Cve, ...] = (
    Cve("CVE-2024-0132", TOOLKIT, "1.16.2", 9.0, "a crafted image reaches the host's files (not where CDI is used)"),
    Cve("CVE-2024-0135", TOOLKIT, "1.17.3", 7.6, "a crafted image changes a host binary"),
    Cve("CVE-2025-23359", TOOLKIT, "1.17.4", 8.3, "a way around the mending of CVE-2024-0132"),
    Cve("CVE-2025-23266", TOOLKIT, "1.17.8", 9.0, "a hook runs an image's library as root on the host"),
    Cve("CVE-2025-23267", TOOLKIT, "1.17.8", 8.5, "a link in an image makes a hook write on the host"),
    Cve("CVE-2026-24260", TOOLKIT, "1.19.1", 8.5, "a container gains rights on the host"),
)


def open_in(product: str, version: str) -> list[Cve]:
    """Those that a version still has, the worst first."""
    return sorted(
        (cve for cve in CVES if cve.product == product and number(version) < number(cve.fixed)),
        key=lambda cve: (-cve.score, cve.name),
    )


def number(version: str) -> tuple[int, ...]:
    """A version to compare by; what follows the numbers, as `-rc.1`, is not looked at."""
    found = re.match(r"\D*(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()
