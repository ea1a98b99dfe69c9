"""The form of the replies of bananaq, and the requests that it refuses."""

import hiredis
import pytest

from packages.bananaq.tests.support.banana_daemons import STATS, Daemon, pipeline

pytestmark = pytest.mark.live

ID = "1795311074114000_1795311134114000"
FLOAT = "value is not a valid float"
SYNTAX = "syntax error"
ARITY = "wrong number of arguments"
BAD_ID = "invalid ID string"

WRONG: list[tuple[str, str]] = [
    ("QADD", ARITY),
    ("QADD q", ARITY),
    ("QADD q 60", ARITY),
    ("QADD q 60 body BLOCK", SYNTAX),
    ("QADD q 60 body NOBLOCK more", ""),
    ("QADD q 60 body NOBLOCK NOBLOCK", ""),
    ("QADD q nan body", FLOAT),
    ("QADD q inf body", FLOAT),
    ("QADD q -inf body", FLOAT),
    ("QADD q '' body", FLOAT),
    ("QADD q @ body", FLOAT),
    ("QADD q @@1 body", FLOAT),
    ("QADD q ten body", FLOAT),
    ("QADD q 1_0 body", FLOAT),
    ("QADD q 1,5 body", FLOAT),
    ("QADD q 0x10 body", FLOAT),
    ("QADD q --1 body", FLOAT),
    ("QADD q 1e body", FLOAT),
    ("QADD q 60 body NOBLOCKED", SYNTAX),
    ("QGET", ARITY),
    ("QGET q", ARITY),
    ("QGET q g EX", SYNTAX),
    ("QGET q g 30", SYNTAX),
    ("QGET q g FOO 30", SYNTAX),
    ("QGET q g EX 30 EX 30", SYNTAX),
    ("QGET q g EX 30 DEADLINE 30", SYNTAX),
    ("QGET q g DEADLINE 30 EX 30", SYNTAX),
    ("QGET q g BLOCK 0 BLOCK 0", SYNTAX),
    ("QGET q g EX 30 BLOCK", SYNTAX),
    ("QGET q g EX 30 BLOCK 0 more", SYNTAX),
    ("QGET q g EX soon", FLOAT),
    ("QGET q g EX ''", FLOAT),
    ("QGET q g EX nan", FLOAT),
    ("QGET q g EX -1", "negative"),
    ("QGET q g BLOCK -1", "negative"),
    ("QGET q g BLOCK inf", FLOAT),
    ("QGET q g BLOCK x", FLOAT),
    ("QACK", ARITY),
    ("QACK q", ARITY),
    ("QACK q g no-id", BAD_ID),
    ("QACK q g ''", BAD_ID),
    ("QACK q g 1", BAD_ID),
    ("QACK q g _", BAD_ID),
    ("QACK q g 1_", BAD_ID),
    ("QACK q g _1", BAD_ID),
    ("QACK q g 1_x", BAD_ID),
    ("QACK q g 1_2_3_4", BAD_ID),
    ("QACK q g -1_2", BAD_ID),
    ("QACK q g 123456789012345678901_2", BAD_ID),
    (f"QACK q g {ID} UNDO", ""),
    (f"QACK q g {ID} REDO REDO", ""),
    ("QWORKING q g", ARITY),
    ("QWORKING q g no-id", BAD_ID),
    (f"QWORKING q g {ID} EX", SYNTAX),
    (f"QWORKING q g {ID} 30", SYNTAX),
    (f"QWORKING q g {ID} EX -1", "negative"),
    (f"QWORKING q g {ID} EX x", FLOAT),
    (f"QWORKING q g {ID} EX 1 EX 1", SYNTAX),
    ("QNOTIFY", ARITY),
    ("QNOTIFY g x q", FLOAT),
    ("QNOTIFY g '' q", FLOAT),
    ("QNOTIFY g -1 q", "negative"),
    ("QNOTIFY g nan q", FLOAT),
    ("QNOTIFY x", FLOAT),
    ("QNOTIFY -1", "negative"),
    ("QFLUSH", ARITY),
    ("QFLUSH q q", ARITY),
    ("QLPUSH q id", ARITY),
    ("QLPUSH q id body WHEN", SYNTAX),
    ("QLPUSH q id body NOBLOCK more", ""),
    ("QRPUSH q id", ARITY),
    ("QRPUSH q id body WHEN", SYNTAX),
    ("QRPUSH q id2 body NOBLOCK more", ""),
    ("QRPOP", ARITY),
    ("QRPOP q EX", SYNTAX),
    ("QRPOP q EX x", FLOAT),
    ("QRPOP q EX -1", "negative"),
    ("QRPOP q BLOCK 1", SYNTAX),
    ("QRPOP q EX 1 EX 1", SYNTAX),
    ("QLPEEK", ARITY),
    ("QLPEEK q q", ARITY),
    ("QRPEEK", ARITY),
    ("QRPEEK q q", ARITY),
    ("NOSUCH q", "unknown command"),
    ("GET q", "unknown command"),
]


def test_an_invalid_request_is_refused_and_changes_nothing(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    requests = [
        ["" if word == "''" else queue if word == "q" else word for word in line.split()]
        for line, _ in WRONG
    ]
    replies = pipeline(wire, requests)
    accepted = [
        (line, reply)
        for (line, text), reply in zip(WRONG, replies, strict=True)
        if not isinstance(reply, hiredis.ReplyError)
        or not str(reply).startswith("ERR ")
        or text not in str(reply)
    ]
    assert accepted == []
    assert wire("PING") == b"PONG"
    assert bananaq.status(queue, "g") == dict.fromkeys(STATS, 0)
    assert bananaq.status(queue, "okq")["total"] == 0


def raw_replies(bananaq: Daemon, resp: int, *requests: tuple[bytes | str | int, ...]) -> bytes:
    """Return the bytes that arrive before the reply to a last PING."""
    wire = bananaq.wire()
    if resp == 3:
        wire("HELLO", "3")
    for request in requests:
        wire.send(*request)
    wire.send("PING", "the-end")
    data = b""
    while not data.endswith(b"$7\r\nthe-end\r\n"):
        more = wire.sock.recv(65536)
        assert more
        data += more
    return data[: -len(b"$7\r\nthe-end\r\n")]


@pytest.mark.parametrize("resp", [2, 3])
def test_replies_have_the_specified_form(bananaq: Daemon, queue: str, resp: int) -> None:
    null = b"_\r\n" if resp == 3 else b"$-1\r\n"
    q = queue.encode()
    name = b"$%d\r\n%b\r\n" % (len(q), q)
    one = raw_replies(bananaq, resp, ("QADD", queue, 60, "body"))
    lines = one.split(b"\r\n")
    id = lines[1]
    assert one == b"$%d\r\n%b\r\n" % (len(id), id)
    assert raw_replies(bananaq, resp, ("QNOTIFY", "g", 0, queue)) == name
    assert raw_replies(bananaq, resp, ("QGET", queue, "g")) == b"*2\r\n" + one + b"$4\r\nbody\r\n"
    assert raw_replies(bananaq, resp, ("QGET", queue, "g")) == null
    assert raw_replies(bananaq, resp, ("QNOTIFY", "g", 0, queue)) == null
    assert raw_replies(bananaq, resp, ("QNOTIFY", "g", 0)) == null
    assert raw_replies(bananaq, resp, ("QGET", queue, "g", "BLOCK", "0.01")) == null
    assert raw_replies(bananaq, resp, ("QNOTIFY", "g", "0.01", queue)) == null
    counts = b"".join(
        b"$%d\r\n%b\r\n:%d\r\n" % (len(stat), stat.encode(), value)
        for stat, value in zip(STATS, (1, 1, 0, 0, 0, 0), strict=True)
    )
    status = b"*1\r\n*2\r\n" + name + b"*2\r\n$1\r\ng\r\n*12\r\n" + counts
    assert raw_replies(bananaq, resp, ("QSTATUS", queue)) == status
    info = q + b"  g  total:1  inprogress:1  redo:0  done:0  available:0  consumers:0"
    line = b"*1\r\n$%d\r\n%b\r\n" % (len(info), info)
    assert raw_replies(bananaq, resp, ("QINFO", queue)) == line
    assert raw_replies(bananaq, resp, ("QWORKING", queue, "g", id)) == b":1\r\n"
    assert raw_replies(bananaq, resp, ("QACK", queue, "g", id)) == b":1\r\n"
    assert raw_replies(bananaq, resp, ("QACK", queue, "g", id)) == b":0\r\n"
    assert raw_replies(bananaq, resp, ("QWORKING", queue, "g", id)) == b":0\r\n"
    assert raw_replies(bananaq, resp, ("QADD", queue, 60, "b", "NOBLOCK")) == b"+OK\r\n"
    assert raw_replies(bananaq, resp, ("QFLUSH", queue)) == b"+OK\r\n"
    assert raw_replies(bananaq, resp, ("QLPUSH", queue, "own", "b")) == b"+OK\r\n"
    own = b"*2\r\n$3\r\nown\r\n$1\r\nb\r\n"
    assert raw_replies(bananaq, resp, ("QLPEEK", queue)) == own
    assert raw_replies(bananaq, resp, ("QRPEEK", queue)) == own
    assert raw_replies(bananaq, resp, ("QRPOP", queue)) == own
    assert raw_replies(bananaq, resp, ("QRPOP", queue)) == null
    assert raw_replies(bananaq, resp, ("QRPEEK", queue)) == null
    assert raw_replies(bananaq, resp, ("QACK", queue, "own")) == b":1\r\n"
    assert raw_replies(bananaq, resp, ("QREGISTER", queue)) == b"+OK\r\n"
    assert raw_replies(bananaq, resp, ("QREGISTER",)) == b"+OK\r\n"
    assert raw_replies(bananaq, resp, ("QFLUSH", queue)) == b"+OK\r\n"
    assert raw_replies(bananaq, resp, ("QLPEEK", queue)) == null


def test_invalid_resp_ends_the_connection_with_one_error(bananaq: Daemon) -> None:
    for data in (b"*1\r\n:1\r\n", b"*x\r\n", b"*1\r\n$-5\r\n", b'"unbalanced\r\n'):
        wire = bananaq.wire()
        wire.raw(data)
        reply = wire.read()
        assert isinstance(reply, hiredis.ReplyError)
        assert str(reply).startswith("ERR Protocol error")
        assert wire.closed()
