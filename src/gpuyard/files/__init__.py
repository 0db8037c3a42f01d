"""How things are written down: reading with line numbers, JSON Schema, data tables.

Called by the command line, `server` and the worlds. It turns text into the model's values and back, and reports
every mistake with its place; it makes no decision about what the values mean.
"""

from gpuyard.files.format.schema import schema
from gpuyard.files.problems import Problem, Unreadable
from gpuyard.files.reading.fleet_files import FaultEntry, parse_fleet, read_fleet
from gpuyard.files.reading.jobs import parse_job, read_job
from gpuyard.files.reading.snapshots import parse_snapshot, read_snapshot
from gpuyard.files.reading.submissions import Submission, load_submission, parse_submissions, read_submission
from gpuyard.files.writing import snapshot_document

__all__ = [
    "FaultEntry", "Problem", "Submission", "Unreadable", "load_submission", "parse_fleet", "parse_job",
    "parse_snapshot", "parse_submissions", "read_fleet", "read_job", "read_snapshot", "read_submission", "schema",
    "snapshot_document",
]  # fmt: skip
