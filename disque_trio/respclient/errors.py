"""The exceptions of the client, and the conversion of error replies into them.

Owns the exception classes. Everything derives from ``DisqueError``; an error reply of a node is a
``ReplyError``, of the subclass that its code (the first word of the reply) names.
"""

from typing import Self

import trio


class DisqueError(Exception):
    """Base of all exceptions that the client raises on its own account."""


class ConnectionLost(DisqueError):
    """The connection broke, or no node could be reached within the time allowed.

    Attributes:
        maybe_executed: True when the command had been handed to the network, so that the node may
            have run it; False when it certainly did not run.
    """

    def __init__(self, message: str, *, maybe_executed: bool = False) -> None:
        super().__init__(message)
        self.maybe_executed = maybe_executed


class TlsError(ConnectionLost):
    """TLS failed in a way that another attempt does not better: a certificate is expired, not
    trusted, for another host or missing, or the server speaks no TLS. Clients raise it at once
    when they cannot begin at all; later they go on trying, as certificates are renewed."""


class TooSlowError(trio.TooSlowError, TimeoutError):
    """It was not done in time. No ``DisqueError``, but what programs on Trio catch for that, and
    what all others do."""


class ProtocolError(DisqueError):
    """The peer sent something that is not RESP, or not what a Disque node answers."""


class ReplyError(DisqueError):
    """An error reply.

    Attributes:
        code: the first word of the reply, such as ``ERR`` or ``NOREPL``.
        message: the rest of the reply.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code} {message}".rstrip())
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (self.code, self.message)


class NoReplError(ReplyError):
    """NOREPL: the job could not be replicated to as many nodes as asked."""


class NoJobError(ReplyError):
    """NOJOB: the node does not know the job."""


class TooLateError(ReplyError):
    """TOOLATE: half of the job's TTL is over, its next delivery can no longer be postponed."""


class AckedError(ReplyError):
    """ACKED: the job is already acknowledged."""


class PausedError(ReplyError):
    """PAUSED: the queue takes no jobs at present."""


class MaxLenError(ReplyError):
    """MAXLEN: the queue is longer than the MAXLEN of the request."""


class OOMError(ReplyError):
    """OOM: the node is over its ``maxmemory``."""


class LeavingError(ReplyError):
    """LEAVING: the node is leaving the cluster, another one must serve the request."""


class LeavingNoReplError(NoReplError, LeavingError):
    """NOREPL, since the node is leaving the cluster and holds no copies: another one may do."""


class BadIdError(ReplyError):
    """BADID: that is not a job id."""


class LoadingError(ReplyError):
    """LOADING: the node is still reading its dataset."""


class MisconfError(ReplyError):
    """MISCONF: the node cannot write its append only file."""


class NoExtError(ReplyError):
    """NOEXT: a node of the cluster does not know what the request needs."""


class NoUniqueError(ReplyError):
    """NOUNIQ: too few of the nodes that know of the key can be reached to say whether it is new."""


class JobCancelledError(ReplyError):
    """CANCELLED: somebody cancelled the job; its worker should stop."""


class AuthError(ReplyError):
    """The user or the password is missing or wrong, or the node has none."""


class NoPermError(ReplyError):
    """NOPERM: the user may not do this, or not with this queue."""


_BY_CODE: dict[str, type[ReplyError]] = {
    "NOREPL": NoReplError,
    "NOJOB": NoJobError,
    "TOOLATE": TooLateError,
    "ACKED": AckedError,
    "PAUSED": PausedError,
    "MAXLEN": MaxLenError,
    "MAXBYTES": MaxLenError,
    "OOM": OOMError,
    "LEAVING": LeavingError,
    "BADID": BadIdError,
    "LOADING": LoadingError,
    "MISCONF": MisconfError,
    "NOEXT": NoExtError,
    "NOUNIQ": NoUniqueError,
    "CANCELLED": JobCancelledError,
    "NOAUTH": AuthError,
    "WRONGPASS": AuthError,
    "NOPERM": NoPermError,
}

# Disque answers a failing AUTH with the general code.
_AUTH_MESSAGES = ("invalid password", "Client sent AUTH, but no password is set")
_LEAVING = "I'm leaving the cluster"


def reply_error(text: str) -> ReplyError:
    """The exception for an error reply ``text`` (without its leading ``-``)."""
    code, _, message = text.partition(" ")
    if code == "ERR" and message.startswith(_AUTH_MESSAGES):
        return AuthError(code, message)
    if code == "NOREPL" and message.endswith(_LEAVING):
        return LeavingNoReplError(code, message)
    return _BY_CODE.get(code, ReplyError)(code, message)
