"""How a fork of the supervisor becomes the task's command: its group, terminal, user and folder, then the program.

Used by `supervisor`, on the child's side of the fork. What cannot be done is said through a pipe that the command
itself never sees. Light on purpose: it is loaded with every supervisor.
"""

from __future__ import annotations

import os

from gpuyard.worlds.local.supervising.confine import CANNOT_RUN, CGroup, give_up_rights
from gpuyard.worlds.local.supervising.notes import Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

    from gpuyard.worlds.local.supervising.terminal import Terminal
else:
    import _signal as signal  # the same without its enums, which take as long as Python's own start


class ChildEnds:
    """The child's ends: where its output goes, where to say what is wrong, and the gate it waits at."""

    def __init__(self, output: int, failing: int, gate: int) -> None:
        self.output = output
        self.failing = failing
        self.gate = gate


def become(order: Order, doors: ChildEnds, group: CGroup, terminal: Terminal | None) -> None:
    """Turn into the command, or say what stands in the way; never returns. Nobody at the gate: end without a word."""
    doing = "enter its control group"
    try:
        _forget_signals()
        group.join()
        doing = f"use the working folder {order.text('workdir')}"
        _take_ends(doors.output, terminal)
        give_up_rights(order)
        os.umask(0o022)
        if order.text("workdir"):
            os.chdir(order.text("workdir"))
        doing = f"run {order.command[0]}"
        if os.read(doors.gate, 1):
            _execute(order)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        os.write(doors.failing, f"cannot {doing}: {told}".encode(errors="replace"))
    finally:
        os._exit(CANNOT_RUN)


def _forget_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in range(1, signal.NSIG):
        if signal.getsignal(number) not in (signal.SIG_DFL, None) and number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)


def _take_ends(output: int, terminal: Terminal | None) -> None:
    if terminal is not None:
        terminal.take(output)
        source = output
    else:
        os.setpgid(0, 0)
        source = os.open("/dev/null", os.O_RDONLY)
    for target, descriptor in enumerate((source, output, output)):
        os.dup2(descriptor, target)


def _execute(order: Order) -> None:
    """Not `execvpe`: that imports a module, which the submitter may have no right to read."""
    wrong: OSError = FileNotFoundError(2, "No such file or directory")
    for path in programs(order):
        try:
            os.execve(path, order.command, order.env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            wrong = error
    raise wrong


def programs(order: Order) -> list[str]:
    """Where the command may be: as it is written, or in the folders of the task's own PATH."""
    name = order.command[0]
    return [name] if "/" in name else [f"{folder}/{name}" for folder in order.env.get("PATH", "").split(":")]


def cannot_run(order: Order) -> str:
    """What is wrong with the order, as far as one can see without running it."""
    program, workdir = order.command[0], order.text("workdir")
    if workdir and not os.path.isdir(workdir):
        return f"the working folder {workdir} does not exist"
    if not program.startswith(".") and not any(map(os.path.exists, programs(order))):
        return f"there is no program {program}"
    return ""
