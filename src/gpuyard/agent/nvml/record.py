"""A machine in one file: everything that NVML told of it at one moment. Written by `yard agent record`, and replayed.

A record says whether it was made on hardware or made up, and when. It holds UUIDs and bus addresses, because they are
what topology hangs on, but no serial number, host name or process.
"""

from __future__ import annotations

import pathlib
from typing import Literal

import msgspec
from msgspec import Struct

from gpuyard.agent.nvml.facts import NOT_SUPPORTED, MachineFacts, NotTold, Sample, changed
from gpuyard.model.errors import Refused


class NvmlRecord(Struct, frozen=True, kw_only=True):
    """The file."""

    apiVersion: Literal["gpuyard.dev/v1"] = "gpuyard.dev/v1"
    kind: Literal["NvmlRecord"] = "NvmlRecord"
    made: str
    """The day."""
    synthetic: bool
    """Made up by a script, and not told by any hardware."""
    about: str = ""
    machine: MachineFacts
    sample: Sample


def written(record: NvmlRecord) -> str:
    """As it stands in the file; whatever was not told stays so."""
    gpus = tuple(changed(gpu, processes=NotTold(NOT_SUPPORTED, "left out of records")) for gpu in record.sample.gpus)
    kept = changed(record, sample=changed(record.sample, gpus=gpus))
    return msgspec.json.format(msgspec.json.encode(kept), indent=1).decode() + "\n"


def read(path: pathlib.Path) -> NvmlRecord:
    """A record from its file; `Refused` in one sentence if it is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=NvmlRecord)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        told = f"{path} is no record of a machine: {error}"
        raise Refused(f"{told}; `yard agent record -o FILE` makes one where there are GPUs") from error
