"""A recorded machine that answers as NVML would: in the child, where it can hang and crash like the real one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from gpuyard.agent.nvml import faults
from gpuyard.agent.nvml.facts import MachineFacts, Question, Readings, Sample, Trouble, Unseen, changed
from gpuyard.agent.nvml.faults import NvmlFault
from gpuyard.agent.nvml.record import NvmlRecord


class Replay:
    """The record, and what goes wrong with it by the time it is asked."""

    def __init__(self, record: NvmlRecord, wrongs: Sequence[NvmlFault] = ()) -> None:
        self._record = record
        self.faults = tuple(wrongs)
        self._facts = {gpu.uuid: gpu for gpu in record.machine.gpus}

    def machine(self, question: Question) -> MachineFacts | Trouble:
        """As recorded, less what is lost by now, in the order of now."""
        if trouble := self._misbehave(question):
            return trouble
        machine, lost = self._record.machine, self._lost(question)
        order = self._order(question)
        gpus = [changed(gpu, index=order[gpu.uuid]) for gpu in machine.gpus if gpu.uuid not in lost]
        pairs = tuple(pair for pair in machine.pairs if pair.one not in lost and pair.other not in lost)
        return changed(
            machine, gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)), pairs=pairs, unseen=self._unseen(question)
        )

    def sample(self, question: Question) -> Sample | Trouble:
        """The recorded readings, as faults that stand by now change them."""
        if trouble := self._misbehave(question):
            return trouble
        order, lost = self._order(question), self._lost(question)
        gpus = [self._readings(each, question, order) for each in self._record.sample.gpus if each.uuid not in lost]
        return Sample(tuple(sorted(gpus, key=lambda gpu: gpu.index)), self._unseen(question))

    def _readings(self, readings: Readings, question: Question, order: dict[str, int]) -> Readings:
        gpu = self._facts[readings.uuid]
        for fault in self.faults:
            if fault.stands(question.at) and fault.hits(gpu):
                readings = faults.shown(readings, gpu, fault)
        xids = tuple(
            fault.value or 79
            for fault in self.faults
            if fault.fault == "xid" and fault.hits(gpu) and question.since < fault.at <= question.at
        )
        return changed(readings, index=order[readings.uuid], xids=xids)

    def _misbehave(self, question: Question) -> Trouble | None:
        """Hang, crash or be gone, if that is what stands."""
        standing = {fault.fault for fault in self.faults if fault.stands(question.at)}
        if "hang" in standing:
            while True:
                time.sleep(3600)
        if "crash" in standing:
            os.kill(os.getpid(), signal.SIGKILL)
        return Trouble("no driver") if "no-driver" in standing else None

    def _lost(self, question: Question) -> set[str]:
        gone = [fault for fault in self.faults if fault.fault == "lost" and fault.stands(question.at)]
        return {gpu.uuid for gpu in self._facts.values() if any(fault.hits(gpu) for fault in gone)}

    def _unseen(self, question: Question) -> tuple[Unseen, ...]:
        order = self._order(question)
        return tuple(Unseen(order[uuid], "GPU is lost", lost=True) for uuid in sorted(self._lost(question)))

    def _order(self, question: Question) -> dict[str, int]:
        """Which index each GPU has; renumbered, they stand the other way round."""
        uuids = [gpu.uuid for gpu in self._record.machine.gpus]
        if any(fault.fault == "renumber" and fault.stands(question.at) for fault in self.faults):
            uuids = uuids[::-1]
        return {uuid: index for index, uuid in enumerate(uuids)}
