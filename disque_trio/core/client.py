"""A client as the state machine sees it: what it is allowed, what it waits for, its replies."""

REPLY_ON = 0
REPLY_OFF = 1
REPLY_SKIP = 2
REPLY_SKIP_NEXT = 3


class Client:
    """One connection.

    Attributes:
        id: rising number, never used again.
        out: replies that have not been handed to the connection yet.
        resp: protocol version of the replies, 2 or 3.
        authenticated: whether commands are served (always when no password is set).
        name: what CLIENT SETNAME said.
        lib_name, lib_ver: what CLIENT SETINFO said.
        reply_mode: REPLY_ON, REPLY_OFF, REPLY_SKIP (this command has no reply) or REPLY_SKIP_NEXT.
        monitor: whether it gets a line for every command.
        close: close the connection when the replies are out.
        waits_for: names of the queues of its blocked GETJOB, empty: not blocked.
        wait_number: which blocked GETJOB of the node it is; guards against stale time-outs.
        withcounters: whether the blocked GETJOB asked for the counters.
        last_command: name of the last command, for CLIENT LIST.
    """

    __slots__ = (
        "authenticated",
        "close",
        "id",
        "last_command",
        "lib_name",
        "lib_ver",
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
        self.lib_name = b""
        self.lib_ver = b""
        self.reply_mode = REPLY_ON
        self.monitor = False
        self.close = False
        self.waits_for: list[bytes] = []
        self.wait_number = 0
        self.withcounters = False
        self.last_command = "NULL"

    @property
    def blocked(self) -> bool:
        """Whether it waits for a job; what it sent behind that waits, too."""
        return len(self.waits_for) > 0
