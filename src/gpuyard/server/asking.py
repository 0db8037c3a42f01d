"""Who asks, and when it is their turn: what handlers declare as a parameter. Used by `api` and `probes`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Request

from gpuyard.runtime.service import Caller
from gpuyard.server.context import HandlerContext


def known_caller(request: Request) -> Caller:
    """Whom the gate has let in."""
    caller = request.scope["state"]["caller"]
    assert isinstance(caller, Caller), "the gate lets nobody through unknown"
    return caller


async def _asking(request: Request) -> AsyncIterator[Caller]:
    caller, context = known_caller(request), _desk(request)
    async with context.turns.take(caller.user):
        yield caller


async def _thinking(request: Request) -> AsyncIterator[Caller]:
    caller, context = known_caller(request), _desk(request)
    async with context.turns.take(caller.user, slow=True):
        yield caller


def _desk(request: Request) -> HandlerContext:
    context: HandlerContext = request.app.state.context
    return context


Asking = Annotated[Caller, Depends(_asking)]
"""Whoever asks, when it is their turn."""

Thinking = Annotated[Caller, Depends(_thinking)]
"""The same for what takes thought: one at a time for each caller."""

Following = Annotated[Caller, Depends(known_caller)]
"""The same for who waits most of the time, and takes no thread for that."""
