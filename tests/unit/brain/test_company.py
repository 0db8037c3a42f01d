"""Who keeps apart from whom, as jobs come and go."""

from __future__ import annotations

from gpuyard.brain.engine.picture.fleet import Fleet
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
