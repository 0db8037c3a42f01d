"""NVML asked through its door and through the child that can be killed; a library made by hand stands in for it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.agent.nvml import faults, library, record
from gpuyard.agent.nvml.caller import NvmlCaller, NvmlSource
from gpuyard.agent.nvml.facts import MachineFacts, NotTold, Sample, Trouble
from gpuyard.agent.nvml.library import Library, Unopened
from gpuyard.model.errors import Refused
from tests.support import records

PATIENT_S = 60.0


class NvmlMistake(Exception):
    def __init__(self, value: int = 999) -> None:
        super().__init__(f"code {value}")
        self.value = value


class FakeNvml:
    """Two GPUs; what it has no function for, these bindings do not have."""

    NVMLError = NvmlMistake

    def __init__(self, **wrong: int) -> None:
        self.wrong = wrong
        """Functions that fail, and with which code."""

    def __getattribute__(self, name: str) -> Any:
        wrong = object.__getattribute__(self, "wrong") if name.startswith("nvml") else {}
        if name in wrong:

            def fail(*_: Any, **__: Any) -> Any:
                raise NvmlMistake(wrong[name])

            return fail
        return object.__getattribute__(self, name)

    def nvmlInit(self): ...
    def nvmlSystemGetDriverVersion(self):
        return b"580.95.05"

    def nvmlSystemGetCudaDriverVersion_v2(self):
        return 13000

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}".encode()

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA H200"

    def nvmlDeviceGetPciInfo(self, handle):
        return SimpleNamespace(busId=f"00000000:0{handle}:00.0".encode(), pciDeviceId=0x233510DE)

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=141 << 30, used=1 << 30, free=140 << 30)

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return 30

    def nvmlDeviceGetNvLinkState(self, handle, port):
        if port > 1:
            raise NvmlMistake(2)
        return port == 0

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle, port):
        return 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle, port):
        return self.nvmlDeviceGetPciInfo(1 - handle)

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        return 10

    def nvmlDeviceGetFieldValues(self, handle, ids):
        def value(field):
            number = field[0] if isinstance(field, tuple) else field
            code = 3 if number in (29, 30, 31) else 0
            return SimpleNamespace(nvmlReturn=code, valueType=3, value=SimpleNamespace(ullVal=number))

        return [value(field) for field in ids]


# --- the door ------------------------------------------------------------------------------------


def test_the_door_tells_what_the_library_tells():
    machine = Library(FakeNvml()).machine()
    first = machine.gpus[0]
    assert (machine.driver, machine.cuda) == ("580.95.05", "13.0")
    assert (first.uuid, first.name, first.bus, first.memory) == ("GPU-0", "NVIDIA H200", "00000000:00:00.0", 141 << 30)
    assert [(link.active, link.remote, link.bus) for link in first.links] == [
        (True, "gpu", "00000000:01:00.0"), (False, "gpu", "00000000:01:00.0"),
    ]  # fmt: skip
    assert [(pair.one, pair.other, pair.ancestor, pair.nvlinks) for pair in machine.pairs] == [
        ("GPU-0", "GPU-1", 10, 1)
    ]


def test_not_supported_is_apart_from_failed_and_from_every_number():
    readings = Library(FakeNvml(nvmlDeviceGetTemperature=999)).sample().gpus[0]
    assert readings.temperature_c == NotTold("failed", "code 999")
    assert readings.power_mw == NotTold("not supported")  # bindings without the function
    assert readings.retired_corrected == NotTold("not supported")  # a field with its own return code
    assert (readings.ecc_uncorrected, readings.memory_used, readings.links_up) == (4, 1 << 30, 1)


@pytest.mark.parametrize(("code", "used"), [(None, 5 << 30), (13, 6 << 30), (25, 6 << 30)])
def test_memory_that_the_driver_keeps_for_itself_is_not_used_where_it_is_told_apart(code: int | None, used: int):
    class Newer(FakeNvml):
        nvmlMemory_v2 = 2

        def nvmlDeviceGetMemoryInfo(self, handle, version=None):
            if version and code:
                raise NvmlMistake(code)
            return SimpleNamespace(total=141 << 30, used=(5 if version else 6) << 30, free=135 << 30)

    assert Library(Newer()).sample().gpus[0].memory_used == used


@pytest.mark.parametrize(("code", "fault"), [(15, "lost"), (16, "reset required"), (3, ""), (999, "")])
def test_a_gpu_that_is_lost_is_so_whichever_call_says_it(code: int, fault: str):
    assert Library(FakeNvml(nvmlDeviceGetTemperature=code)).sample().gpus[0].fault == fault


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName"])
def test_an_index_without_a_gpu_behind_it_is_told_and_costs_no_other(call: str):
    class OneGone(FakeNvml):
        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            if name != call:
                return found

            def of_the_first(index: int) -> Any:
                if index == 1:
                    raise NvmlMistake(15)
                return found(index)

            return of_the_first

    machine = Library(OneGone()).machine()
    assert [gpu.uuid for gpu in machine.gpus] == ["GPU-0"]
    assert [(unseen.index, unseen.lost) for unseen in machine.unseen] == [(1, True)]


@pytest.mark.parametrize(("code", "kind"), [(9, "no driver"), (12, "no library"), (18, "mismatch"), (999, "failed")])
def test_why_nvml_cannot_be_opened_is_told_apart(code: int, kind: str):
    with pytest.raises(Unopened) as unopened:
        Library(FakeNvml(nvmlInit=code))
    assert unopened.value.trouble.kind == kind


def test_every_name_that_is_asked_of_the_bindings_is_one_that_they_have():
    pynvml = pytest.importorskip("pynvml")
    folder = Path(library.__file__).parent
    asked = {
        name for file in ("library.py", "gpm.py")
        for name in re.findall(r"\b(?:n|nvml|_nvml)\.((?:nvml|c_nvml|NVML)\w+)", (folder / file).read_text())
    }  # fmt: skip
    assert len(asked) > 50
    assert [name for name in sorted(asked) if not hasattr(pynvml, name)] == []


def test_activity_is_the_mean_between_two_looks():
    pynvml = pytest.importorskip("pynvml")

    class WithGpm(FakeNvml):
        c_nvmlGpmMetricsGet_t = pynvml.c_nvmlGpmMetricsGet_t
        NVML_GPM_METRICS_GET_VERSION = 1
        freed = 0

        def nvmlGpmQueryDeviceSupport(self, handle):
            return SimpleNamespace(isSupportedDevice=handle == 0)

        def nvmlGpmSampleAlloc(self):
            return pynvml.c_nvmlGpmSample_t()

        def nvmlGpmSampleGet(self, handle, sample): ...

        def nvmlGpmSampleFree(self, sample):
            self.freed += 1

        def nvmlGpmMetricsGet(self, wanted):
            for metric in wanted.metrics[: wanted.numMetrics]:
                metric.value, metric.nvmlReturn = 10.0 * metric.metricId, 3 if metric.metricId == 3 else 0

    fake = WithGpm()
    asked = Library(fake)
    first = asked.sample().gpus[0]
    assert first.tensor_active == NotTold("unknown", "told from the second look on")
    with_it, without = asked.sample().gpus
    assert (with_it.tensor_active, with_it.sm_active, with_it.dram_active) == (0.5, 0.2, 1.0)
    assert isinstance(with_it.sm_occupancy, NotTold)
    assert without.tensor_active == NotTold("not supported")
    assert fake.freed == 1  # of two looks only the last one's sample is kept


# --- the child -----------------------------------------------------------------------------------


@pytest.fixture
def calling():
    callers = []

    def make(**source: Any) -> NvmlCaller:
        callers.append(NvmlCaller(NvmlSource(**{"deadline_s": PATIENT_S} | source), time.monotonic))
        return callers[-1]

    yield make
    for caller in callers:
        caller.close()


def test_here_the_real_library_answers_or_says_why_not(calling):
    answer = calling().machine()
    assert isinstance(answer, MachineFacts) or answer.kind in ("no library", "no driver"), answer


def test_a_record_answers_in_nvmls_place(calling):
    caller = calling(replay=records.path("synthetic-h100x8"))
    assert caller.machine() == records.machine("synthetic-h100x8").machine
    first = caller.pid
    assert isinstance(caller.sample(), Sample)
    assert caller.pid == first  # opening NVML is dear: one child for all questions


def _faults(folder: Path, text: str) -> Path:
    path = folder / "faults.yaml"
    path.write_text(text)
    return path


def test_a_child_that_hangs_is_killed_and_the_next_question_gets_another(calling, tmp_path: Path):
    wrongs = _faults(tmp_path, "[{fault: hang}]")
    caller = calling(replay=records.path("synthetic-h100x8"), faults=wrongs, deadline_s=0.5)
    assert caller.sample() == Trouble("hung", "no answer within 0.5 s")
    assert caller.pid == 0
    wrongs.write_text("[]")
    caller._source = NvmlSource(caller._source.replay, wrongs, PATIENT_S)
    assert isinstance(caller.sample(), Sample)


def test_a_child_that_crashes_is_told_and_replaced(calling, tmp_path: Path):
    wrongs = _faults(tmp_path, "[{fault: crash}]")
    caller = calling(replay=records.path("synthetic-h100x8"), faults=wrongs)
    assert [caller.sample().kind, caller.sample().kind] == ["died", "died"]
    wrongs.write_text("[]")
    assert isinstance(caller.sample(), Sample)


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("import sys; sys.stdout.buffer.write(b'\\0\\0\\0\\x02no'); sys.stdout.flush(); sys.stdin.read()", "nonsense"),
        (
            "import sys; sys.stdout.buffer.write(b'\\xff\\xff\\xff\\xff'); sys.stdout.flush(); sys.stdin.read()",
            "nonsense",
        ),
        ("import sys; sys.exit('it is Tuesday')", "died"),
    ],
)
def test_an_answer_that_is_none_is_trouble_and_no_exception(calling, program: str, kind: str):
    answer = calling(command=(sys.executable, "-c", program)).sample()
    assert isinstance(answer, Trouble)
    assert answer.kind == kind
    assert kind != "died" or "Tuesday" in str(answer)


@pytest.mark.parametrize(("kind", "starts"), [("mismatch", 2), ("failed", 2), ("no driver", 1), ("no library", 1)])
def test_after_trouble_with_its_library_another_child_is_asked_which_loads_the_new_one(calling, tmp_path, kind, starts):
    program = (
        "import os, sys; open(sys.argv[1], 'a').write('.'); answer = sys.argv[2].encode()\n"
        "while os.read(0, 1 << 16): os.write(1, len(answer).to_bytes(4, 'big') + answer)"
    )
    answer = f'{{"type": "trouble", "kind": "{kind}"}}'
    caller = calling(command=(sys.executable, "-c", program, str(tmp_path / "starts"), answer))
    assert [caller.sample(), caller.sample()] == [Trouble(kind)] * 2
    assert len((tmp_path / "starts").read_text()) == starts


def test_a_child_that_hangs_ends_with_whoever_started_it(tmp_path: Path):
    record, wrongs = records.path("synthetic-h100x8"), _faults(tmp_path, "[{fault: hang}]")
    program = (
        "import sys, time, threading, pathlib; from gpuyard.agent.nvml.caller import NvmlCaller, NvmlSource\n"
        "caller = NvmlCaller(NvmlSource(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])), time.monotonic)\n"
        "threading.Timer(0.0, caller.sample).start()\n"
        "while not caller.pid: time.sleep(0.01)\n"
        "print(caller.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(record), str(wrongs)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    while b"child" not in Path(f"/proc/{child}/cmdline").read_bytes():
        time.sleep(0.01)
    parent.kill()
    parent.wait(PATIENT_S)
    parent.stdout.close()
    end = time.monotonic() + PATIENT_S
    while _lives(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _lives(child)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


# --- files ---------------------------------------------------------------------------------------


def test_records_that_are_checked_in_say_what_they_are():
    found = {path.stem: record.read(path) for path in records.FOLDER.glob("*.json")}
    assert found
    assert all(each.synthetic == name.startswith("synthetic-") for name, each in found.items())


def test_a_record_is_the_same_after_it_was_written_and_read(tmp_path: Path):
    once = records.machine("synthetic-mixed")
    (tmp_path / "again.json").write_text(record.written(once))
    assert record.read(tmp_path / "again.json") == once


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"kind": "Snapshot"}', "\xff"])
def test_a_file_that_is_no_record_is_refused_in_a_sentence(tmp_path: Path, text: str):
    (tmp_path / "no.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(Refused, match=r"no\.json is no record of a machine.*yard agent record"):
        record.read(tmp_path / "no.json")


@pytest.mark.parametrize("text", ["{}", "[{fault: rain}]", "[{fault: xid, when: 3}]", "[{at: 3}]", "- ["])
def test_a_file_that_is_no_list_of_faults_is_refused_in_a_sentence(tmp_path: Path, text: str):
    with pytest.raises(Refused, match=r"faults\.yaml is no list of faults.*fault: xid"):
        faults.read(_faults(tmp_path, text))
