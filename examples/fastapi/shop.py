"""A FastAPI program that lets a worker send its mails: the program of docs/web.md."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from disque_trio.client import BadIdError
from disque_trio.tasks import Disque

app = Disque()  # where DISQUE_URL says, or else at disque://127.0.0.1:7711


@app.task(queue="mail", retries=5)
def send_mail(to: str, subject: str) -> str:
    time.sleep(1)  # a mail server takes its time
    return f"sent {subject!r} to {to}"


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    async with app.connect():
        yield


web = FastAPI(lifespan=lifespan)


class Mail(BaseModel):
    to: str
    subject: str


@web.post("/mails", status_code=202)
async def add_mail(mail: Mail) -> dict[str, str]:
    added = await send_mail.add(mail.to, mail.subject)
    return {"id": added.id}


@web.get("/mails/{id:path}")
async def show_mail(id: str) -> dict[str, Any]:
    mail = app.handle(id)
    try:
        state = await mail.state()
    except BadIdError as error:
        raise HTTPException(404, "no such mail") from error
    return {"state": state, "result": await mail.result() if state == "done" else None}
