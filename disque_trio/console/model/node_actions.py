"""What can be done with single nodes: their clients, logs and settings."""

from collections.abc import Sequence
from typing import Final

from disque_trio.console.model.action import Action, Form, Order, Where
from disque_trio.console.model.names import shown, to_bytes, unquoted
from disque_trio.console.model.roles import Role
from disque_trio.console.model.settings import is_secret


def _kill(form: Form) -> list[Order]:
    id = form.number("id", least=1)
    if not id:
        raise ValueError("the form names no client")
    return [Order(("CLIENT", "KILL", "ID", id), form.name("node"))]


def _killed(form: Form, replies: Sequence[object]) -> str:
    if any(isinstance(reply, int) and reply > 0 for reply in replies):
        return f"Client {form.get('id')} of {shown(form.name('node'))} is disconnected."
    return f"Client {form.get('id')} of {shown(form.name('node'))} was gone already."


def _set(form: Form) -> list[Order]:
    command = ("CONFIG", "SET", form.name("setting"), to_bytes(form.raw("value")))
    return [Order(command, form.get("node") or Where.EVERY)]


def _hidden(form: Form) -> Sequence[str]:
    name = form.get("setting")
    return ("value",) if not name or is_secret(unquoted(name)) else ()


def _rewrite(form: Form) -> list[Order]:
    return [Order(("CONFIG", "REWRITE"), form.get("node") or Where.EVERY)]


def _where(form: Form) -> str:
    return shown(form.get("node")) or "all nodes that answer"


NODE_ACTIONS: Final = (
    Action(
        "kill", "Disconnect…", Role.ADMIN, _kill, _killed,
        lambda form: f"Disconnect client {form.get('id')} ({shown(form.name('who'))}) of "
        f"{shown(form.name('node'))}? Jobs that were pushed to it are queued again.",
        danger=True,
    ),
    Action(
        "slowlog-reset", "Empty the slow log…", Role.ADMIN,
        lambda form: [Order(("SLOWLOG", "RESET"), Where.EVERY)],
        lambda form, _: "The slow log is empty.",
        lambda form: "Empty the slow log of all nodes that answer?", danger=True,
    ),
    Action(
        "latency-reset", "Forget the stalls…", Role.ADMIN,
        lambda form: [Order(("LATENCY", "RESET"), Where.EVERY)],
        lambda form, _: "The stalls are forgotten.",
        lambda form: "Forget the stalls of all nodes that answer?", danger=True,
    ),
    Action(
        "setting", "Set", Role.ADMIN, _set,
        lambda form, _: f"{shown(form.name('setting'))} is set, on {_where(form)}. It is lost with "
        "a restart unless it is written to the file.",
        hides=_hidden,
    ),
    Action(
        "rewrite", "Write to the files…", Role.ADMIN, _rewrite,
        lambda form, _: f"The settings are in the configuration file, on {_where(form)}.",
        lambda form: "Write the settings as they are to the configuration file, on "
        f"{_where(form)}?",
    ),
)  # fmt: skip
