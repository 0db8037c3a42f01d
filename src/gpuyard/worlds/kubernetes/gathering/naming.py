"""Names of gangs, roles and families, as a file of ours takes them.

Called by `gangs`, through which every seat and every layout comes. An API server bounds the names of objects and the
values of labels, and neither annotations nor what owners are said to be called.
"""

from __future__ import annotations

from dataclasses import replace

from gpuyard.model.outside import text
from gpuyard.worlds.kubernetes.gathering.layouts import Layout, Seat

ROLE_MAX = 200
"""With room for what tells groups of one role apart."""


def seat(found: Seat) -> Seat:
    """Its gang and role by names that can be told."""
    gang, role = text.named(found.gang, text.JOB_MAX), text.named(found.role, ROLE_MAX)
    return found if (gang, role) == (found.gang, found.role) else replace(found, gang=gang, role=role)


def layout(found: Layout) -> Layout:
    """Its roles by the names that seats have, and its family."""
    roles = tuple(replace(role, name=text.named(role.name, ROLE_MAX)) for role in found.roles)
    family = found.family and text.named(found.family, text.JOB_MAX)
    return found if (roles, family) == (found.roles, found.family) else replace(found, roles=roles, family=family)
