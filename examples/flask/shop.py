"""A Flask program that lets a worker send its mails: the program of docs/web.md."""

import time

from flask import Flask, request

from disque_trio.client import BadIdError
from disque_trio.tasks import Disque

web = Flask(__name__)
app = Disque()  # where DISQUE_URL says, or else at disque://127.0.0.1:7711


@app.task(queue="mail", retries=5)
def send_mail(to: str, subject: str) -> str:
    time.sleep(1)  # a mail server takes its time
    return f"sent {subject!r} to {to}"


@web.post("/mails")
def add_mail() -> tuple[dict[str, str], int]:
    mail = send_mail.add(request.form["to"], request.form["subject"])
    return {"id": mail.id}, 202


@web.get("/mails/<path:id>")
def show_mail(id: str) -> dict[str, str | None]:
    mail = app.handle(id)
    state = mail.get_state()
    return {"state": state, "result": mail.get() if state == "done" else None}


@web.errorhandler(BadIdError)
def no_such_mail(error: BadIdError) -> tuple[dict[str, str], int]:
    return {"error": "no such mail"}, 404
