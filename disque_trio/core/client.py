"""A client as the state machine sees it: what it is allowed, what it waits for, its replies."""

from collections import deque
from typing import Final

REPLY_ON: Final = 0
REPLY_OFF: Final = 1
REPLY_SKIP: Final = 2
REPLY_SKIP_NEXT: Final = 3


class Pending:
    """A reply that is not there yet, or that has to wait for one before it.

    Attributes:
        client: whose it is.
        reply: the bytes; None: not known yet.
        silent: the client does not want to see it.
        journaled: it may only leave if the journal of the turn is in the append-only file.
    """

    __slots__ = ("client", "journaled", "reply", "silent")

    def __init__(self, client: "Client", reply: bytes | None) -> None:
        self.client = client
        self.reply = reply
        self.silent = False
        self.journaled = False


class Client:
    """One connection.

    Attributes:
        id: rising number, never used again.
        out: replies that have not been handed to the connection yet.
        resp: protocol version of the replies, 2 or 3.
        authenticated: whether commands are served (always when no password is set).
        name: what CLIENT SETNAME said.
        label: how the event log calls it; empty: not known yet, as after a change of the name.
        lib_name, lib_ver: what CLIENT SETINFO said.
        reply_mode: REPLY_ON, REPLY_OFF, REPLY_SKIP (this command has no reply) or REPLY_SKIP_NEXT.
        monitor: whether it gets a line for every command.
        close: close the connection when the replies are out.
        waits_for: names of the queues of its blocked GETJOB, empty: not blocked.
        wait_number: which blocked GETJOB of the node it is; guards against stale time-outs.
        withcounters: whether the blocked GETJOB asked for the counters.
        line: replies in the order of the requests, from the first ADDJOB on that waits for its
            copies; also those that are known and only wait behind it. adding: how many they are.
        last_command: name of the last command, for CLIENT LIST.
    """

    __slots__ = (
        "adding",
        "authenticated",
        "close",
        "id",
        "label",
        "last_command",
        "lib_name",
        "lib_ver",
        "line",
        "monitor",
        "name",
        "out",
        "reply_mode",
        "resp",
        "wait_number",
        "waits_for",
        "withcounters",
    )

    def __init__(self, id: int, authenticated: bool = True) -> None:
        self.id = id
        self.out: list[bytes] = []
        self.resp = 2
        self.authenticated = authenticated
        self.name = b""
        self.label = ""
        self.lib_name = b""
        self.lib_ver = b""
        self.reply_mode = REPLY_ON
        self.monitor = False
        self.close = False
        self.waits_for: list[bytes] = []
        self.wait_number = 0
        self.withcounters = False
        self.adding = 0
        self.line: deque[Pending] = deque()
        self.last_command = "NULL"

    @property
    def blocked(self) -> bool:
        """Whether it waits for a job or for copies; what it sent behind that waits, too."""
        return len(self.waits_for) > 0 or self.adding > 0
