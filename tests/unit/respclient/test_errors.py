"""Error replies as exceptions."""

import pickle

import pytest

from disque_trio.client import (
    AddManyError,
    AuthError,
    ConnectionLost,
    LeavingError,
    MaxLenError,
    NoJobError,
    NoPermError,
    NoReplError,
    ReplyError,
    TooLateError,
)
from disque_trio.respclient.errors import first_of, reply_error


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ERR syntax error", ReplyError),
        ("NOREPL Not enough reachable nodes", NoReplError),
        ("NOJOB Job not known", NoJobError),
        ("TOOLATE Half of job TTL", TooLateError),
        ("MAXLEN Queue is already longer", MaxLenError),
        ("MAXBYTES Queue has 5 bytes, and its policy allows 5", MaxLenError),
        ("LEAVING This node is leaving", LeavingError),
        ("NOAUTH Authentication required.", AuthError),
        ("NOPERM this user has no permissions to run the 'debug' command", NoPermError),
        ("ERR invalid password", AuthError),
        ("ERR Client sent AUTH, but no password is set", AuthError),
        ("SOMETHINGNEW text", ReplyError),
    ],
)
def test_the_first_word_of_an_error_decides_the_exception(
    text: str, kind: type[ReplyError]
) -> None:
    error = reply_error(text)
    assert type(error) is kind
    assert (error.code, error.message) == tuple(text.split(" ", 1))
    assert str(error) == text


def test_a_node_that_refuses_copies_because_it_leaves_raises_leaving() -> None:
    error = reply_error(
        "NOREPL Not enough nodes, for the following reason: I'm leaving the cluster"
    )
    assert isinstance(error, NoReplError)
    assert isinstance(error, LeavingError)


def test_an_error_of_one_word_is_read() -> None:
    error = reply_error("OOPS")
    assert (error.code, error.message, str(error)) == ("OOPS", "", "OOPS")


@pytest.mark.parametrize(
    "error",
    [
        reply_error("NOREPL Not enough reachable nodes"),
        reply_error("OOPS"),
        ConnectionLost("gone", maybe_executed=True),
        AddManyError(["D-1", reply_error("OOM full"), reply_error("PAUSED later")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_pickled(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__.keys() == error.__dict__.keys()
    if isinstance(again, ConnectionLost):
        assert again.maybe_executed
    if isinstance(again, AddManyError):
        assert str(again.first) == "OOM full"


def test_the_first_exception_of_a_group_is_found_at_any_depth() -> None:
    first, second = ConnectionLost("first"), ValueError("second")
    assert first_of(first) is first
    groups = ExceptionGroup("all", [ExceptionGroup("some", [first, second]), second])
    assert first_of(groups) is first
