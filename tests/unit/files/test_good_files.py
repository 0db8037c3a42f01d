"""What a good file means: defaults, short forms, units, and what is filled in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.files import Unreadable, parse_job, parse_snapshot, read_snapshot
from gpuyard.model.job import AffinityTerm, Avoid, Bundle, Checkpoint, Expression, JobClass, Placement, Run, Toleration
from gpuyard.model.node import Effect, Health, Pool, Taint
from gpuyard.model.policy import AcrossQueues, Policy, Style
from gpuyard.model.queue import NO_LIMIT, NO_QUOTA, Allowance, Queue
from gpuyard.model.resources import UNLIMITED, WHOLE, Request
from gpuyard.model.snapshot import Reservation, Snapshot
from gpuyard.model.topology import ANYWHERE, TopologyAsk

NOW = 1767225600.0  # 2026-01-01T00:00:00Z
GIB = 1 << 30


def snapshot(body: str) -> Snapshot:
    return parse_snapshot(f"apiVersion: gpuyard.dev/v1\nkind: Snapshot\n{body}", "good.yaml", NOW)


def job(body: str, rest: str = ""):
    return snapshot(f"{rest}\njobs:\n  - {{name: a, {body}}}").jobs[0]


def node(body: str):
    return snapshot(f"topology: [block, rack]\nnodes:\n  - {{name: n, {body}}}").nodes[0]


def queue(body: str) -> Queue:
    return snapshot(f"queues:\n  - {{name: q, {body}}}").queues[0]


# --- the document --------------------------------------------------------------------------------


def test_the_smallest_file_has_one_queue_without_bounds():
    assert snapshot("") == Snapshot(now=NOW, queues=(Queue("default", quota=NO_LIMIT),))


def test_a_file_says_its_own_now():
    assert snapshot("now: 2026-01-01T01:00:00+01:00").now == NOW
    assert snapshot("now: 2026-01-01T00:00:00.5Z").now == NOW + 0.5


def test_a_file_can_be_json(tmp_path: Path):
    path = tmp_path / "s.json"
    path.write_text(
        json.dumps({"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", "nodes": [{"name": "n", "gpus": 2}]})
    )
    assert len(read_snapshot(path, NOW).nodes[0].gpus) == 2


def test_json_is_known_by_its_looks_where_the_name_does_not_say():
    text = '{"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot"}'
    assert parse_snapshot(text, "stdin", NOW) == snapshot("")


def test_yaml_that_begins_like_json_is_yaml():
    assert parse_snapshot("{apiVersion: gpuyard.dev/v1, kind: Snapshot}", "stdin", NOW) == snapshot("")


def test_anchors_and_merges_may_be_used():
    nodes = snapshot("nodes:\n  - &h {name: a, gpus: 8}\n  - {<<: *h, name: b}").nodes
    assert [(node.name, len(node.gpus)) for node in nodes] == [("a", 8), ("b", 8)]


def test_memory_is_kept_as_it_is():
    assert snapshot("memory: {health: {n0: [1, two]}}").memory == {"health": {"n0": [1, "two"]}}


# --- the fleet -----------------------------------------------------------------------------------


def test_a_node_may_be_anything_that_is_not_said():
    plain = node("gpus: 2")
    assert (plain.cpu, plain.memory, plain.model, plain.gpu_memory) == (UNLIMITED, UNLIMITED, "", 0)
    assert [gpu.island for gpu in plain.gpus] == [0, 0]


def test_memory_and_architecture_of_a_known_model_are_filled_in():
    known = node("gpus: 8, model: A100-SXM4-80GB")
    assert (known.gpu_memory, known.architecture) == (80 * GIB, "ampere")
    assert node("gpus: 8, model: A100-SXM4-80GB, gpu_memory: 79Gi").gpu_memory == 79 * GIB
    assert node("gpus: 1, model: TPU, architecture: hopper").architecture == "hopper"


def test_sizes_are_quantities():
    sized = node("cpu: 500m, memory: 1.5Gi")
    assert (sized.cpu, sized.memory) == (500, 3 * GIB // 2)
    assert node("cpu: 0.5, memory: 1G").memory == 10**9
    assert node("cpu: unlimited, memory: 1024") == node("memory: 1Ki")


def test_islands_health_and_slices_are_per_gpu():
    gpus = node("gpus: 4, islands: [[0, 2], [1, 3]], unhealthy: [1], health: {'2': suspect}, mig: {3: [1g.10gb]}").gpus
    assert [gpu.island for gpu in gpus] == [0, 1, 0, 1]
    assert [gpu.health for gpu in gpus] == [Health.HEALTHY, Health.SICK, Health.SUSPECT, Health.HEALTHY]
    assert [gpu.slices for gpu in gpus] == [None, None, None, ("1g.10gb",)]


def test_a_gpu_may_be_cut_into_nothing_yet():
    assert node("gpus: 1, mig: {0: []}").gpus[0].slices == ()


def test_domains_are_in_the_order_of_the_topology():
    assert node("domains: {rack: r0, block: b0}").domains == (("block", "b0"), ("rack", "r0"))


def test_taints_have_an_effect_by_themselves():
    assert node("taints: [{key: nvidia.com/gpu}]").taints == (Taint("nvidia.com/gpu", "", Effect.NO_SCHEDULE),)


def test_a_pool_named_by_a_node_exists():
    pools = snapshot("pools: [{name: b, price: 5}]\nnodes: [{name: n, pool: a}, {name: m, pool: b}]").pools
    assert pools == (Pool("b", price=5.0), Pool("a"))


# --- queues --------------------------------------------------------------------------------------


def test_a_queue_has_nothing_and_may_borrow_everything_by_default():
    assert queue("weight: 1") == Queue("q", "root", NO_QUOTA, NO_LIMIT, 1.0, 0)


def test_a_number_means_gpus():
    assert queue("quota: 1.5, limit: unlimited").quota == Allowance(3 * WHOLE // 2)


def test_gpu_left_out_of_a_quota_is_the_sum_of_the_models():
    quota = queue("quota: {H100: 4, A100: 2, cpu: 64, memory: 1Ti}").quota
    assert quota == Allowance(6 * WHOLE, (("A100", 2 * WHOLE), ("H100", 4 * WHOLE)), 64_000, 1024 * GIB)
    assert queue("quota: {cpu: 1}").quota.gpu == 0


def test_gpu_left_out_of_a_limit_is_unlimited():
    assert queue("limit: {H100: 4}").limit == Allowance(UNLIMITED, (("H100", 4 * WHOLE),))


def test_the_root_may_be_given_and_has_no_parent():
    queues = snapshot("queues: [{name: root, limit: 8}, {name: q}]").queues
    assert queues[0] == Queue("root", "", limit=Allowance(8 * WHOLE))


# --- jobs ----------------------------------------------------------------------------------------


def test_a_job_is_one_task_of_training_by_default():
    plain = job("gpus: 1")
    (group,) = plain.task_groups()
    assert (group.name, group.tasks, group.min, group.request) == ("main", 1, 1, Request(gpus=1))
    assert (plain.queue, plain.job_class, plain.priority, plain.preemptible) == (
        "default",
        JobClass.TRAINING,
        None,
        None,
    )


def test_a_job_was_submitted_when_it_started_or_now():
    assert job("gpus: 1").submitted == NOW
    assert job("started: 2025-12-31T20:00:00Z").submitted == NOW - 4 * 3600
    assert job("started: 2025-12-31T20:00:00Z, submitted: 2025-12-31T19:00:00Z").submitted == NOW - 5 * 3600


def test_durations_add_up():
    assert job("time_limit: 1h30m, min_runtime: 90, warm_up: 0.5h").time_limit == 5400.0
    assert job("stale_grace: -1").stale_grace == -1.0


@pytest.mark.parametrize(
    ("asked", "request_"),
    [
        ("gpus: 0", Request()),
        ("gpus: 2, cpu: 8, memory: 64Gi", Request(gpus=2, cpu=8000, memory=64 * GIB)),
        ("fraction: 0.5", Request(share=WHOLE // 2)),
        ("fraction: 1", Request(share=WHOLE)),
        ("gpu_memory: 20Gi", Request(gpu_memory=20 * GIB)),
        ("mig: 1g.10gb", Request(mig=(("1g.10gb", 1),))),
        ("mig: {3g.40gb: 1, 1g.10gb: 2}", Request(mig=(("1g.10gb", 2), ("3g.40gb", 1)))),
    ],
)
def test_a_task_asks_for_one_kind_of_thing(asked: str, request_: Request):
    assert job(asked).task_groups()[0].request == request_


def test_the_topology_of_a_job_binds_the_gang_and_not_its_groups():
    bound = job("tasks: 2, topology: {required: rack, preferred: nvlink}", "topology: [rack]")
    assert bound.gang.topology == TopologyAsk("rack", "nvlink")
    assert bound.task_groups()[0].topology == ANYWHERE


def test_groups_may_nest_and_inherit_where_they_may_stand():
    nested = job(
        "node_selector: {zone: a}, min_groups: 1, groups: [{name: r0, topology: {required: node}, groups: ["
        "{name: leader, gpus: 1}, {name: worker, tasks: 4, min: 2, gpus: 8, node_selector: {}}]}, {name: r1}]"
    )
    inner = nested.gang.groups[0]
    assert isinstance(inner, Bundle)
    assert (nested.gang.min_groups, inner.min_groups, inner.topology) == (1, 2, TopologyAsk("node"))
    assert [group.name for group in nested.task_groups()] == ["leader", "worker", "r1"]
    assert [group.node_selector for group in nested.task_groups()] == [(("zone", "a"),), (), (("zone", "a"),)]


def test_the_words_of_kubernetes_are_understood():
    worded = job(
        "affinity: [{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}], "
        "tolerations: [{operator: Exists}, {key: k, value: v, effect: NoExecute}]"
    )
    assert worded.task_groups()[0].terms == ((AffinityTerm((Expression("zone", "In", ("a", "b")),)),),)
    assert worded.task_groups()[0].tolerations == (Toleration("", "Exists"), Toleration("k", "Equal", "v", "NoExecute"))


def test_the_rest_of_a_job_is_taken_as_it_is():
    rest = job(
        "avoid: {self: true}, checkpoint: {interval: 30m}, models: [H200, H100], min_gpu_memory: 40Gi, "
        "held: true, evictions: 2, run: {command: [python, x.py], env: {A: '1'}, retries: 3}"
    )
    assert rest.avoid == Avoid("node", (), True)
    assert rest.checkpoint == Checkpoint(1800.0, None, 60.0, "SIGUSR1")
    assert (rest.models, rest.min_gpu_memory, rest.on_hold, rest.evictions) == (("H200", "H100"), 40 * GIB, True, 2)
    assert rest.run == Run(("python", "x.py"), (("A", "1"),), "", 3)


def test_a_foreign_load_may_stand_in_no_queue():
    assert job("foreign: true").queue == ""
    assert job("foreign: true", "queues: [{name: q}]").queue == ""


def test_a_model_that_nobody_has_is_legal():
    assert job("models: [H900]").models == ("H900",)


# --- placements ----------------------------------------------------------------------------------

NODES = (
    "nodes: [{name: n, gpus: 8, model: H100, cpu: 1, memory: 1Gi}, {name: m, gpus: 1, mig: {0: [1g.10gb, 1g.10gb]}}]"
)


def test_tasks_without_a_number_get_the_lowest_free_one():
    placed = job(
        "tasks: 4, gpus: 1, placements: [{node: n, gpus: [0]}, {node: n, gpus: [1], task: 0}, {node: n, gpus: [2]}]",
        NODES,
    )
    assert [placement.task for placement in placed.placements] == [1, 0, 2]
    assert placed.placements[0] == Placement("n", (0,), "main", 1)


def test_a_task_on_its_way_out_leaves_its_number_to_its_successor():
    placed = job(
        "tasks: 1, gpus: 1, placements: [{node: n, gpus: [0], terminating: true}, {node: n, gpus: [1]}]", NODES
    )
    assert [(p.task, p.terminating) for p in placed.placements] == [(0, True), (0, False)]


def test_the_slices_of_a_placement_go_without_saying_where_all_are_alike():
    placed = job("mig: {1g.10gb: 2}, placements: [{node: m, gpus: [0, 0]}]", NODES)
    assert placed.placements[0].mig == ("1g.10gb", "1g.10gb")


def test_a_placement_belongs_to_the_only_group():
    placed = job("groups: [{name: w, tasks: 2, gpus: 1}], placements: [{node: n, gpus: [0]}]", NODES)
    assert placed.placements[0].group == "w"


def test_cpu_and_memory_may_be_over_committed_because_the_world_may_be():
    assert job("gpus: 1, cpu: 64, memory: 1Ti, placements: [{node: n, gpus: [0]}]", NODES).placements


def test_shares_fill_a_gpu_to_the_brim():
    rest = "".join(f"  - {{name: s{i}, fraction: 0.25, placements: [{{node: n, gpus: [0]}}]}}\n" for i in range(2))
    text = f"{NODES}\njobs:\n{rest}  - {{name: m, gpu_memory: 40Gi, placements: [{{node: n, gpus: [0]}}]}}"
    assert len(snapshot(text).jobs) == 3


def test_what_is_reserved_may_still_be_held_by_others():
    held = snapshot(
        f"{NODES}\njobs:\n  - {{name: a, gpus: 1, placements: [{{node: n, gpus: [0]}}]}}\n  - {{name: b, gpus: 1}}\n"
        "reservations: [{job: b, placements: [{node: n, gpus: [0]}], until: 2026-01-01T00:00:10Z}]"
    )
    assert held.reservations == (Reservation("b", (Placement("n", (0,)),), NOW + 10),)


# --- policy --------------------------------------------------------------------------------------


def test_an_empty_policy_is_the_default_one():
    assert snapshot("policy: {}").policy == Policy()


def test_a_policy_changes_what_it_names_and_nothing_else():
    policy = snapshot(
        "policy: {preempt_across_queues: any, stale_grace: -1, reserve_after: 2h, "
        "classes: {batch: {placement: spread, over: [node]}}, weights: {island: 3}}"
    ).policy
    assert policy.preempt_across_queues is AcrossQueues.ANY
    assert (policy.stale_grace, policy.reserve_after, policy.weights.island) == (-1.0, 7200.0, 3.0)
    assert policy.classes[JobClass.BATCH].placement is Style.SPREAD
    assert policy.classes[JobClass.BATCH].priority == 25
    assert policy.classes[JobClass.TRAINING] == Policy().classes[JobClass.TRAINING]


# --- job files -----------------------------------------------------------------------------------


def test_a_job_file_is_one_job_and_what_it_runs():
    read = parse_job("name: a\ngpus: 2\nrun: {command: [python, train.py]}\n", "job.yaml", NOW)
    assert (read.name, read.submitted, read.run) == ("a", NOW, Run(("python", "train.py")))


def test_a_job_file_may_say_what_it_is():
    assert parse_job("apiVersion: gpuyard.dev/v1\nkind: Job\nname: a\n", "job.yaml", NOW).name == "a"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: a\ngpu: 2", "job.yaml:2: the file has an unknown key gpu; did you mean gpus?"),
        ("name: a\nplacements: []", "job.yaml:2: a job file describes what is to be run, so it has no placements"),
        ("kind: Snapshot\nname: a", "job.yaml:1: kind must be one of Job, not 'Snapshot'"),
        ("gpus: 2", "job.yaml:1: the file has no name"),
        ("name: a\ntasks: 2\nmin: 4", "job.yaml:3: min is 4, more than tasks (2)"),
        ("- name: a", "job.yaml:1: the file must be a mapping, not a list"),
    ],
)
def test_a_bad_job_file_is_refused_in_one_sentence(text: str, told: str):
    with pytest.raises(Unreadable) as refusal:
        parse_job(text, "job.yaml", NOW)
    assert str(refusal.value) == told


def test_a_priority_may_be_a_name_of_the_policy():
    text = "policy: {priorities: {urgent: 500}}\njobs: [{name: a, priority: urgent}, {name: b, priority: critical}]"
    snapshot = parse_snapshot(f"apiVersion: gpuyard.dev/v1\nkind: Snapshot\n{text}\n", "x", 0.0)
    assert [snapshot.policy.priority(job) for job in snapshot.jobs] == [500, 1000]
    assert snapshot.policy.named_priorities() == {"critical": 1000, "low": 10, "high": 200, "urgent": 500}


def test_critical_is_where_critical_jobs_begin_unless_the_policy_says_otherwise():
    assert replace(Policy(), critical_priority=70).named_priorities()["critical"] == 70
    assert replace(Policy(), priorities={"critical": 5000}).named_priorities() == {"critical": 5000}
