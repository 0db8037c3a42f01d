"""`yard frag`, `yard free`, `yard nodes`, `yard queues`, `yard jobs`: what a snapshot holds."""

from __future__ import annotations

import pytest
import yaml

from tests.unit.cli.conftest import Answer, Yard
from tests.unit.cli.hand_made import Oracle

pytestmark = pytest.mark.usefixtures("oracle")


@pytest.fixture
def look(yard: Yard, snapshot_file: str):
    def call(*args: str) -> Answer:
        return yard(*args, "--snapshot", snapshot_file)

    return call


# --- frag ----------------------------------------------------------------------------------------


def test_frag_says_what_is_scattered_and_what_packing_would_give(look):
    answer = look("frag")
    assert answer.lines[0].startswith("Fragmentation 25%: ")
    assert "32 of 64 GPUs free, 7.5 of them stranded: no job seen can use them there." in answer.lines
    assert " 8 GPUs  0 → 4      ·" in answer.lines
    assert "Largest gang that fits now: 4 GPUs in a node, 32 GPUs in a rack." in answer.lines


def test_frag_as_json_is_the_plan_s_fragmentation(look):
    assert look("frag", "-o", "json").json["largest_gang"] == {"node": 4, "rack": 32}


# --- free ----------------------------------------------------------------------------------------


def test_free_asks_for_the_usual_sizes_in_island_node_and_rack(look, oracle: Oracle):
    answer = look("free")
    assert answer.lines[0] == "H100-SXM5-80GB: 17 of 32 GPUs free"
    assert [tuple(question[:3]) for question in oracle.asked] == [  # type: ignore[index]
        *((size, 1, level) for size in (1, 2, 4, 8) for level in ("nvlink", "node")),
        *((8, tasks, level) for tasks in (2, 4) for level in ("rack", "")),
    ]


def test_free_for_a_queue_counts_what_the_queue_may_have(look):
    answer = look("free", "H100:8", "--queue", "research", "-o", "json")
    assert answer.json[0]["fits"] == [
        {"gpus": 8, "tasks": 1, "level": "nvlink", "now": 3, "for_queue": 1},
        {"gpus": 8, "tasks": 1, "level": "node", "now": 3, "for_queue": 1},
    ]


def test_free_for_a_gang_is_asked_per_rack_and_in_the_whole_fleet(look):
    answer = look("free", "8x2")
    assert answer.lines[2:] == ["  8x2 in a rack                 3", "  8x2 in the whole fleet        3"]


def test_free_of_an_unknown_model_is_not_found(look):
    answer = look("free", "H10:8")
    assert answer.code == 3
    assert "Did you mean 'H100'?" in answer.err


def test_free_for_an_unknown_queue_is_not_found(look):
    answer = look("free", "--queue", "reserch")
    assert answer.code == 3
    assert "Did you mean 'research'?" in answer.err


def test_a_wrong_shape_is_refused_with_the_grammar(look):
    answer = look("free", "H100:")
    assert answer.code == 2
    assert "MODEL:GPUSxTASKS" in answer.err


# --- nodes ---------------------------------------------------------------------------------------


def test_nodes_show_every_gpu_as_one_sign(look):
    assert "n2    h100  H100-SXM5-80GB   5/8  ■■□□ □✗□□  1 sick  ready" in look("nodes").lines


def test_nodes_come_in_the_order_people_count(look):
    assert look("nodes", "-o", "name").lines == ["n0", "n1", "n2", "n10"]


def test_a_node_as_json_has_the_snapshot_s_keys_and_what_else_is_known(look):
    entry = look("nodes", "-o", "json").json[2]
    assert (entry["gpus"], entry["model"], entry["domains"]) == (8, "H100-SXM5-80GB", {"rack": "r1"})
    assert (entry["phase"], entry["free"], entry["used"], entry["jobs"]) == ("ready", 5, 2, ["api"])


def test_wide_adds_columns_and_no_headers_drops_the_first_line(look):
    assert "CPU FREE" in look("nodes", "-o", "wide").lines[0]
    bare = look("nodes", "--no-headers").lines
    assert [line.split() for line in bare] == [line.split() for line in look("nodes").lines[1:]]


def test_sort_by_takes_any_key_of_the_json_forwards_and_backwards(look):
    assert look("nodes", "-o", "name", "--sort-by", "free").lines == ["n10", "n2", "n0", "n1"]
    assert look("nodes", "-o", "name", "--sort-by", "-free").lines[-1] == "n10"
    assert look("nodes", "-o", "name", "--sort-by", "-domains.rack").lines[0] in ("n2", "n10")


def test_a_key_that_nobody_has_gets_the_nearest_one(look):
    answer = look("nodes", "--sort-by", "fre")
    assert answer.code == 2
    assert "Did you mean 'free'?" in answer.err


# --- queues --------------------------------------------------------------------------------------


def test_queues_come_as_a_tree_with_what_they_hold_now(look):
    lines = look("queues").lines
    assert [line.split("  ")[0] or line[:9] for line in lines[1:]] == ["prod", "  serving", "research"]
    assert lines[3].split() == ["research", "8", "16", "12.5", "4", "0", "3"]


def test_a_queue_as_json_has_its_quota_use_and_fair_share(look):
    entry = look("queues", "-o", "json").json[2]
    assert (entry["name"], entry["quota"], entry["used"]) == ("research", 8, 4)
    assert (entry["fair_share"], entry["waiting"]) == (12.5, 3)


# --- jobs ----------------------------------------------------------------------------------------


def test_jobs_show_their_phase_and_why(look):
    lines = look("jobs").lines
    assert "wide  research  waiting  1×8       8   1h    -  Fragmented" in lines
    assert "old   research  running  1×2       2   2h   2h  Preempted" in lines
    assert "api   serving   running  2×1       2   1h   1h  -" in lines


def test_age_goes_on_counting_from_the_submission_when_a_job_begins_to_run(look):
    (line,) = (line for line in look("jobs").lines if line.startswith("prep"))
    assert line.split()[5:7] == ["1h", "1m"]


def test_a_job_as_json_has_the_snapshot_s_keys_phase_and_reason(look):
    entry = next(entry for entry in look("jobs", "-o", "json").json if entry["name"] == "llm")
    assert (entry["tasks"], entry["gpus"], entry["user"], entry["queue"]) == (2, 8, "ada", "research")
    assert (entry["phase"], entry["priority"], entry["preemptible"]) == ("waiting", 50, True)
    assert entry["reason"]["code"] == "Fits"
    assert (entry["asked_gpus"], entry["held_gpus"]) == (16, 0)


def test_jobs_sort_by_their_reason_s_code(look):
    assert look("jobs", "-o", "name", "--sort-by", "reason").lines[:2] == ["prep", "llm"]


def test_yaml_says_the_same_as_json(look):
    assert yaml.safe_load(look("jobs", "-o", "yaml").out) == look("jobs", "-o", "json").json


def test_an_empty_listing_says_so_on_stderr(yard: Yard, tmp_path):
    path = tmp_path / "empty.yaml"
    path.write_text("apiVersion: gpuyard.dev/v1\nkind: Snapshot\n")
    answer = yard("nodes", "--snapshot", str(path))
    assert (answer.code, answer.out, answer.err) == (0, "", "There are no nodes.\n")
    assert yard("nodes", "--snapshot", str(path), "-o", "json").json == []
