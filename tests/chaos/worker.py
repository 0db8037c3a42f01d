"""A task that tells the truth about itself: what the storm believes is written here, and not by the yard.

Run by the yard as `python -I -S worker.py TRUTH MODE SECONDS`; standard library only. It locks every GPU that it was
given, with locks that go with its processes and those it leaves behind: who finds one taken has met a GPU that is held
twice. It appends a line when it begins and when its work is done, each in one write.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time

SLOTS = 2
"""A GPU is two halves: a task with a whole one locks both, one with a half takes either."""
SAID = "x" * 4096
STOPS = {signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT}


def main(truth: str, mode: str, seconds: float) -> int:
    probe = os.open(f"{truth}/probe", os.O_RDWR)
    fcntl.flock(probe, fcntl.LOCK_SH)  # the storm tries the locks too, and must not be taken for a holder
    free = all(take(truth, uuid, halves=mode == "half") for uuid in devices())
    os.close(probe)
    tell(truth, "start")
    if not free:
        return 3
    if mode == "orphan":
        leave_behind()
    if mode == "deaf":
        os.system("stty raw -echo 2>/dev/null")
    work(mode, seconds)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    tell(truth, "failed" if mode == "fail" else "done")
    if signal.sigpending() & STOPS:
        tell(truth, "told")  # to stop, before it had ended: nobody can know which came first
    os._exit(1 if mode == "fail" else 0)


def devices() -> list[str]:
    return [uuid for uuid in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if uuid]


def take(truth: str, uuid: str, halves: bool) -> bool:
    """Lock a GPU, or half of it, for as long as a process of ours lives."""
    if not (half_taken(truth, uuid) if halves else whole_taken(truth, uuid)):
        tell(truth, "conflict", f"{uuid}:{holder(truth, uuid)}")
        return False
    return True


def whole_taken(truth: str, uuid: str) -> bool:
    return min([lock(truth, f"{uuid}.{slot}") for slot in range(SLOTS)]) >= 0


def half_taken(truth: str, uuid: str) -> bool:
    """Never both, not for a moment: who has the other half may come in that moment."""
    return any(lock(truth, f"{uuid}.{slot}") >= 0 for slot in range(SLOTS))


def lock(truth: str, name: str) -> int:
    """A descriptor that those who come after us inherit; -1 if somebody has the lock."""
    descriptor = os.open(f"{truth}/locks/{name}", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    os.set_inheritable(descriptor, True)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{mark()} {os.getpid()} {time.monotonic():.3f}".encode(), 0)
    return descriptor


def holder(truth: str, uuid: str) -> str:
    said = []
    for slot in range(SLOTS):
        with open(f"{truth}/locks/{uuid}.{slot}", encoding="ascii") as file:
            said.append(file.read().replace(" ", "/"))
    return "+".join(said)


def mark() -> str:
    """Which job, attempt and process of it: the end of the mark that the yard gives."""
    return os.environ.get("GPUYARD_MARK", "").partition("-")[2]


def tell(truth: str, kind: str, more: str = "-") -> None:
    """One line in one write: whole, whoever else writes."""
    env = os.environ
    words = (
        kind, f"{time.monotonic():.3f}", env.get("GPUYARD_JOB", "?"), env.get("RANK", "0"), mark(), os.getpid(), more,
    )  # fmt: skip
    descriptor = os.open(f"{truth}/lines", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    os.close(descriptor)


def work(mode: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if mode == "chatter":
            print(SAID, flush=True)
        time.sleep(min(left, 0.1 if mode == "chatter" else left))


def leave_behind() -> None:
    """A process in a session of its own, without our environment, that keeps our GPUs."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.execve("/bin/sleep", ["sleep", "3600"], {})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
