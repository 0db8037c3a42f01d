"""The first day with a yard, by the commands a new user and an operator type: nothing is lost, no word is untrue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Shell

pytestmark = pytest.mark.slow

TEAMS = """\
apiVersion: gpuyard.dev/v1
kind: Snapshot
nodes: [{name: n0, gpus: 4, model: H100-SXM5-80GB}, {name: n1, gpus: 4, model: H100-SXM5-80GB}]
queues: [{name: prod, quota: 4}, {name: research, quota: 4}]
"""


def test_a_yard_remembers_its_fleet_and_its_queues(shell: Shell, tmp_path: Path):
    """The attack: up with a fleet, down, up: KeyError, the loop dead, and yet "Up." with exit code 0."""
    path = tmp_path / "fleet.yaml"
    path.write_text(TEAMS)
    shell.up("--fleet", str(path))
    shell("queues", "set", "night", "--quota", "2", "--yes")
    shell("run", "--detach", "--name", "a", "--queue", "prod", "--gpus", "4", "--", "sleep", "600")
    shell("run", "--detach", "--name", "b", "--queue", "night", "--gpus", "2", "--", "sleep", "600")
    shell("wait", "a", "b", "--for", "running", "--timeout", "60s")
    shell("down")
    assert "8 GPUs on 2 nodes, as last given with --fleet" in shell.up()
    assert shell("nodes", "-o", "name").stdout == "n0\nn1\n"
    assert shell("queues", "-o", "name").stdout == "night\nprod\nresearch\n"
    jobs = json.loads(shell("jobs", "-o", "json").stdout)
    assert [(job["phase"], job["attempts"]) for job in jobs] == [("running", 1), ("running", 1)]
    shell("down")
    for changed, told in (
        (TEAMS.replace("prod", "serve"), "there is no queue prod any more, where a stands"),
        (TEAMS.replace("n1", "n2").replace("n0", "n3"), "any more, on which"),
    ):
        path.write_text(changed)
        assert told in shell("up", "--detach", "--port", "0", "--fleet", str(path), code=2).stderr
    assert "any more" in shell("up", "--detach", "--port", "0", "--fleet", "machine", code=2).stderr
    shell.up()
    assert json.loads(shell("jobs", "-o", "json").stdout)[0]["attempts"] == 1


def test_a_page_beyond_this_machine_needs_a_certificate_and_is_told_so(shell: Shell):
    for detach in ((), ("--detach",)):
        refused = shell("up", *detach, "--host", "0.0.0.0", "--port", "0", code=2).stderr
        assert refused.startswith("error: 0.0.0.0 can be reached from other machines, so it needs TLS")
