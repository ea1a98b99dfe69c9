"""Actions on the clients, logs and settings of nodes."""

from collections.abc import Sequence
from typing import Final

from disque_console.model.action import Action, Form, Order, Where
from disque_console.model.roles import Role
from disque_console.model.settings import is_secret
from disque_trio.overview.names import shown, to_bytes, unquoted


def _kill(form: Form) -> list[Order]:
    id = form.number("id", least=1)
    if not id:
        raise ValueError("the form names no client")
    return [Order(("CLIENT", "KILL", "ID", id), form.name("node"))]


def _killed(form: Form, replies: Sequence[object]) -> str:
    if any(isinstance(reply, int) and reply > 0 for reply in replies):
        return f"Client {form.get('id')} of {shown(form.name('node'))} has been disconnected."
    return f"Client {form.get('id')} of {shown(form.name('node'))} was already gone."


def _set(form: Form) -> list[Order]:
    command = ("CONFIG", "SET", form.name("setting"), to_bytes(form.raw("value")))
    return [Order(command, form.get("node") or Where.EVERY)]


def _hidden(form: Form) -> Sequence[str]:
    name = form.get("setting")
    return ("value",) if not name or is_secret(unquoted(name)) else ()


def _rewrite(form: Form) -> list[Order]:
    return [Order(("CONFIG", "REWRITE"), form.get("node") or Where.EVERY)]


def _where(form: Form) -> str:
    return shown(form.get("node")) or "all responding nodes"


NODE_ACTIONS: Final = (
    Action(
        "kill", "Disconnect…", Role.ADMIN, _kill, _killed,
        lambda form: f"Disconnect client {form.get('id')} ({shown(form.name('who'))}) of "
        f"{shown(form.name('node'))}? Jobs pushed to it will be requeued.",
        danger=True,
    ),
    Action(
        "slowlog-reset", "Clear the slow log…", Role.ADMIN,
        lambda form: [Order(("SLOWLOG", "RESET"), Where.EVERY)],
        lambda form, _: "The slow log has been cleared.",
        lambda form: "Clear the slow log on all responding nodes?", danger=True,
    ),
    Action(
        "latency-reset", "Clear the list of stalls…", Role.ADMIN,
        lambda form: [Order(("LATENCY", "RESET"), Where.EVERY)],
        lambda form, _: "The list of stalls has been cleared.",
        lambda form: "Clear the list of stalls on all responding nodes?", danger=True,
    ),
    Action(
        "setting", "Set", Role.ADMIN, _set,
        lambda form, _: f"{shown(form.name('setting'))} is set on {_where(form)}. The change is "
        "lost at a restart unless you write it to the configuration file.",
        hides=_hidden,
    ),
    Action(
        "rewrite", "Write to the configuration files…", Role.ADMIN, _rewrite,
        lambda form, _: "The settings have been written to the configuration "
        f"file on {_where(form)}.",
        lambda form: "Write the current settings to the configuration file on "
        f"{_where(form)}?",
    ),
)  # fmt: skip
