"""Endpoints for pushes: get, set, remove, pause, resume, test."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from babelgate.http.dependencies import NO_PARAMETERS, CallerOf, QueueName
from babelgate.http.problems import MethodNotAllowed
from babelgate.http.push_views import PushChangeView, PushRemovedView, PushRequest, PushTestResultView, PushView
from babelgate.push.pushes import Pushes


def _pushes(request: Request) -> Pushes:
    pushes: Pushes = request.app.state.pushes
    return pushes


PushesOf = Annotated[Pushes, Depends(_pushes)]


@cache
def routes() -> APIRouter:
    """The routes of every application in this process. ``app.state`` of a call has its ``pushes``."""
    router = APIRouter(prefix="/queues/{queue}", dependencies=NO_PARAMETERS)

    @router.get("/push")
    async def get_push(pushes: PushesOf, caller: CallerOf, queue: QueueName) -> PushView:
        return PushView.of(pushes.info(caller, queue))

    @router.put("/push")
    async def put_push(pushes: PushesOf, caller: CallerOf, queue: QueueName, parameters: PushRequest) -> PushChangeView:
        return PushChangeView.of(await pushes.put(caller, queue, parameters.target))

    @router.delete("/push")
    async def delete_push(pushes: PushesOf, caller: CallerOf, queue: QueueName) -> PushRemovedView:
        heard = await pushes.delete(caller, queue)
        return PushRemovedView(queue=queue, told=heard.told, silent=list(heard.silent))

    @router.post("/push:pause")
    async def pause_push(pushes: PushesOf, caller: CallerOf, queue: QueueName) -> PushChangeView:
        return PushChangeView.of(await pushes.set_paused(caller, queue, True))

    @router.post("/push:resume")
    async def resume_push(pushes: PushesOf, caller: CallerOf, queue: QueueName) -> PushChangeView:
        return PushChangeView.of(await pushes.set_paused(caller, queue, False))

    @router.post("/push:test")
    async def try_push(pushes: PushesOf, caller: CallerOf, queue: QueueName) -> PushTestResultView:
        return PushTestResultView.model_validate(await pushes.test(caller, queue), from_attributes=True)

    @router.api_route("/push", methods=["POST", "PATCH", "OPTIONS"], include_in_schema=False)
    async def refuse_method(queue: str) -> None:
        """Name all methods of the path; the framework would name only the first."""
        raise MethodNotAllowed(allow="GET, HEAD, PUT, DELETE")

    return router
