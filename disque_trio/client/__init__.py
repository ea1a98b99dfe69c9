"""A Disque client for Trio.

``connect`` is the entry; see docs/client.md. This module names all that is public.
"""

from disque_trio.client.client import Client, connect
from disque_trio.client.errors import AddManyError
from disque_trio.client.jobs import HeldJob, Job, Jobs
from disque_trio.client.nodes import Hello, Node
from disque_trio.respclient.addresses import Address
from disque_trio.respclient.errors import (
    AckedError,
    AuthError,
    BadIdError,
    ConnectionLost,
    DisqueError,
    LeavingError,
    LoadingError,
    MaxLenError,
    MisconfError,
    NoJobError,
    NoReplError,
    OOMError,
    PausedError,
    ProtocolError,
    ReplyError,
    TooLateError,
)

__all__ = [
    "AckedError",
    "AddManyError",
    "Address",
    "AuthError",
    "BadIdError",
    "Client",
    "ConnectionLost",
    "DisqueError",
    "HeldJob",
    "Hello",
    "Job",
    "Jobs",
    "LeavingError",
    "LoadingError",
    "MaxLenError",
    "MisconfError",
    "NoJobError",
    "NoReplError",
    "Node",
    "OOMError",
    "PausedError",
    "ProtocolError",
    "ReplyError",
    "TooLateError",
    "connect",
]
