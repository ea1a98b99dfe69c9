"""Formats commands for MONITOR and SLOWLOG."""

from collections.abc import Mapping
from typing import Final

from disque_trio.resp.inline import quote
from disque_trio.respserver.command import AnyCommand

# How the names of settings end whose values must not be shown.
_SECRETS: Final = (b"pass", b"password", b"-secret", b"user")


def without_password(
    command: AnyCommand, args: list[bytes], commands: Mapping[bytes, AnyCommand]
) -> list[bytes]:
    """``args`` with passwords redacted, however malformed they are, also in a request that they are
    about (ACL DRYRUN)."""
    form = command.words.form
    start = 0
    word = args[1].lower() if len(args) > 1 else b""
    while word in form.requests:
        inner = start + form.requests[word]
        about = commands.get(args[inner].lower()) if inner < len(args) else None
        if about is None:
            break
        form, start = about.words.form, inner
        word = args[start + 1].lower() if start + 1 < len(args) else b""
    if not (form.secrets or form.rules or form.settings):
        return args
    secret = start + form.secrets.get(word, form.secrets.get(b"", len(args)))
    rules = start + form.rules.get(word, len(args))
    return [
        b"(redacted)"
        if at >= secret
        or (at >= rules and arg.startswith((b">", b"<", b"#", b"!")))  # a password, or its hash
        or (form.settings and at > start + 2 and args[at - 1].lower().endswith(_SECRETS))
        else arg
        for at, arg in enumerate(args)
    ]


def monitor_line(now: int, address: str, shown: list[bytes], resp: int) -> bytes:
    """The line of MONITOR for a request from a client at ``address`` at ``now`` (ms), in protocol
    version ``resp``."""
    # Redis has the database before the address, Disque has none. Clients that speak RESP3 are made
    # for Redis and look for it.
    return b"+%d.%06d %b%b] %b\r\n" % (
        now // 1000,
        now % 1000 * 1000,
        b"[0 " if resp == 3 else b"[",
        address.encode(),
        b" ".join([quote(arg) for arg in shown]),
    )
