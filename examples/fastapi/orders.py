"""The client in a FastAPI program, without tasks: the second program of docs/web.md."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request

from disque_trio.client import (
    BadIdError,
    Client,
    ConnectionLost,
    MaxLenError,
    OOMError,
    connect,
)

NODES = os.environ.get("DISQUE_NODES", "127.0.0.1:7711").split(",")


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[dict[str, Client]]:
    async with connect(NODES, retry_for=5) as client:
        yield {"disque": client}


web = FastAPI(lifespan=lifespan)


def disque(request: Request) -> Client:
    client: Client = request.state.disque
    return client


Disque = Annotated[Client, Depends(disque)]


@web.post("/orders", status_code=202)
async def add_order(order: dict[str, Any], request: Request, client: Disque) -> dict[str, str]:
    try:
        # A client that got no answer may post the same again: it is added once.
        id = await client.add("orders", await request.body(), unique=str(order["number"]))
    except (ConnectionLost, OOMError, MaxLenError) as error:
        raise HTTPException(503, "try again later", {"Retry-After": "5"}) from error
    return {"id": id}


@web.get("/orders/{id:path}")
async def show_order(id: str, client: Disque, wait: float = 0.1) -> dict[str, str | None]:
    try:
        [outcome] = await client.wait(id, timeout=wait)
    except BadIdError as error:
        raise HTTPException(404, "no such order") from error
    result = outcome.result.decode() if outcome.result else None
    return {"state": outcome.state, "result": result}
