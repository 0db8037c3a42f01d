"""Opens a trace: plain or .gz, its format told or guessed from the header, and makes the arrivals of one seed.

Called by `runtime.simulation`. The formats: `openb` (Alibaba, tried once), `philly` (both tables), `muri`, `csv` (our
own: job, submitted, gpus, tasks, duration, queue, user, cpu, class), `journal` (what `--placements` writes).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuyard.model.errors import NotFound, Refused
from gpuyard.model.job import Job
from gpuyard.worlds.sim.traces import muri, openb, philly, tables
from gpuyard.worlds.sim.traces.table_lines import TableLine, parse
from gpuyard.worlds.sim.traces.trace import Trace, Window

FORMATS = ("openb", "philly", "muri", "csv", "journal")
OPENB_ARRIVALS = 1.3
"""The FGD experiment inflates arrivals to 130 % of the GPUs."""


@dataclass(frozen=True, slots=True)
class Source:
    """A trace file that was read, ready to be replayed with any seed."""

    name: str
    format: str
    rows: Sequence[TableLine]
    arrivals: float | None
    window: Window
    node_gpus: int = 8
    tasks: tuple[Job, ...] = ()

    def trace(self, seed: int, capacity: int) -> Trace:
        """The arrivals of one seed on a fleet of that many grains; only openb depends on either."""
        match self.format:
            case "openb":
                wanted = OPENB_ARRIVALS if self.arrivals is None else self.arrivals
                return openb.trace(self.name, self.tasks, seed, wanted, capacity)
            case "muri":
                return muri.trace(self.name, self.rows, self.node_gpus)
            case "philly":
                reader = philly.with_clusters if "timestamp" in self.rows[0] else philly.without_clusters
                return reader(self.name, self.rows, self.window, self.node_gpus)
            case "journal":
                return tables.journal(self.name, self.rows, self.window)
        return tables.own(self.name, self.rows, self.window)


def read(path: Path, form: str = "", arrivals: float | None = None, window: Window | None = None) -> Source:
    """Read a trace file; `form` empty: guess."""
    text = text_of(path)
    rows = parse(text, path.name)
    if not rows:
        raise Refused(f"{path} holds no jobs")
    form = form or guess(rows[0], str(path))
    jobs = openb.tasks(rows) if form == "openb" else ()
    return Source(path.name.removesuffix(".gz"), form, rows, arrivals, window or Window(), tasks=jobs)


def text_of(path: Path) -> str:
    """The text of a file, plain or gzipped."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise Refused(f"{path} is no text, so it holds neither a trace nor a fleet") from None
    except (OSError, EOFError, zlib.error) as wrong:
        raise Refused(f"{path} cannot be read: {getattr(wrong, 'strerror', None) or wrong}") from None


def guess(row: TableLine, name: str) -> str:
    """The format, by the names of the columns."""
    known: Iterator[tuple[str, set[str]]] = iter((
        ("openb", {"cpu_milli", "num_gpu", "gpu_milli"}),
        ("muri", {"num_gpu", "submit_time", "iterations", "iteration_time"}),
        ("philly", {"timestamp", "duration", "num_gpus"}),
        ("philly", {"arrival time (sec)", "size", "duration (sec)"}),
        ("journal", {"t", "event", "job"}),
        ("csv", {"submitted", "gpus"}),
    ))  # fmt: skip
    for form, columns in known:
        if columns <= row.columns:
            return form
    raise Refused(f"{name}: the header fits none of {', '.join(FORMATS)}; name one with --format")
