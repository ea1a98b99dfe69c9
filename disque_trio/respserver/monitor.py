"""Formats commands for MONITOR and SLOWLOG."""

from typing import Final

from disque_trio.resp.inline import quote
from disque_trio.respserver.command import AnyCommand

# Settings whose values must not be shown.
SECRETS: Final = (b"requirepass", b"cluster-secret", b"tls-key-file-pass")


def without_password(command: AnyCommand, args: list[bytes]) -> list[bytes]:
    """``args`` with passwords redacted."""
    if command.name in ("auth", "hello"):
        return [args[0], *[b"(redacted)"] * (len(args) - 1)]
    if command.name == "acl" and len(args) > 4 and args[1].lower() == b"check":
        return [*args[:4], *[b"(redacted)"] * (len(args) - 4)]
    if command.name == "acl" and len(args) > 3 and args[1].lower() == b"setuser":
        rules = [b"(redacted)" if _is_password(rule) else rule for rule in args[3:]]
        return [*args[:3], *rules]
    if command.name == "config":
        shown = list(args)
        for i in range(2, len(args) - 1):
            if args[i].lower() in SECRETS:
                shown[i + 1] = b"(redacted)"
        return shown
    return args


def _is_password(rule: bytes) -> bool:
    """Whether a rule of ACL SETUSER contains a password, or its hash."""
    return rule.startswith((b">", b"<", b"#", b"!"))


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
