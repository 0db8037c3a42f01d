"""The yard's API on a cluster: the moment as the caller may see it, for bearers of the cluster's own tokens.

Opened by `yard serve --listen`. One question is enough: whatever the command line asks of a cluster it works out from
a moment. Beyond this machine TLS is asked for, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuyard.files import snapshot_document
from gpuyard.model.errors import GpuYardError
from gpuyard.runtime.clustered.tenants import Stranger, TenantAnswers
from gpuyard.server import answers
from gpuyard.server.doors import descriptors, listening
from gpuyard.server.doors.access import BEARER
from gpuyard.server.doors.admitting import Door
from gpuyard.server.doors.listening import Listener, Tcp
from gpuyard.server.turns import CallerTurns

TOKEN_MAX = 64 << 10


class ClusterDoor:
    """Open from `start` to `stop`."""

    def __init__(self, tenants: TenantAnswers, where: Tcp) -> None:
        bound, self.port = listening.open_tcp(where)
        _, remote = descriptors.limits_of(descriptors.raise_limit())
        self.url = where.url(self.port)
        self._listener = Listener(build(tenants), [Door(bound, remote)], where)
        self.start: Callable[[], None] = self._listener.start
        self.stop: Callable[[], None] = self._listener.stop


def build(tenants: TenantAnswers) -> Starlette:
    """The application. What it tells takes a moment to work out, so one question of a caller is answered at a time.

    Who the caller is is asked in another line, by address: whoever shows tokens of nobody stands in their own way.
    """
    turns, strangers = CallerTurns(), CallerTurns()

    async def snapshot(request: Request) -> Response:
        header = request.headers.get("authorization", "")
        token = header.removeprefix(BEARER) if header.startswith(BEARER) else ""
        if not token or len(token) > TOKEN_MAX:
            return answers.mistake(401, "No token was shown.", "`yard --kube` shows that of your kubeconfig.")
        source = request.client.host if request.client is not None else ""
        tenants.admit(token, source)
        async with strangers.take(source):
            tenant = await run_in_threadpool(tenants.tenant, token)
        async with turns.take(tenant.user, slow=True):
            moment = await run_in_threadpool(tenants.snapshot, tenant)
            return await run_in_threadpool(lambda: answers.encoded(snapshot_document(moment)))

    async def unknown(request: Request, error: Exception) -> Response:
        return answers.mistake(401, str(error))

    async def broken(request: Request, error: Exception) -> Response:
        """Its words may name what the caller may not know of; whoever runs the scheduler finds them in its log."""
        return answers.mistake(500, f"{type(error).__name__} while the moment was worked out.", answers.BUG)

    app = Starlette(routes=[Route("/api/v1/snapshot", snapshot, methods=["GET"])])
    app.add_exception_handler(Stranger, unknown)
    app.add_exception_handler(GpuYardError, answers.refused)
    app.add_exception_handler(Exception, broken)
    return app
