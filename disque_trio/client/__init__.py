"""A Disque client for Trio and asyncio.

``connect`` is the entry; see docs/client.md. This module names all that is public.
"""

from disque_trio.client.client import Client
from disque_trio.client.connecting import connect
from disque_trio.client.errors import AddManyError, CallError
from disque_trio.client.fetch import GetOptions
from disque_trio.client.job import Job, Letter
from disque_trio.client.jobs import HeldJob, Jobs
from disque_trio.client.nodes import Hello, Node
from disque_trio.client.policies import Policy, PolicyOptions
from disque_trio.client.replies import Outcome, Schedule
from disque_trio.client.requests import JobFilters
from disque_trio.job_options import JobOptions, KeyOptions, ScheduleOptions
from disque_trio.notation.addresses import Address
from disque_trio.respclient.errors import (
    AckedError,
    AuthError,
    BadIdError,
    ConnectionLost,
    DisqueError,
    JobCancelledError,
    LeavingError,
    LimitError,
    LoadingError,
    MaxLenError,
    MisconfError,
    NoExtError,
    NoJobError,
    NoPermError,
    NoReplError,
    NoUniqueError,
    OOMError,
    PausedError,
    ProtocolError,
    ReplyError,
    TlsError,
    TooLateError,
    TooSlowError,
)
from disque_trio.respclient.tls import Tls

__all__ = [
    "AckedError",
    "AddManyError",
    "Address",
    "AuthError",
    "BadIdError",
    "CallError",
    "Client",
    "ConnectionLost",
    "DisqueError",
    "GetOptions",
    "HeldJob",
    "Hello",
    "Job",
    "JobCancelledError",
    "JobFilters",
    "JobOptions",
    "Jobs",
    "KeyOptions",
    "LeavingError",
    "Letter",
    "LimitError",
    "LoadingError",
    "MaxLenError",
    "MisconfError",
    "NoExtError",
    "NoJobError",
    "NoPermError",
    "NoReplError",
    "NoUniqueError",
    "Node",
    "OOMError",
    "Outcome",
    "PausedError",
    "Policy",
    "PolicyOptions",
    "ProtocolError",
    "ReplyError",
    "Schedule",
    "ScheduleOptions",
    "Tls",
    "TlsError",
    "TooLateError",
    "TooSlowError",
    "connect",
]
