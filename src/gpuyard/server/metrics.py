"""/metrics: the yard's numbers under the names people know from Kueue, in base units. Called by `probes`.

Gathered when they are asked for; nothing is counted here. No label carries a user's name, and a job's only on series of
the GPUs that it has now, for operators: names have no bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gpuyard import __version__
from gpuyard.runtime.service import EVERYBODY, Document
from gpuyard.server.context import HandlerContext

WAITING = ("waiting", "held")
JOB = "hpc_job"
THRESHOLDS_S = (600, 3600, 21600, 86400)
"""Waits worth telling apart: ten minutes, an hour, six, a day."""


def exposition(context: HandlerContext, accept: str, names: bool = False) -> tuple[bytes, str]:
    """The body and its content type, as the scraper accepts it; `names`: whether they may know whose job it is."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(YardCollector(context, names))
    encoder, kind = choose_encoder(accept)
    return encoder(registry), kind


class YardCollector(Collector):
    """Asks the service once for each scrape."""

    def __init__(self, context: HandlerContext, names: bool) -> None:
        self._desk = context
        self._names = names

    def collect(self) -> Iterable[Metric]:
        """Every family."""
        service = self._desk.service
        status, measures = service.status(), service.measures()
        yield InfoMetricFamily("gpuyard_build", "Which GPUYard this is.", value={"version": __version__})
        yield from _fleet(status, service.nodes(EVERYBODY))
        yield from _queues(service.queues())
        jobs = service.jobs(EVERYBODY, fields=("queue", "class", "phase", "reason.code", "submitted", "waiting_since"))
        yield _pending(jobs)
        yield from _still_waiting(jobs, self._desk.now())
        yield _alerts(service.alerts(EVERYBODY))
        yield from _growing(measures)
        yield from _stranded(measures.get("stranding", {}))
        yield from _sensed(measures.get("gpu_metrics", ()), self._names)
        if status.get("last_cycle"):
            age = max(0.0, self._desk.now() - float(status["last_cycle"]))
            yield GaugeMetricFamily("gpuyard_decision_age_seconds", "Since the last cycle.", value=age)


def _fleet(status: Document, nodes: list[Document]) -> Iterator[Metric]:
    yield GaugeMetricFamily("gpuyard_nodes", "Nodes of the fleet.", value=len(nodes))
    gpus = GaugeMetricFamily("gpuyard_gpus", "GPUs by model and state.", labels=["model", "state"])
    for (model, state), count in sorted(_gpu_states(nodes).items()):
        gpus.add_metric([model, state], count)
    yield gpus
    yield GaugeMetricFamily("gpuyard_virtual", "1 if the GPUs are virtual.", value=bool(status.get("virtual")))


def _gpu_states(nodes: list[Document]) -> Counter[tuple[str, str]]:
    states: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        for device in node.get("devices", ()):
            sick = device.get("health") == "sick"
            states[str(node.get("model") or ""), "sick" if sick else "held" if device.get("jobs") else "free"] += 1
    return states


def _queues(queues: list[Document]) -> Iterator[Metric]:
    for key, name, words in (
        ("quota", "gpuyard_quota_gpus", "GPUs that are guaranteed."),
        ("used", "gpuyard_usage_gpus", "GPUs that are held."),
        ("fair_share", "gpuyard_fair_share_gpus", "GPUs that are due."),
    ):
        family = GaugeMetricFamily(name, words, labels=["queue"])
        for queue in queues:
            if (amount := _number(queue.get(key))) is not None:
                family.add_metric([str(queue["name"])], amount)
        yield family


def _pending(jobs: list[Document]) -> Metric:
    counts = Counter(
        (str(job.get("queue", "")), str((job.get("reason") or {}).get("code", "")))
        for job in jobs
        if job.get("phase") in WAITING
    )
    family = GaugeMetricFamily("gpuyard_pending_workloads", "Jobs that wait.", labels=["queue", "reason"])
    for labels, count in sorted(counts.items()):
        family.add_metric(list(labels), count)
    return family


def _still_waiting(jobs: list[Document], now: float) -> Iterator[Metric]:
    """Waits of those who wait still; what ended a wait long ago says nothing about who is stuck now."""
    waits: dict[tuple[str, str], list[float]] = {}
    for job in jobs:
        if job.get("phase") == "waiting":
            since = datetime.fromisoformat(job.get("waiting_since") or job["submitted"]).timestamp()
            waits.setdefault((str(job.get("queue", "")), str(job.get("class", ""))), []).append(max(0.0, now - since))
    labels = ["queue", "class"]
    oldest = GaugeMetricFamily(
        "gpuyard_waiting_oldest_seconds", "The longest wait of those still waiting.", labels=labels
    )
    beyond = GaugeMetricFamily(
        "gpuyard_waiting_longer", "Jobs still waiting, for longer than so many seconds.", labels=[*labels, "seconds"]
    )
    for each, found in sorted(waits.items()):
        oldest.add_metric(list(each), max(found))
        for threshold in THRESHOLDS_S:
            beyond.add_metric([*each, str(threshold)], sum(wait > threshold for wait in found))
    yield oldest
    yield beyond


def _alerts(alerts: list[Document]) -> Metric:
    counts = Counter((str(alert["kind"]), str(alert["severity"])) for alert in alerts)
    family = GaugeMetricFamily("gpuyard_alerts", "Alerts that stand.", labels=["kind", "severity"])
    for labels, count in sorted(counts.items()):
        family.add_metric(list(labels), count)
    return family


def _stranded(pools: Document) -> Iterator[Metric]:
    """What of each pool's free GPUs the demand of the last day could not use, as the brain last measured it."""
    share = GaugeMetricFamily("gpuyard_stranded_ratio", "Their share of the free GPUs.", labels=["pool"])
    shapes = GaugeMetricFamily(
        "gpuyard_stranded_gpus", "Free GPUs that a shape of the last day could not use.", labels=["pool", "shape"]
    )
    for name, pool in sorted(pools.items()):
        share.add_metric([name], pool["stranded"] / pool["free"] if pool["free"] else 0.0)
        for shape, (_, _, stranded) in sorted(pool["shapes"].items()):
            shapes.add_metric([name, shape], stranded)
    yield from (share, shapes)


def _sensed(found: Iterable[Document], names: bool) -> Iterator[Metric]:
    """What the agent's code tells of GPUs; of jobs only to those who may know their names."""
    for family in found:
        if family["series"] and (names or not family["name"].startswith("gpuyard_job_")):
            yield _gpu_metric(family, names)


def _gpu_metric(family: Document, names: bool) -> Metric:
    """DCGM's counters have no suffix, so here they are of no known type. A GPU that several have is told once where
    nobody is to know who they are."""
    name, kind = family["name"], family["kind"]
    bare = kind == "counter" and not name.endswith("_total")
    metric = Metric(name.removesuffix("_total"), family["words"], "unknown" if bare else kind)
    told = {tuple((labels if names else _nameless(labels)).items()): value for labels, value in family["series"]}
    for labels, value in told.items():
        metric.add_sample(name, dict(labels), value)
    return metric


def _nameless(labels: Document) -> Document:
    return {**labels, JOB: ""} if JOB in labels else labels


def _growing(measures: Document) -> Iterator[Metric]:
    """What the service counts since the yard was made."""
    yield _counter("gpuyard_gpu_seconds", "GPU-seconds by account.", "account", measures.get("accounts"))
    yield _counter("gpuyard_evicted_workloads", "Evictions by reason.", "reason", measures.get("evictions"))
    yield _counter("gpuyard_ended_workloads", "Ended jobs by phase.", "phase", measures.get("ended"))
    waits = SummaryMetricFamily("gpuyard_admission_wait_time_seconds", "Submit to start.", labels=["queue"])
    for queue, wait in sorted((measures.get("waits") or {}).items()):
        waits.add_metric([queue], wait["count"], wait["seconds"])
    yield waits
    if cycles := measures.get("cycles"):
        yield SummaryMetricFamily(
            "gpuyard_cycle_duration_seconds", "Cycles.", count_value=cycles["count"], sum_value=cycles["seconds"]
        )


def _counter(name: str, words: str, label: str, counts: dict[str, float] | None) -> Metric:
    family = CounterMetricFamily(name, words, labels=[label])
    for key, count in sorted((counts or {}).items()):
        family.add_metric([key], count)
    return family


def _number(amount: Any) -> float | None:
    """A queue's amount in GPUs; per-model maps count their sum, "unlimited" counts as infinite."""
    if isinstance(amount, dict):
        amount = amount.get("gpu", 0)
    if amount == "unlimited":
        return float("inf")
    return float(amount) if isinstance(amount, int | float) else None
