"""The door: runs `yard`, and turns whatever comes out of it into an exit code and at most one sentence.

Called by the `yard`, `gpuyard` and `kubectl-yard` scripts. It knows no command; those are listed in `root`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from gpuyard.cli.console import terminal
from gpuyard.cli.root import yard
from gpuyard.model.errors import Broken, GpuYardError, Never, NotFound, Refused
from gpuyard.model.outside import text

COMPLETE = "_YARD_COMPLETE"
INTERRUPTED = 130
PIPE_CLOSED = 141
FAILED, USAGE, NOT_FOUND, NEVER = 1, 2, 3, 4
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""What a write says where there is no room, or where nobody has opened anything."""


def main() -> None:
    """Run the command line of this process and leave with its exit code."""
    if sys.stdout is None:  # closed by whoever began us: writing fails, as it does in other programs
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show ✓ still gets the rest of the line.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
    sys.exit(run(sys.argv[1:], _program_name(sys.argv[0])))


def run(args: Sequence[str], name: str = "yard") -> int:
    """Run one command; the exit code says how it went, and a mistake has been explained on stderr."""
    try:
        # Not click's own `main`: that one answers for a closed pipe itself, and not as we want it.
        code = _complete(name, os.environ[COMPLETE]) if COMPLETE in os.environ else _invoke(args, name)
        sys.stdout.flush()
    except BrokenPipeError:
        return _pipe_closed()
    except Exception as mistake:  # noqa: BLE001 -- nothing may reach the user as a traceback
        return _explain(mistake, debug="--debug" in args)
    except KeyboardInterrupt:
        terminal.say()
        return INTERRUPTED
    return code


def _invoke(args: Sequence[str], name: str) -> int:
    for number, word in enumerate(args, 1):
        if told := text.wrong_prose(word):
            raise Refused(f"Word {number} of the command line {told}.")
    try:
        with yard.make_context(name, list(args)) as context:
            return _ask(context, debug="--debug" in args)
    except click.exceptions.Exit as left:
        return left.exit_code


def _ask(context: click.Context, debug: bool) -> int:
    """A mistake is explained while it is known which yard was meant: its hints name the same one."""
    try:
        yard.invoke(context)
    except (click.exceptions.Exit, BrokenPipeError):
        raise
    except Exception as mistake:  # noqa: BLE001 -- nothing may reach the user as a traceback
        return _explain(mistake, debug)
    return 0


def _complete(name: str, instruction: str) -> int:
    """Answer the shell, whose completion script has set the variable."""
    from click.shell_completion import shell_complete

    return shell_complete(yard, {}, name, COMPLETE, instruction)


def _explain(mistake: Exception, debug: bool) -> int:
    if isinstance(mistake, click.Abort):
        return INTERRUPTED
    if isinstance(mistake, click.ClickException):
        return _explain_usage(mistake)
    if isinstance(mistake, Refused):
        terminal.say(f"error: {mistake}")
        return NOT_FOUND if isinstance(mistake, NotFound) else NEVER if isinstance(mistake, Never) else USAGE
    if isinstance(mistake, GpuYardError) and not isinstance(mistake, Broken):
        terminal.say(f"error: {mistake}")  # nobody's fault: no yard is running
        return FAILED
    if isinstance(mistake, OSError) and mistake.errno in UNWRITABLE and mistake.filename is None:
        return _unwritten(mistake)
    return _own_fault(mistake, debug)


def _explain_usage(mistake: click.ClickException) -> int:
    hint = ""
    context = getattr(mistake, "ctx", None)
    if isinstance(mistake, click.UsageError) and context is not None:
        hint = f" Try '{context.command_path} --help'."
    text = mistake.format_message()
    terminal.say(f"error: {text}{'' if text.endswith(('.', '?', '!')) else '.'}{hint}")
    return mistake.exit_code


def _own_fault(mistake: Exception, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exception(mistake)
    what = " ".join(f"{type(mistake).__name__}: {mistake}".split())
    more = "" if debug else " (--debug shows where)"
    terminal.say(f"error: this is a bug in yard, please report it with the snapshot: {what}{more}")
    return FAILED


def _pipe_closed() -> int:
    """Whoever read our output has seen enough. Leave quietly."""
    _drop_output()
    return PIPE_CLOSED


def _unwritten(mistake: OSError) -> int:
    """Nobody has our output; that is theirs to mend."""
    _drop_output()
    told = "what was asked for may be done all the same"
    terminal.say(f"error: the output cannot be written: {mistake.strerror}; {told}")
    return FAILED


def _drop_output() -> None:
    """Also what the interpreter flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _program_name(path: str) -> str:
    name = Path(path).name
    return {"kubectl-yard": "kubectl yard", "gpuyard": "gpuyard"}.get(name, "yard")
