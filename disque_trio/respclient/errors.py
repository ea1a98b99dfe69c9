"""The exceptions of the client, and the conversion of error replies into them.

All exceptions derive from ``DisqueError``. An error reply of a node is a ``ReplyError``, of the
subclass for its code, which is the first word of the reply.
"""

from typing import Self

import trio


class DisqueError(Exception):
    """Base class of the exceptions of the clients."""


class ConnectionLost(DisqueError):
    """The connection broke, or no node could be reached within the time allowed.

    Attributes:
        maybe_executed: True if the command had been handed to the network, so that the node may
            have executed it; False if it certainly was not executed.
    """

    def __init__(self, message: str, *, maybe_executed: bool = False) -> None:
        super().__init__(message)
        self.maybe_executed = maybe_executed


class TlsError(ConnectionLost):
    """TLS failed, and another attempt would not help: a certificate is expired, untrusted, missing
    or for another host, or the server does not speak TLS.

    Clients raise this at once if they cannot connect at the start. Later they keep trying, since
    certificates may be renewed.
    """


class TooSlowError(trio.TooSlowError, TimeoutError):
    """The time limit was exceeded. Not a ``DisqueError``, but the exceptions that programs on Trio,
    and all others, catch for timeouts."""


class ProtocolError(DisqueError):
    """The peer sent something that is not RESP, or not what a Disque node would reply."""


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
    """NOREPL: the job could not be replicated to as many nodes as requested."""


class NoJobError(ReplyError):
    """NOJOB: the node does not know the job."""


class TooLateError(ReplyError):
    """TOOLATE: half of the job's TTL is over, so its next delivery can no longer be postponed."""


class AckedError(ReplyError):
    """ACKED: the job has already been acknowledged."""


class PausedError(ReplyError):
    """PAUSED: the queue does not accept jobs at the moment."""


class MaxLenError(ReplyError):
    """MAXLEN: the queue is longer than the MAXLEN of the request."""


class OOMError(ReplyError):
    """OOM: the node has reached its ``maxmemory``, or the queues of the user hold what they may."""


class LimitError(ReplyError):
    """LIMIT: the user has as many keys, schedules, bindings or connections as it may have."""


class LeavingError(ReplyError):
    """LEAVING: the node is leaving the cluster, so another one must serve the request."""


class LeavingNoReplError(NoReplError, LeavingError):
    """NOREPL, because the node is leaving the cluster and holds no copies; another one may do."""


class BadIdError(ReplyError):
    """BADID: this is not a job id."""


class LoadingError(ReplyError):
    """LOADING: the node is still reading its dataset."""


class MisconfError(ReplyError):
    """MISCONF: the node cannot write its append-only file."""


class NoExtError(ReplyError):
    """NOEXT: a node of the cluster does not support what the request needs."""


class NoUniqueError(ReplyError):
    """NOUNIQ: too few of the nodes that know the key can be reached to tell whether it is new."""


class JobCancelledError(ReplyError):
    """CANCELLED: somebody cancelled the job; its worker should stop."""


class AuthError(ReplyError):
    """The user or the password is missing or wrong, or the node has no password."""


class NoPermError(ReplyError):
    """NOPERM: the user is not allowed to do this, or not with this queue."""


_BY_CODE: dict[str, type[ReplyError]] = {
    "NOREPL": NoReplError,
    "NOJOB": NoJobError,
    "TOOLATE": TooLateError,
    "ACKED": AckedError,
    "PAUSED": PausedError,
    "MAXLEN": MaxLenError,
    "MAXBYTES": MaxLenError,
    "OOM": OOMError,
    "LIMIT": LimitError,
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

# Disque replies to a failed AUTH with the general code.
_AUTH_MESSAGES = ("invalid password", "Client sent AUTH, but no password is set")
_LEAVING = "I'm leaving the cluster"


def reply_error(text: str) -> ReplyError:
    """Return the exception for the error reply ``text``, without its leading ``-``."""
    code, _, message = text.partition(" ")
    if code == "ERR" and message.startswith(_AUTH_MESSAGES):
        return AuthError(code, message)
    if code == "NOREPL" and message.endswith(_LEAVING):
        return LeavingNoReplError(code, message)
    return _BY_CODE.get(code, ReplyError)(code, message)


def first_of(error: BaseException) -> BaseException:
    """Return ``error``; of a group, the first exception in it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
