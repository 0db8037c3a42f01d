"""How busy parts of a GPU are (tensor cores, SMs, memory), from NVML's GPM, which Hopper and later have.

Used by `library`. A figure is the mean between two looks, so the first look gives none.
"""

from __future__ import annotations

from typing import Any

from gpuyard.agent.nvml.facts import FAILED, NOT_SUPPORTED, UNKNOWN, NotTold, Ratio

METRICS = {"graphics_active": 1, "sm_active": 2, "sm_occupancy": 3, "tensor_active": 5, "dram_active": 10}
"""NVML_GPM_METRIC_* of nvml.h; percentages there, ratios here as DCGM has them."""


class Activity:
    """The last look at each GPU."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._last: dict[str, Any] = {}
        self._without: set[str] = set()

    def look(self, uuid: str, handle: Any) -> dict[str, Ratio]:
        """Each ratio since the last look, or why there is none."""
        if uuid in self._without:
            return dict.fromkeys(METRICS, NotTold(NOT_SUPPORTED))
        try:
            if not self._supports(handle):
                self._without.add(uuid)
                return dict.fromkeys(METRICS, NotTold(NOT_SUPPORTED))
            return self._since(uuid, handle)
        except AttributeError:  # bindings without GPM
            return dict.fromkeys(METRICS, NotTold(NOT_SUPPORTED))
        except self._nvml.NVMLError as error:
            return dict.fromkeys(METRICS, NotTold(FAILED, str(error)))

    def _supports(self, handle: Any) -> bool:
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        except self._nvml.NVMLError:
            return False

    def _since(self, uuid: str, handle: Any) -> dict[str, Ratio]:
        nvml = self._nvml
        fresh = nvml.nvmlGpmSampleAlloc()
        try:
            nvml.nvmlGpmSampleGet(handle, fresh)
        except nvml.NVMLError:
            nvml.nvmlGpmSampleFree(fresh)
            raise
        before, self._last[uuid] = self._last.get(uuid), fresh
        if before is None:
            return dict.fromkeys(METRICS, NotTold(UNKNOWN, "told from the second look on"))
        try:
            return self._between(before, fresh)
        finally:
            nvml.nvmlGpmSampleFree(before)

    def _between(self, before: Any, fresh: Any) -> dict[str, Ratio]:
        wanted = self._nvml.c_nvmlGpmMetricsGet_t()
        wanted.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        wanted.numMetrics = len(METRICS)
        wanted.sample1, wanted.sample2 = before, fresh
        for place, number in enumerate(METRICS.values()):
            wanted.metrics[place].metricId = number
        self._nvml.nvmlGpmMetricsGet(wanted)
        return {name: _ratio(wanted.metrics[place]) for place, name in enumerate(METRICS)}


def _ratio(metric: Any) -> Ratio:
    return NotTold(FAILED, f"code {metric.nvmlReturn}") if metric.nvmlReturn else round(float(metric.value) / 100, 4)
