"""Formats commands for MONITOR and SLOWLOG."""

from typing import Final

from disque_trio.resp.inline import quote
from disque_trio.respserver.command import AnyCommand

# Settings whose values must not be shown.
SECRETS: Final = (b"requirepass", b"cluster-secret", b"tls-key-file-pass")


def without_password(command: AnyCommand, args: list[bytes]) -> list[bytes]:
    """``args`` with passwords redacted, however malformed they are."""
    form = command.words.form
    if not (form.secrets or form.rules or form.settings):
        return args
    word = args[1].lower() if len(args) > 1 else b""
    secret = form.secrets.get(word, form.secrets.get(b"", len(args)))
    rules = form.rules.get(word, len(args))
    return [
        b"(redacted)"
        if at >= secret
        or (at >= rules and arg.startswith((b">", b"<", b"#", b"!")))  # a password, or its hash
        or (form.settings and at > 2 and args[at - 1].lower() in SECRETS)
        else arg
        for at, arg in enumerate(args)
    ]


def monitor_line(
    now: int, address: str, command: AnyCommand, args: list[bytes], resp: int
) -> bytes:
    """The line of MONITOR for a command from a client at ``address`` at ``now`` (ms), in protocol
    version ``resp``."""
    # Redis has the database before the address, Disque has none. Clients that speak RESP3 are made
    # for Redis and look for it.
    return b"+%d.%06d %b%b] %b\r\n" % (
        now // 1000,
        now % 1000 * 1000,
        b"[0 " if resp == 3 else b"[",
        address.encode(),
        b" ".join([quote(arg) for arg in without_password(command, args)]),
    )
