"""Lists the commands that every RESP server has."""

from typing import Final

from disque_trio.respserver.command import Command
from disque_trio.respserver.commands import connection, diagnostics, server
from disque_trio.respserver.commands.acl import acl
from disque_trio.respserver.commands.client import client_command
from disque_trio.respserver.commands.command import command
from disque_trio.respserver.machine import Machine

_ACL: Final = (
    "SETUSER username [rule ...] | GETUSER username | DELUSER username [username ...] | LIST "
    "| USERS | WHOAMI | CAT [category] | LOG [count] | LOG RESET | GENPASS [bits] "
    "| DRYRUN username command [argument ...] | CHECK origin username password | LOAD | SAVE | HELP"
)
_CLIENT: Final = (
    "LIST [TYPE type] | LIST ID client-id [client-id ...] | LIST USER username | INFO | ID "
    "| GETNAME | SETNAME name | SETINFO lib-name|lib-ver text | KILL address "
    "| KILL [ID client-id] [TYPE type] [ADDR address] [USER username] [SKIPME yes|no] "
    "| PAUSE ms [WRITE|ALL] | UNPAUSE | UNBLOCK client-id [TIMEOUT|ERROR] | REPLY ON|OFF|SKIP "
    "| NO-EVICT on|off | NO-TOUCH on|off"
)


def common_commands() -> list[Command[Machine]]:
    """Return new entries for a command table."""
    return [
        Command("auth", -2, "readonly loading skip_monitor fast", connection.auth,
                "[username] password", "Log in.", "connection",
                unauthenticated=True),
        Command("ping", -1, "readonly fast", connection.ping, "[message]",
                "Return PONG or the message.", "connection"),
        Command("echo", 2, "readonly fast", connection.echo, "message",
                "Return the message.", "connection"),
        Command("select", 2, "readonly loading fast", connection.select, "0",
                "For Redis clients: the only database is 0.", "connection"),
        Command("quit", -1, "readonly loading fast", connection.quit, "",
                "End the connection.", "connection", unauthenticated=True),
        Command("reset", 1, "readonly loading fast", connection.reset, "",
                "Reset the connection to its initial state.", "connection", unauthenticated=True),
        Command("client", -2, "admin readonly", client_command,
                _CLIENT,
                "Show and control connections.", "connection",
                # Power over other clients, or beyond one's share, is not for +@connection to give.
                parts={"list kill pause unpause unblock no-evict": "admin dangerous",
                       "info id getname setname setinfo reply no-touch": "connection"}),
        Command("acl", -2, "readonly loading", acl,
                _ACL,
                "Show and change users and their permissions.", "server",
                parts={"setuser getuser deluser list users log load save dryrun check":
                           "admin dangerous",
                       "whoami cat genpass help": ""}),
        Command("info", -1, "readonly loading @dangerous", server.info, "[section]",
                "Show state and counters.", "server"),
        Command("config", -2, "admin readonly", server.config,
                "GET pattern [pattern ...] | SET setting value [setting value ...] | REWRITE "
                "| RESETSTAT",
                "Read and change the settings.", "server",
                parts={"get set rewrite resetstat": "admin dangerous"}),
        Command("command", -1, "readonly loading", command,
                "[COUNT | LIST [FILTERBY ACLCAT category] | INFO [name ...] | DOCS [name ...] "
                "| GETKEYS command [argument ...] | GETKEYSANDFLAGS command [argument ...]]",
                "Show the command table.", "server",
                parts={"count list info docs getkeys getkeysandflags": "connection"}),
        Command("time", 1, "readonly fast", server.time, "",
                "Return the clock: seconds and microseconds.", "server"),
        Command("slowlog", -2, "readonly", diagnostics.slowlog, "GET [count] | LEN | RESET",
                "Show slow commands.", "server",
                parts={"get len reset": "admin dangerous"}),
        Command("latency", -2, "admin readonly loading", diagnostics.latency,
                "HISTORY event | LATEST | GRAPH event | DOCTOR | RESET [event ...]",
                "Show slow events.", "server",
                parts={"history latest graph doctor reset": "admin dangerous"}),
        Command("monitor", 1, "admin readonly", diagnostics.monitor, "",
                "Show a line for every command served.", "server"),
        Command("shutdown", -1, "admin readonly loading", server.shutdown, "[REWRITE-AOF]",
                "End the process.", "server"),
        Command("bgrewriteaof", 1, "admin readonly", server.bgrewriteaof, "",
                "Compact the append-only file.", "server"),
    ]  # fmt: skip
