"""Who keeps apart from whom, as jobs come and go."""

from __future__ import annotations

from dataclasses import replace

from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.placing import neighbours
from gpuyard.model.events import NodeSeen
from tests.support.moments import moment

SHY = """
nodes: [{name: n0, gpus: 4}]
jobs:
  - {name: web, gpus: 1, labels: {app: web}}
  - {name: db, gpus: 1, labels: {app: db}}
  - {name: no-db, gpus: 1, apart: [{level: node, matchExpressions: [{key: app, operator: In, values: [db]}]}]}
  - name: no-web
    gpus: 1
    apart: [{level: node, matchExpressions: [{key: app, operator: In, values: [web]}]}]
"""


def test_who_keeps_apart_is_counted_and_heeded_by_those_it_means_from_the_moment_it_comes_until_the_last_has_gone():
    fleet = Fleet(moment(SHY))
    company, jobs = fleet.company, fleet.jobs
    web, (term,) = jobs["web"].request, jobs["no-web"].request.apart
    assert company.apart[term] == 1
    assert company.against(web) == (term,)
    company.enter(jobs["no-web"].requests, 1)
    assert company.apart[term] == 2
    company.enter(jobs["no-web"].requests, -1)
    assert company.against(web) == (term,), "one of them is still there"
    company.enter(jobs["no-web"].requests, -1)
    assert (company.against(web), company.concerns(web)) == ((), False)
    company.enter(jobs["no-web"].requests, 1)
    assert (company.against(web), company.concerns(web)) == ((term,), True)
    assert company.against(jobs["db"].request) == jobs["no-db"].request.apart


EVEN = """
topology: [rack]
nodes:
  - {name: a, gpus: 1, domains: {rack: a}, labels: {disk: nvme}}
  - {name: b, domains: {rack: b}}
jobs:
  - {name: old, cpu: 1, labels: {app: web}, placements: [{node: a}]}
  - name: web
    gpus: 1
    labels: {app: web}
    even:
      - level: rack
        among: [[{matchExpressions: [{key: disk, operator: Exists}]}]]
        matchExpressions: [{key: app, operator: In, values: [web]}]
"""


def closed_to_web(fleet: Fleet) -> set[str]:
    found = neighbours.limits(fleet, fleet.jobs["web"], 0)
    assert found is not None
    return {node.name for n, node in enumerate(fleet.columns.nodes) if any(mask[n] for mask in found.closed.values())}


def test_a_node_that_bears_another_label_now_is_compared_for_evenness_or_is_not_any_more():
    fleet = Fleet(moment(EVEN))
    bare = fleet.columns.nodes[1]
    assert closed_to_web(fleet) == {"b"}
    fleet.apply([NodeSeen(replace(bare, labels=(("disk", "none"),)))])
    assert closed_to_web(fleet) == {"a"}
    fleet.apply([NodeSeen(bare)])
    assert closed_to_web(fleet) == {"b"}
