"""What Prometheus is told of a machine's GPUs, and who may ask."""

from __future__ import annotations

import http.client
import os
import socket
from pathlib import Path

import pytest

from gpuyard.agent.daemon import Daemon, DcgmExporter
from gpuyard.agent.exporting import serving
from gpuyard.agent.exporting.serving import MetricsDoor, MetricsServer
from gpuyard.agent.nvml.facts import Trouble
from gpuyard.agent.nvml.faults import NvmlFault
from gpuyard.model.errors import Refused
from tests.support import records

BOARD_12239 = (
    "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
)  # fmt: skip
LABELS = {
    "gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "hostname", "namespace", "pod",
    "container", "hpc_job",
}  # fmt: skip


class Told:
    """An exposition, read back."""

    def __init__(self, text: str) -> None:
        from prometheus_client.parser import text_string_to_metric_families

        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def of(self, name: str, **labels: str) -> list[float]:
        names = (name, f"{name}_total")  # the parser gives every counter its suffix
        return [s.value for s in self.samples if s.name in names and labels.items() <= s.labels.items()]

    def health(self, gpu: int) -> str:
        (state,) = (
            s.labels["health"]
            for s in self.samples
            if s.name == "gpuyard_gpu_health" and s.labels["gpu"] == str(gpu) and s.value
        )
        return state


class StillClock:
    """Stands where the record stands."""

    def __init__(self, asked: records.ReplayedNvml) -> None:
        self._asked = asked

    def now(self) -> float:
        return self._asked.at

    def monotonic(self) -> float:
        return self._asked.at

    async def sleep(self, seconds: float) -> None: ...


def agent(name: str, *faults: NvmlFault, **more) -> tuple[records.ReplayedNvml, Daemon, list[str]]:
    asked, watch = records.watched(name, *faults)
    said: list[str] = []
    return asked, Daemon(watch, StillClock(asked), said.append, "node-a", **{"dcgm": "always"} | more), said


def told(name: str, *faults: NvmlFault, at: float = 0.0, **more) -> Told:
    asked, daemon, _ = agent(name, *faults, **more)
    daemon.look()
    if at:
        asked.at = at
        daemon.look()
    return Told(daemon.exposition())


def test_the_series_of_the_dcgm_board_are_there_for_every_gpu_with_all_labels():
    found = told("synthetic-h100x8")
    for name in BOARD_12239:
        assert len(found.of(name)) == 8, name
    sample = next(s for s in found.samples if s.name == "DCGM_FI_DEV_FB_USED")
    assert set(sample.labels) == LABELS
    assert (sample.labels["device"], sample.labels["hostname"], sample.value) == ("nvidia0", "node-a", 600)


def test_a_replay_of_a_real_h200_has_every_series_that_the_machine_itself_had():
    real = Told((records.FOLDER / "h200-metrics.txt").read_text())
    replayed = told("h200")
    there = {sample.name for sample in real.samples if sample.name.startswith("DCGM_")}
    assert len(there) > 30
    assert there <= {sample.name for sample in replayed.samples}
    assert replayed.health(0) == real.health(0) == "healthy"
    for name in ("DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_PCIE_LINK_WIDTH"):
        assert replayed.of(name, pci_bus_id="00000000:00:06.0") == real.of(name, pci_bus_id="00000000:00:06.0")


def test_units_are_dcgms():
    found = told("synthetic-h100x8", NvmlFault("set", gpu=0, set={"power_mw": 123_456, "memory_used": 3 << 30}))
    assert found.of("DCGM_FI_DEV_POWER_USAGE", gpu="0") == [123.456]
    assert found.of("DCGM_FI_DEV_FB_USED", gpu="0") == [3072]


def test_what_a_card_does_not_have_has_no_series_and_no_zero():
    found = told("synthetic-mixed")
    assert len(found.of("DCGM_FI_DEV_GPU_UTIL")) == 8
    assert len(found.of("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")) == 2  # Hopper alone
    assert len(found.of("DCGM_FI_DEV_ROW_REMAP_FAILURE")) == 4  # Volta retires pages
    assert len(found.of("DCGM_FI_DEV_RETIRED_DBE")) == 4


@pytest.mark.parametrize("kind", ["hung", "died", "nonsense", "failed"])
def test_when_nvml_does_not_answer_no_old_value_is_told_and_nobody_is_healthy(kind):
    asked, daemon, said = agent("synthetic-h100x8")
    daemon.look()
    asked.trouble = Trouble(kind)
    daemon.look()
    found = Told(daemon.exposition())
    assert {found.health(gpu) for gpu in range(8)} == {"unknown"}
    assert not [s for s in found.samples if s.name.startswith("DCGM_FI_")]
    assert found.of("gpuyard_agent_nvml_up") == [0]
    assert found.of("gpuyard_agent_failed_looks_total") == [1]
    assert said == ["8 GPUs seen", str(Trouble(kind))]
    asked.trouble = None
    daemon.look()
    assert {Told(daemon.exposition()).health(gpu) for gpu in range(8)} == {"healthy"}


@pytest.mark.parametrize(
    ("fault", "health"),
    [
        (NvmlFault("lost", at=5, gpu=3), "sick"),
        (NvmlFault("xid", at=5, gpu=3, value=79), "sick"),
        (NvmlFault("xid", at=5, gpu=3, value=63), "suspect"),
        (NvmlFault("xid", at=5, gpu=3, value=13), "healthy"),  # a program's own mistake
        (NvmlFault("xid", at=5, gpu=3, value=999), "suspect"),  # a code nobody has heard of
        (NvmlFault("ecc", at=5, gpu=3), "sick"),
        (NvmlFault("thermal", at=5, gpu=3), "healthy"),  # for a moment only
        (NvmlFault("link-down", at=5, gpu=3), "suspect"),
        (NvmlFault("nonsense", at=5, gpu=3), "unknown"),
        (NvmlFault("set", at=5, gpu=3, set={"recovery_action": 4}), "sick"),
        (NvmlFault("set", at=5, gpu=3, set={"remap_pending": 1}), "suspect"),
        (NvmlFault("set", at=5, gpu=3, set={"remap_failure": 1}), "sick"),
        (NvmlFault("set", at=5, gpu=3, set={"clock_reasons": 4}), "healthy"),  # a power cap is no illness
    ],
)
def test_a_fault_shows_on_its_gpu_and_on_no_other(fault: NvmlFault, health: str):
    found = told("synthetic-h100x8", fault, at=6.0)
    assert [found.health(gpu) for gpu in range(8)] == ["healthy"] * 3 + [health] + ["healthy"] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "until", "health"),
    [
        (NvmlFault("thermal", gpu=3), 350.0, "healthy"),
        (NvmlFault("thermal", gpu=3), 360.0, "suspect"),
        (NvmlFault("clock-drop", gpu=3), 360.0, "suspect"),
        (NvmlFault("thermal", gpu=3, until=300), 400.0, "healthy"),
        (NvmlFault("set", gpu=3, set={"clock_reasons": 0x88}), 400.0, "healthy"),  # the rack's supply is to blame
    ],
)
def test_a_gpu_is_suspect_once_the_hardware_has_slowed_it_down_for_long(fault: NvmlFault, until: float, health: str):
    asked, daemon, _ = agent("synthetic-h100x8", fault)
    while asked.at <= until:
        daemon.look()
        found = Told(daemon.exposition())
        asked.at += 10.0
    assert [found.health(gpu) for gpu in (2, 3)] == ["healthy", health]


def test_renumbered_gpus_keep_their_uuid_and_get_their_new_number():
    load = NvmlFault("set", gpu=0, set={"utilization": 77})
    found = told("synthetic-h100x8", load, NvmlFault("renumber", at=5), at=6.0)
    first = records.machine("synthetic-h100x8").machine.gpus[0]
    (busy,) = (s for s in found.samples if s.name == "DCGM_FI_DEV_GPU_UTIL" and s.value == 77)
    assert (busy.labels["gpu"], busy.labels["UUID"], busy.labels["device"]) == ("7", first.uuid, "nvidia0")


def test_jobs_named_by_a_batch_systems_prolog_label_their_gpus_and_are_counted(tmp_path: Path):
    (tmp_path / "0").write_text("job-a\n")
    (tmp_path / records.machine("synthetic-h100x8").machine.gpus[1].uuid).write_text("job-a\njob-b\n")
    load = NvmlFault("set", gpu=0, set={"utilization": 80})
    found = told("synthetic-h100x8", load, at=10.0, mapping=tmp_path)
    assert found.of("DCGM_FI_DEV_GPU_UTIL", hpc_job="job-a") == [80, 0]
    assert found.of("DCGM_FI_DEV_GPU_UTIL", hpc_job="job-b") == [0]
    assert found.of("gpuyard_job_gpu_seconds_total", hpc_job="job-a") == [15]  # one GPU, and half of another
    assert found.of("gpuyard_job_gpu_utilization_ratio", hpc_job="job-a") == [pytest.approx(8 / 15)]


def test_a_name_with_odd_letters_breaks_no_line(tmp_path: Path):
    (tmp_path / "0").write_text('a"b\\c\n')
    found = told("synthetic-h100x8", mapping=tmp_path)
    assert found.of("DCGM_FI_DEV_GPU_UTIL", hpc_job='a"b\\c') == [0]


def test_where_dcgm_exporter_runs_its_series_are_not_told_twice(tmp_path: Path):
    other = DcgmExporter(tmp_path)
    assert not other.runs(0.0)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "comm").write_text("dcgm-exporter\n")
    found = told("synthetic-h100x8", dcgm="auto", other=DcgmExporter(tmp_path))
    assert not [s for s in found.samples if s.name.startswith("DCGM_FI_")]
    assert found.health(0) == "healthy"
    assert (other.runs(59.0), other.runs(60.0)) == (False, True)  # there may be many processes: once a minute


def test_the_host_may_carry_its_old_label_too():
    found = told("synthetic-h100x8", old_hostname_label=True)
    assert next(s for s in found.samples if s.name.startswith("DCGM_")).labels["Hostname"] == "node-a"


# --- who may ask ---------------------------------------------------------------------------------


@pytest.fixture
def server():
    made = MetricsServer(MetricsDoor(port=0), "secret", lambda: "up 1\n")
    yield made
    made.close()


def ask(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_metrics_are_for_bearers_of_the_token_alone(server: MetricsServer):
    assert ask(server.port, Authorization="Bearer secret") == (200, "up 1\n")
    for header in ({}, {"Authorization": "Bearer other"}, {"Authorization": "secret"}, {"Authorization": "Bearer "}):
        assert ask(server.port, **header)[0] == 401
    assert ask(server.port, "/", Authorization="Bearer secret")[0] == 404
    assert ask(server.port, "/other")[0] == 401


def test_who_sends_rubbish_or_nothing_keeps_nobody_else_waiting(server: MetricsServer):
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
    with socket.create_connection(("127.0.0.1", server.port)) as rude:
        rude.sendall(b"\x16\x03\x01 no http at all\r\n\r\n")
    assert ask(server.port, Authorization="Bearer secret")[0] == 200
    for each in silent:
        each.close()


def test_those_who_only_hold_the_door_do_not_keep_prometheus_out(server: MetricsServer):
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3 * serving.GUESTS_MAX)]
    assert ask(server.port, Authorization="Bearer secret")[0] == 200
    for each in silent:
        each.close()


def test_nothing_listens_beyond_this_machine_without_tls_nor_without_a_token():
    with pytest.raises(Refused, match="needs TLS"):
        MetricsServer(MetricsDoor("0.0.0.0", 0), "secret", str)
    with pytest.raises(Refused, match="token"):
        MetricsServer(MetricsDoor(port=0), "", str)


def test_a_busy_port_is_told_in_a_sentence(server: MetricsServer):
    with pytest.raises(Refused, match=r"Cannot listen on .*--port"):
        MetricsServer(MetricsDoor(port=server.port), "secret", str)


def test_the_token_is_made_once_for_its_owner_alone(tmp_path: Path):
    first = serving.token(tmp_path / "state")
    assert serving.token(tmp_path / "state") == first
    path = tmp_path / "state" / serving.TOKEN_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(Refused, match="can be read by others"):
        serving.token(tmp_path / "state")
    path.chmod(0o600)
    os.truncate(path, 0)
    with pytest.raises(Refused, match="empty"):
        serving.token(tmp_path / "state")
