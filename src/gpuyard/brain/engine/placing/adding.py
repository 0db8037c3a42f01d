"""Beyond the minimum: one more task, or one more group that was left out so far (rule 8).

`grow` adds to a job that has its minimum; `add_task` puts an extra that stepped aside somewhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpuyard.brain.engine.nodes.columns import Region, within
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import gang, topology
from gpuyard.brain.engine.queueing import admission
from gpuyard.model.job import Bundle, TaskGroup


def grow(draft: Draft, row: JobRow) -> bool:
    """Add one more task, or one more group that was left out so far, to a job that has its minimum."""
    before = tuple(row.held)
    for extra in _extras(row.job.gang, 0):
        with draft.trial() as trial:
            if _add(draft, row, extra) and admission.allowed(draft, row, trial.mark):
                draft.remember(row, before)
                trial.keep()
                return True
    return False


def add_task(draft: Draft, row: JobRow, leaf: int) -> bool:
    """Add one task to a group that runs."""
    return any(
        _add(draft, row, extra)
        for extra in _extras(row.job.gang, 0)
        if isinstance(extra.group, TaskGroup) and extra.first == leaf
    )


class _Extra(NamedTuple):
    """A group that may grow: its place in the tree, outermost first."""

    chain: tuple[Bundle, ...]
    firsts: tuple[int, ...]
    group: Bundle | TaskGroup
    first: int


def _extras(
    bundle: Bundle, first: int, chain: tuple[Bundle, ...] = (), firsts: tuple[int, ...] = ()
) -> Iterator[_Extra]:
    """Every group, inner ones before the bundle that holds them, in order."""
    chain, firsts = (*chain, bundle), (*firsts, first)
    for group in bundle.groups:
        if isinstance(group, Bundle):
            yield from _extras(group, first, chain, firsts)
        yield _Extra(chain, firsts, group, first)
        first += gang.leaf_count(group)


def _add(draft: Draft, row: JobRow, extra: _Extra) -> bool:
    """One task more for a group that runs; a group that does not run is taken on whole; all else is left alone."""
    tree = gang.Tree(draft, row)
    if not all(tree.complete(bundle, first) for bundle, first in zip(extra.chain, extra.firsts, strict=True)):
        return False
    region, level = _ground(draft, row, extra)
    if not tree.complete(extra.group, extra.first):
        return any(tree.place(extra.group, extra.first, place) for place in _open_to(tree, extra, region, level))
    if isinstance(extra.group, Bundle):
        return False
    levels = gang.innermost_of(
        draft.fleet.columns, [*(bundle.topology for bundle in extra.chain), extra.group.topology]
    )
    return gang.lay_group(draft, row, extra.first, levels, region, extra=1)


def _ground(draft: Draft, row: JobRow, extra: _Extra) -> tuple[Region, str]:
    """The region that running members fix for a group, and the innermost level required of it that none fixes yet."""
    region, level = draft.fleet.columns.everywhere, ""
    for bundle, first in zip(extra.chain, extra.firsts, strict=True):
        required = gang.innermost(draft.fleet.columns, [bundle.topology.required])
        if required:
            fixed = topology.home(draft.fleet.columns, row, range(first, first + gang.leaf_count(bundle)), required)
            region, level = (region, required) if fixed is None else (within(fixed, region), "")
    return region, level


def _open_to(tree: gang.Tree, extra: _Extra, region: Region, level: str) -> Iterator[Region]:
    """Where a group that does not run yet may be taken on: one domain after the other of a level that nobody fixes."""
    if not level:
        return iter((region,))
    return tree.domains(level, extra.group, extra.first, region)
