"""The ids of the jobs that follow others: dead letters, and jobs that are made of them again."""

import hashlib
from base64 import b64encode
from typing import Final

from disque_trio.protocol.trailer import DEAD, REDRIVEN

_ENDING: Final = b"-ffff"  # delivered at least once; not all nodes know how long it lives
SALTS: Final[dict[int, bytes]] = {DEAD: b"dead ", REDRIVEN: b"redriven "}


def successor_id(id: bytes, kind: int) -> bytes:
    """The id of the job that follows the job ``id`` when it ends in the way ``kind``: ``DEAD`` or
    ``REDRIVEN``."""
    digest = hashlib.sha256(SALTS[kind] + id).digest()
    return id[:11] + b64encode(digest[:18]) + _ENDING
