"""Nodes' answers, for views."""

from collections.abc import Iterable

from disque_console.io.calls import Answer
from disque_trio.respclient.errors import DisqueError


def parted(answers: Iterable[Answer]) -> tuple[list[Answer], list[tuple[str, str]]]:
    """Split into replies, and errors as text, each with the address of its node."""
    good: list[Answer] = []
    problems: list[tuple[str, str]] = []
    for address, reply in answers:
        if isinstance(reply, DisqueError):
            text = str(reply)
            problems.append(("" if address and address in text else address, text.rstrip(".")))
        else:
            good.append((address, reply))
    return good, problems
