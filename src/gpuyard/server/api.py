"""The API: every method of a `Service` under /api/v1, probes and metrics beside it, the live page at /.

Built by `hosting` for `yard up` and by tests with a service made by hand. It translates; it decides nothing. Handlers
that ask the service are plain functions, which run in threads: a slow answer holds nobody up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from gpuyard import __version__
from gpuyard.model.errors import Denied, GpuYardError, NotFound
from gpuyard.model.outside import text
from gpuyard.runtime.service import Caller, Document, Service
from gpuyard.server import answers, probes, streaming
from gpuyard.server.answers import encoded
from gpuyard.server.asking import Asking, Following, Thinking
from gpuyard.server.context import HandlerContext

VERBS = ("cancel", "hold", "requeuehold", "release", "requeue", "vouch")
WAIT_MAX_S = 30.0
FAR = 1 << 53
"""No number of an event, byte or second is larger; larger ones are somebody's mistake."""
LOOK_S = 0.1
"""How often output is looked for while a follower waits; a tenth of a second feels immediate."""


def _gated(wrong: Callable[[str], str]) -> AfterValidator:
    """A word of a body passes the gate for all text that enters."""

    def check(word: str) -> str:
        if told := wrong(word):
            raise ValueError(told)
        return word

    return AfterValidator(check)


Line = Annotated[str, _gated(text.wrong_line)]
Prose = Annotated[str, _gated(text.wrong_prose)]
PathLine = Annotated[str, _gated(text.wrong_path)]


class Jobs(BaseModel):
    """Jobs, each as a job file has it."""

    jobs: list[dict[str, Any]] = Field(min_length=1)


class Submit(Jobs):
    """Jobs to accept, all or none. The same `key` again gives the same answer and starts nothing twice."""

    key: Line = Field("", max_length=200)
    queue_anyway: bool = False


class DrainRequest(BaseModel):
    """What is drained of a node, all of it or one GPU, and why; `force` takes also those who have a right to stay."""

    gpu: int | None = Field(None, ge=0)
    reason: Prose = ""
    force: bool = False


class BackUp(BaseModel):
    """Where to write the copy: a file that does not exist yet, on the yard's machine."""

    path: PathLine


class ShutDown(BaseModel):
    """How to stop: leave the jobs running, or end them too."""

    jobs: bool = False


def build(context: HandlerContext) -> FastAPI:
    """The application. Whoever serves it puts a `Gate` in front."""
    app = FastAPI(title="GPUYard", version=__version__, docs_url=None, redoc_url=None, openapi_url="/openapi.json")
    app.state.context = context
    for router in (jobs_router, fleet_router, yard_router):
        app.include_router(router, prefix="/api/v1")
    app.include_router(probes.router)
    app.add_exception_handler(GpuYardError, answers.refused)
    app.add_exception_handler(RequestValidationError, answers.misspelt)
    app.add_exception_handler(HTTPException, answers.unknown_path)
    app.add_exception_handler(Exception, answers.refused)
    return app


def _service(request: Request) -> Service:
    context: HandlerContext = request.app.state.context
    return context.service


Served = Annotated[Service, Depends(_service)]
NotNegative = Annotated[int, Query(ge=0)]

jobs_router = APIRouter(tags=["jobs"])
fleet_router = APIRouter(tags=["fleet"])
yard_router = APIRouter(tags=["yard"])


# --- jobs ----------------------------------------------------------------------------------------


@jobs_router.post("/jobs", status_code=201)
def submit(service: Served, caller: Thinking, wish: Submit) -> Response:
    """Accept jobs, all or none, durably."""
    return encoded(service.submit(caller, wish.jobs, wish.key, wish.queue_anyway), 201)


@jobs_router.post("/previews")
def preview(service: Served, caller: Thinking, wish: Jobs) -> Response:
    """What would happen to these jobs: starts, waits or never, with the price and the quota after."""
    return encoded(service.preview(caller, wish.jobs))


@jobs_router.get("/jobs")
def jobs(service: Served, caller: Asking, fields: str = "", all_ended: bool = Query(False, alias="all")) -> Response:
    """The active jobs and the newest that ended; `fields` names the keys that are wanted, with commas."""
    return encoded(service.jobs(caller, all_ended, [field for field in fields.split(",") if field]))


@jobs_router.get("/jobs/{name:path}/why")
def why(service: Served, caller: Thinking, name: str) -> Response:
    """Why it does not run, what would help, and when it may."""
    return encoded(service.why(caller, name))


@jobs_router.get("/jobs/{name:path}/logs")
async def logs(
    service: Served,
    caller: Following,
    name: str,
    task: int = 0,
    offset: int = Query(0, ge=0, le=FAR),
    wait: float = Query(0, ge=0, allow_inf_nan=False),
) -> Response:
    """Output from `offset` on as it is; X-Next-Offset and X-More say how to go on. `wait` seconds for some to come."""
    left = min(wait, WAIT_MAX_S)
    while True:
        output, following, more = await run_in_threadpool(service.logs, caller, name, task, offset)
        if output or not more or left <= 0:
            headers = {"X-Next-Offset": str(following), "X-More": "true" if more else "false"}
            return Response(output, media_type="application/octet-stream", headers=headers)
        await anyio.sleep(LOOK_S)
        left -= LOOK_S


@jobs_router.get("/jobs/{name:path}/attach")
def attach(service: Served, caller: Asking, name: str, task: int = 0) -> Response:
    """Where the terminal of a task is: the path of a Unix socket on the yard's machine."""
    return encoded({"socket": service.attach(caller, name, task)})


@jobs_router.post("/jobs/{name:path}/{verb}")
def act(service: Served, caller: Asking, name: str, verb: str) -> Response:
    """`cancel`, `hold`, `release` or `requeue` a job; an administrator may `vouch` that nothing of it is left."""
    if verb not in VERBS:
        raise NotFound(f"A job cannot be told to '{verb}'; it can: {', '.join(VERBS)}.")
    return encoded(service.act(caller, name, verb))


@jobs_router.get("/jobs/{name:path}")
def job(service: Served, caller: Asking, name: str) -> Response:
    """One job with its attempts, placements, exit codes and history."""
    return encoded(service.job(caller, name))


# --- the fleet -----------------------------------------------------------------------------------


@fleet_router.get("/nodes")
def nodes(service: Served, caller: Asking) -> Response:
    """The nodes with their GPUs, health and who holds them."""
    return encoded(service.nodes(caller))


@fleet_router.post("/nodes/{name:path}/drain")
def drain(service: Served, caller: Asking, name: str, wish: DrainRequest, dry_run: bool = False) -> Response:
    """Close a node or GPU and empty it gently; a dry run tells who would move, stop and stay."""
    return encoded(service.drain(caller, {"node": name} | wish.model_dump(), dry_run))


@fleet_router.post("/nodes/{name:path}/undrain")
def undrain(service: Served, caller: Asking, name: str, wish: DrainRequest) -> Response:
    """Open a node or GPU again."""
    return encoded(service.undrain(caller, {"node": name, "gpu": wish.gpu}))


@fleet_router.get("/alerts")
def alerts(service: Served, caller: Asking) -> Response:
    """What an operator should hear of without asking, the worst first."""
    return encoded(service.alerts(caller))


@fleet_router.get("/overview")
def overview(service: Served, caller: Thinking) -> Response:
    """History of use, expected starts and fragmentation: what the live page shows beside the listings."""
    return encoded(service.overview(caller))


@fleet_router.get("/queues")
def queues(service: Served, _: Asking) -> Response:
    """The queues with quota, limit, use, fair share and how many wait."""
    return encoded(service.queues())


@fleet_router.put("/queues/{name:path}")
def set_queue(service: Served, caller: Asking, name: str, document: Document, dry_run: bool = False) -> Response:
    """Create or change a queue; a dry run tells what that would do."""
    return encoded(service.set_queue(caller, document | {"name": name}, dry_run))


@fleet_router.delete("/queues/{name:path}")
def delete_queue(service: Served, caller: Asking, name: str, dry_run: bool = False) -> Response:
    """Delete a queue in which no job stands; a dry run tells what that would do."""
    return encoded(service.delete_queue(caller, name, dry_run))


@fleet_router.get("/snapshot")
def snapshot(service: Served, caller: Thinking) -> Response:
    """The whole moment as a snapshot file; of others' jobs only the yard's owner sees more than their shape."""
    return encoded(service.snapshot(caller))


@fleet_router.get("/report")
def report(
    service: Served, caller: Asking, by: str = "user", since: float = Query(0.0, ge=0, le=FAR, allow_inf_nan=False)
) -> Response:
    """GPU-seconds and money by user or queue, since a moment."""
    return encoded(service.report(caller, by, since))


# --- the yard ------------------------------------------------------------------------------------


@yard_router.get("/status")
def status(request: Request, caller: Asking) -> Response:
    """Up since when, pid, version, addresses, state folder, fleet in short."""
    context: HandlerContext = request.app.state.context
    return encoded(context.status(caller))


@yard_router.get("/events")
async def events(
    request: Request,
    caller: Following,
    after: int = Query(0, ge=-FAR, le=FAR),
    limit: int = Query(1000, ge=1, le=10_000),
    wait: float = Query(0.0, allow_inf_nan=False),
) -> Response:
    """What happened after that event; with `wait` the answer comes when something has, or after so many seconds."""
    context: HandlerContext = request.app.state.context
    found = await run_in_threadpool(context.service.events, caller, after, limit)
    if not found and wait > 0 and after >= 0:
        with anyio.move_on_after(min(wait, WAIT_MAX_S)):
            await context.pump.wait(after)
        found = await run_in_threadpool(context.service.events, caller, after, limit)
    return encoded(found)


@yard_router.get("/events/stream", response_class=StreamingResponse)
async def stream(request: Request, caller: Following, after: int = Query(-1, ge=-FAR, le=FAR)) -> StreamingResponse:
    """What happens, as server-sent events; Last-Event-ID takes up where it broke."""
    context: HandlerContext = request.app.state.context
    last = request.headers.get("last-event-id", "")
    begin = int(last) if last.isdecimal() and len(last) <= len(str(FAR)) else after
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    body = streaming.stream(context.service, context.pump, caller, begin)
    return StreamingResponse(body, media_type="text/event-stream", headers=headers)


@yard_router.post("/backup", status_code=201)
def backup(service: Served, caller: Asking, wish: BackUp) -> Response:
    """A consistent copy of the state in a new file."""
    return encoded(service.backup(caller, wish.path), 201)


@yard_router.post("/logins", status_code=201)
def login(request: Request, caller: Asking) -> Response:
    """An address of the live page that opens once."""
    context: HandlerContext = request.app.state.context
    _owner_only(caller, "open the live page")
    return encoded({"url": context.page_url()}, 201)


@yard_router.post("/shutdown", status_code=202)
def shut_down(request: Request, caller: Asking, wish: ShutDown) -> Response:
    """Stop the yard once this is answered."""
    context: HandlerContext = request.app.state.context
    _owner_only(caller, "stop the yard")
    context.stop(wish.jobs)
    return encoded({"stopping": True, "jobs": wish.jobs}, 202)


def _owner_only(caller: Caller, what: str) -> None:
    if not caller.admin:
        raise Denied(f"Only the yard's owner may {what}.")
