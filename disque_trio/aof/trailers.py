"""The output of ``disque-check-aof --trailers`` for a job with a trailer.

Values of headers are left out: they may be long, and secret.
"""

from typing import Final

from disque_trio.protocol.serialjob import SerialJob
from disque_trio.protocol.trailer import ENDING_NAMES, Trailer

_BARE: Final = (b"dead-why", b"first-id")  # they need no quotes


def trailer_line(at: int, job: SerialJob, trailer: Trailer) -> str:
    """The line for the trailer of ``job``, whose record begins at the offset ``at``."""
    found = [f"offset={at}", f"id={_shown(job.id)[1:-1]}", f"queue={_shown(job.queue)}"]
    if trailer.whole is not None:
        data, version = trailer.whole
        found.append(f"version={version} ({len(data)} bytes of a later version of disque-trio)")
    if trailer.headers:
        found.append(f"headers={','.join(map(_shown, trailer.headers[::2]))}")
    if trailer.key_until:
        found.append(f"key-until={trailer.key_until}")
    if trailer.updated:
        found.append(f"updated={trailer.updated}")
    for name, value in trailer.shown():
        text = str(value) if isinstance(value, int) else _shown(value)
        found.append(f"{name.decode()}={text[1:-1] if name in _BARE else text}")
    if trailer.ending is not None:
        found.append(f"ending={ENDING_NAMES[trailer.ending.kind].decode()}")
    if trailer.unknown:
        types = sorted({type for type, _ in trailer.unknown})
        found.append(f"unknown fields={','.join(map(str, types))}")
    return f"Trailer: {' '.join(found)}"


def _shown(text: bytes) -> str:
    """``text`` quoted, so that it contains no control characters for a terminal."""
    return ascii(text.decode("utf-8", "backslashreplace"))
