"""The web program of the shop: it takes orders, and leaves the work to the workers."""

from typing import Any

from books import Order, begin, outbox
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from shop import app, export, process, quote

from disque_trio.client import BadIdError
from disque_trio.tasks import TaskFailed

web = FastAPI()


class NewOrder(BaseModel):
    customer: str
    what: str


@web.post("/orders", status_code=202)
def add_order(new: NewOrder) -> dict[str, int]:
    """The order and its first job are written in one transaction: both, or neither."""
    with begin() as session:
        order = Order(customer=new.customer, what=new.what)
        session.add(order)
        session.flush()  # now it has a number
        outbox.add_task(session, process(order))
    return {"number": order.id}


@web.get("/orders/{number}")
def show_order(number: int) -> dict[str, Any]:
    with begin() as session:
        order = session.get(Order, number)
    if order is None:
        raise HTTPException(404, "no such order")
    return {"what": order.what, "state": order.state}


@web.get("/quotes/{what}")
async def show_quote(what: str) -> dict[str, int]:
    try:
        return {"price": await quote.add(what).result(timeout=5)}
    except TimeoutError:
        raise HTTPException(503, "ask again later", {"Retry-After": "5"}) from None


@web.post("/exports", status_code=202)
async def add_export() -> dict[str, str]:
    added = await export.add()
    return {"id": added.id}


@web.get("/exports/{id:path}")
async def show_export(id: str) -> dict[str, Any]:
    added = app.handle(id)
    try:
        return {"table": await added.result(timeout=0.1)}
    except TimeoutError:
        progress = await added.progress()
        return {"progress": progress.text if progress is not None else None}
    except TaskFailed as error:
        return {"failed": str(error)}
    except BadIdError as error:
        raise HTTPException(404, "no such export") from error


@web.delete("/exports/{id:path}", status_code=202)
async def cancel_export(id: str) -> None:
    await app.handle(id).cancel()
