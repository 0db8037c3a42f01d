"""Fair shares of resources that a snapshot does not print: CPU and memory (rule 6)."""

from __future__ import annotations

from gpuyard.brain.engine.sharing.fair_share import dues, fair_shares
from gpuyard.brain.engine.sharing.quota import QueueTree
from gpuyard.model.queue import Allowance, Queue
from gpuyard.model.resources import UNLIMITED

CPU = 1


def test_a_limit_bounds_the_share_where_the_quota_does_not_name_the_resource():
    tree = QueueTree(
        [
            Queue("outer", quota=Allowance(4), limit=Allowance(UNLIMITED, cpu=16)),
            Queue("inner", parent="outer", quota=Allowance(4, cpu=64)),
            Queue("other", quota=Allowance(4, cpu=32)),
        ]
    )
    demand = [[0, 64 if queue.name == "inner" else 0] for queue in tree.queues]
    shares = fair_shares(tree, demand, [8, 64])
    assert shares[tree.index["outer"]][CPU] == 16
    assert shares[tree.index["inner"]][CPU] <= 64


def test_what_a_queue_is_due_is_its_quota_or_its_share_if_that_is_more_and_nothing_where_it_does_not_count():
    tree = QueueTree(
        [
            Queue("all", quota=Allowance(UNLIMITED)),
            Queue("gpus", quota=Allowance(4)),
            Queue("both", quota=Allowance(2, cpu=32)),
        ]
    )
    shares = [[3.0, 48.0] for _ in tree.queues]
    shares[tree.root] = [8.0, 64.0]
    found = {queue.name: due for queue, due in zip(tree.queues, dues(tree, shares), strict=True)}
    assert (found["all"], found["gpus"], found["both"]) == ([8.0, 0.0], [4.0, 0.0], [3.0, 48.0])
