"""What a moment may have besides: taints, nodes that name no rack, neighbours, power (rules 10 and 14).

Added to a moment that is drawn already, so what runs may break what is asked of newcomers; nobody goes for that.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.oracle.shapes import Document


def widened(document: Document, dice: Random) -> Document:
    """The document with one or two of these."""
    for add in dice.sample(ADDITIONS, dice.randint(1, 2)):
        add(document, dice)
    return document


def _taints(document: Document, dice: Random) -> None:
    """Some nodes keep away whoever does not tolerate them."""
    for node in document["nodes"]:
        if dice.random() < 0.5:
            node["taints"] = [{"key": "lab", "value": "x", "effect": "NoSchedule"}]
    for job in document["jobs"]:
        if dice.random() < 0.6:
            job["tolerations"] = [{"key": "lab", "operator": "Exists"}]


def _bare(document: Document, dice: Random) -> None:
    """Some nodes name no rack; some gangs must stay in one."""
    document["topology"] = ["rack"]
    for node in document["nodes"]:
        node.pop("domains", None)
        if dice.random() < 0.5:
            node["domains"] = {"rack": dice.choice(["r0", "r1"])}
    for job in document["jobs"]:
        if dice.random() < 0.4:
            job["topology"] = {"required": "rack"}


def _shy(document: Document, dice: Random) -> None:
    """Some jobs will not meet a queue, or their own replicas."""
    queues = sorted({job["queue"] for job in document["jobs"]})
    levels = ["node", *document.get("topology", [])]
    for job in document["jobs"]:
        if dice.random() < 0.25:
            wish: Document = dice.choice([{"queues": [dice.choice(queues)]}, {"self": True}])
            job["avoid"] = {"level": dice.choice(levels), **wish}


def _power(document: Document, dice: Random) -> None:
    """Not all GPUs of a pool may be in use."""
    level = dice.choice(["node", *document.get("topology", [])])
    pools = sorted({node["pool"] for node in document["nodes"]})
    document["pools"] = [{"name": name, "max_busy": {level: dice.randint(1, 4)}} for name in pools]


def _nested(document: Document, dice: Random) -> None:
    """Some of those who wait are groups of groups, which stay together."""
    levels = ["node", "nvlink", *document.get("topology", [])]
    kept = {entry["job"] for entry in document.get("reservations", [])}
    for job in document["jobs"]:
        if "placements" in job or job["name"] in kept or dice.random() < 0.3:
            continue
        if "groups" not in job:
            ask = {key: job.pop(key) for key in ("gpus", "fraction", "gpu_memory", "mig", "cpu") if key in job}
            size = {key: job.pop(key) for key in ("tasks", "min") if key in job}
            job["groups"] = [{"name": "lead", **ask}, {"name": "work", **size, **ask}]
        inner: Document = {"name": "inner", "groups": job["groups"], "topology": {"required": dice.choice(levels)}}
        side = [{"name": "side", "gpus": 1}] if dice.random() < 0.4 else []
        job["groups"] = [inner, *side]


def naming_a_model(document: Document, dice: Random) -> Document:
    """Every queue has a quota, and some a limit, for one of two models, and every job asks for one of the two."""
    whole = [node for node in document["nodes"] if "mig" not in node]
    for node in dice.sample(whole, min(len(whole), dice.randint(1, 2))):
        node |= {"pool": "h100", "model": "H100-SXM5-80GB", "gpu_memory": "80Gi"}
    models = {node["name"]: node["model"][:4] for node in document["nodes"]}
    for job in document["jobs"]:
        there = {models[place["node"]] for place in job.get("placements", [])}
        if len(there) > 1:
            for key in ("placements", "started", "checkpoint", "stale_since"):
                job.pop(key, None)
        job["models"] = sorted(there) if len(there) == 1 else [dice.choice(sorted(set(models.values())))]
    for queue in document["queues"]:
        quota = queue["quota"] if isinstance(queue["quota"], dict) else {"gpu": queue["quota"]}
        queue["quota"] = {**quota, "H100": dice.choice([0, 1, 1, 2, 2, 3, 4, "unlimited"])}
        if dice.random() < 0.15:
            queue["limit"] = {"H100": dice.choice([1, 2, 3])}
    return document


def insisting(document: Document, dice: Random) -> Document:
    """Kubelets of some nodes insist on NUMA nodes; what runs may lie otherwise."""
    for node in document["nodes"]:
        if node["gpus"] > 1 and dice.random() < 0.8:
            cut = dice.randint(1, node["gpus"] - 1)
            node["numa"] = [list(range(cut)), list(range(cut, node["gpus"]))]
            node["alignment"] = dice.choice(["single-numa-node", "single-numa-node", "restricted"])
    return document


ADDITIONS: tuple[Callable[[Document, Random], None], ...] = (_taints, _bare, _shy, _power, _nested)
