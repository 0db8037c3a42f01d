"""What the handlers share: the service, who is let in, where we listen, and the wish to stop.

Made by `hosting`; used by `api` and `probes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gpuyard.model.errors import Conflict
from gpuyard.runtime.service import Caller, Document, Service
from gpuyard.server.doors.access import Access
from gpuyard.server.streaming import Pump
from gpuyard.server.turns import CallerTurns

OK = "ok"
UNWELL = "not well; the yard's operators are told why"


FOR_OPERATORS = {"notices", "left_out"}
"""Of a yard's status: they name the operator's host, and jobs of others."""


@dataclass
class HandlerContext:
    """One yard's front context. `urls` are where TCP is listened on, `stop` asks whoever runs the yard to end it."""

    service: Service
    access: Access
    now: Callable[[], float]
    stop: Callable[[bool], None]
    socket: str = ""
    urls: list[str] = field(default_factory=list)
    pump: Pump = field(init=False)
    turns: CallerTurns = field(default_factory=CallerTurns)

    def __post_init__(self) -> None:
        self.pump = Pump(self.service)

    def status(self, caller: Caller) -> Document:
        """The service's status with our addresses; what ails it may name others' jobs, so operators are told that."""
        status = self.service.status()
        sockets = [f"unix:{self.socket}"] if self.socket else []
        checks = status.get("checks", {})
        if not caller.admin:
            checks = {name: told if told == OK else UNWELL for name, told in checks.items()}
            status = {key: value for key, value in status.items() if key not in FOR_OPERATORS}
        return status | {"addresses": sockets + self.urls, "checks": checks}

    def page_url(self) -> str:
        """An address of the live page that lets its first visitor in."""
        if not self.urls:
            raise Conflict("This yard listens on its socket only, so it has no live page; `yard up` has one.")
        # Behind the #: a browser never sends that part, so the code is in nobody's log.
        return f"{self.urls[0]}/#{self.access.new_code()}"
