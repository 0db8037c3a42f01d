"""What the control plane offers to those who serve people: the API, and through it the client, the CLI and the page.

`server.api` calls it; the embedded yard implements it (`runtime.embedded`), a cluster's will too. Documents are plain
JSON-able dictionaries with the snapshot file's keys, plus `phase`, `reason` and what else is known.

A job that is submitted is a job file's content (`files.read_submission` checks it and tells what is wrong): the
snapshot's keys, `run` with `tty: true` for a terminal, and two that are no property of the job itself: `after`, a list
of `JOB`, `JOB:ok` or `JOB:any`, and `array`, such as `0-99%8`, which stands for a hundred jobs `NAME-0` to `NAME-99`,
eight of them at once, each with `GPUYARD_ARRAY_INDEX` in its environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: known by peer credential or token. An admin may do everything."""

    user: str
    uid: int = -1
    groups: tuple[str, ...] = ()
    admin: bool = False


EVERYBODY = Caller("the yard itself", admin=True)
"""For what the server asks on nobody's behalf: metrics, and whether there is news."""


class Service(Protocol):
    """What can be asked. Every method may be called from any thread.

    Each raises a `model.errors.Refused` with one clear sentence: `NotFound` for unknown names, `Never`, `Denied`,
    `Conflict` or `TooMuch` where they say why. Names belong to their owners: a name is looked for among the caller's
    own jobs, and an operator writes `owner/name` for those of others.
    """

    def status(self) -> Document:
        """Up since when, pid, version, state folder, fleet in short, real or virtual GPUs.

        Keys: `pid`, `version`, `since` (epoch), `state` (folder), `virtual` (bool), `nodes`, `gpus`, `gpus_held`,
        `gpus_free` (neither held nor sick nor closed), `gpus_stranded` (free, and of no use to a day's demand),
        `gpus_sick`, `waiting`, `running`, `alerts` {severity: count}, `notices` (how well they are passed on, if
        they are), `queues_overruled` (those of the fleet that are as they were set by command), `healthy` (bool; False
        fails /livez), `checks` ({name: sentence, "ok" if well}: store, loop, disk, processes, devices), `last_cycle`
        (epoch). The server adds `addresses`.
        """

    def submit(
        self, caller: Caller, jobs: Sequence[Document], key: str = "", queue_anyway: bool = False
    ) -> list[Document]:
        """Accept jobs (all or none), durably, before returning; `key` makes a repeated call harmless.

        Each answer has `name`, `phase` and `forecast` (see `preview`). A job that could never run is refused
        (`Never`, exit code 4) unless `queue_anyway`.
        """

    def preview(self, caller: Caller, jobs: Sequence[Document]) -> list[Document]:
        """What would happen: `verdict` (starts, waits, never), sentence, ETA range, quota after, price per hour."""

    def jobs(self, caller: Caller, all_ended: bool = False, fields: Sequence[str] = ()) -> list[Document]:
        """The active jobs and the newest hundred that ended; all that ended on request.

        With `fields` each has these keys only; `reason.code` stands for a reason without its words.

        Each as `yard jobs -o json` has it offline (`name`, `queue`, `user`, `class`, `priority`, `tasks`, `gpus`,
        `submitted`, `started`, `phase`, `held_gpus`, `asked_gpus`, `reason` {code, message}, `placements`), with
        `ended` and `exit_code` once it has ended, `attempts` (how many) and `after`. Times are RFC 3339.
        """

    def job(self, caller: Caller, name: str) -> Document:
        """One job with its `history` (attempts, their tasks and exit codes), its newest `events`, and the folder of
        its `output`."""

    def why(self, caller: Caller, name: str) -> Document:
        """Why it does not run: the sentence, the ladder, suggestions, ETA; or where it runs.

        As `yard why -o json` has it offline: `job`, `phase`, `reason` {code, message, ..., suggestions}, `ladder`,
        `in_the_way` [{job, must, gpus, queue, priority, preemptible, lost_seconds, budget}]; `eta` {earliest, latest}
        and `eta_seconds` where it can be told; its shape (`tasks`, `gpus` or `groups`); `placements` where it runs, and
        `starts` where the next plan lets it.
        """

    def act(self, caller: Caller, name: str, verb: str) -> Document:
        """`cancel`, `hold`, `requeuehold`, `release` or `requeue` a job; `vouch` (admins) that nothing is left of one.

        `running` counts those that are at work and stay so.
        """

    def logs(self, caller: Caller, name: str, task: int, offset: int) -> tuple[bytes, int, bool]:
        """Output from `offset` on: the bytes, the next offset, and whether more may come."""

    def attach(self, caller: Caller, name: str, task: int) -> str:
        """The path of the Unix socket of a task's terminal (`run.tty`); `Conflict` if it has none or does not run.

        Spoken there: the task's output comes as plain bytes until it ends; the caller sends frames of one byte for the
        kind (0 input, 1 window size as two big-endian u16: rows, columns), a big-endian u32 length, and the content.
        """

    def nodes(self, caller: Caller) -> list[Document]:
        """The nodes with their GPUs, health and who holds them.

        As `yard nodes -o json` has them offline (`name`, `pool`, `model`, `gpus`, `domains`, `free`, `used`, `jobs`,
        `phase`: ready, cordoned, draining, drained), `drain` {reason, by, since} while it is one of the last two, and
        `devices`: one for each GPU with `index`, `uuid`, `health`, `island`, `jobs` (who holds it), `used` (0 to 1),
        and `phase` where it is closed by itself; where there are sensors `measured` (seen, unknown, lost), `evidence`
        that speaks against it, and as far as it is known `utilization` (0 to 1), `memory_used` and `memory` (bytes),
        `temperature` (°C), `power` (W).
        """

    def drain(self, caller: Caller, place: Document, dry_run: bool = False) -> Document:
        """Close a node or one GPU of it (`node`, `gpu`), and empty it gently: `reason` says why to people.

        Jobs that may be disturbed move, or stop after their checkpoint signal and grace and wait again, within their
        budgets; others stay until they end, unless `force`. Answers `place`, `moves`, `stops` and `stays`, each a list
        of {job, gpus, ...}, `lost_gpu_seconds`, and a sentence.
        """

    def undrain(self, caller: Caller, place: Document) -> Document:
        """Open a node or GPU again."""

    def alerts(self, caller: Caller) -> list[Document]:
        """What an operator should hear of without asking, the worst first.

        Each with `key` (the same cause has the same), `kind`, `severity` (critical, warning, info), `since` (RFC 3339),
        `sentence`, `command` (what to type next), `count` (how many it concerns), `about` {queue, class, reason, ...}
        and `jobs`, some that it names. Where many share a yard only operators are told of others' jobs.
        """

    def overview(self, caller: Caller) -> Document:
        """What the live page shows beside the listings. Admins only.

        `history`: [moment, GPUs held, jobs running, jobs waiting], a sample a minute for a day, and now; `prospects`
        {job: {message, eta_seconds [earliest, latest]}} of those who wait longest; `fragmentation` {free_gpus,
        stranded_gpus, largest_gang {level: GPUs}}.
        """

    def queues(self) -> list[Document]:
        """The queues with quota, limit, use, fair share and how many wait."""

    def set_queue(self, caller: Caller, document: Document, dry_run: bool) -> Document:
        """Create or change a queue; a dry run tells who would move above share or lose GPUs."""

    def delete_queue(self, caller: Caller, name: str, dry_run: bool) -> Document:
        """Delete a queue in which no job stands and below which no other does; `Refused` says which do."""

    def snapshot(self, caller: Caller) -> Document:
        """The whole moment, as a snapshot file; of others' jobs only an operator sees more than their shape."""

    def report(self, caller: Caller, by: str, since: float) -> list[Mapping[str, Any]]:
        """GPU-seconds and money by user or queue.

        By user, in a shared yard everybody sees their own. `name`, `gpu_seconds` (held), `lost_gpu_seconds` (of those:
        work to be done again), `tasks`, `productive_gpu_seconds` and `idle_gpu_seconds` as far as sensors told how busy
        the GPUs were, and `money` where its pools have a price.
        """

    def events(self, caller: Caller, after: int, limit: int) -> list[Document]:
        """What happened, each with a growing `id`, from the one after `after` on.

        Keys: `id`, `at` (epoch), `kind` (submitted, started, evicted, moved, ended, cancelled, held, released,
        requeued, health, queue, ...), `job` or `node`, `message`. An `after` below 0 counts from the newest: -1 gives
        none.
        """

    def wait_events(self, after: int, timeout: float) -> bool:
        """Block until there is an event newer than `after`; False on time-out."""

    def measures(self) -> Document:
        """What /metrics tells beyond the listings; what is counted grows since the yard was made.

        `cycles` {count, seconds}, `accounts` {ledger account: GPU-seconds}, `waits` {queue: {count, seconds}},
        `evictions` {reason code: count}, `ended` {phase: count}, `stranding` {pool: {gpus, free, stranded,
        shapes {shape: [asked, fits, stranded]}}}, `gpu_metrics` [{name, words, kind, series [[labels, value]]}]. What
        is not known is left out.
        """

    def backup(self, caller: Caller, path: str) -> Document:
        """A consistent copy of the state in a new file; `path`, `bytes`. Admins only."""


class Yard(Service, Protocol):
    """A control plane that lives in this process: what `yard up` starts and stops."""

    def start(self) -> None:
        """Take the state folder, adopt what runs, begin to turn. `Refused` says who holds the folder."""

    def close(self, jobs: bool = False) -> None:
        """Stop turning and let go of the state folder; the jobs run on, unless they are to end too."""
