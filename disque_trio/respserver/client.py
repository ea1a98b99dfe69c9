"""A client as the state machine sees it: its permissions, what it waits for, and its replies."""

from collections import deque
from typing import Final

from disque_trio.native import mypyc_attr
from disque_trio.respserver.acl.budget import Use
from disque_trio.respserver.acl.user import User, everybody

REPLY_ON: Final = 0
REPLY_OFF: Final = 1
REPLY_SKIP: Final = 2
REPLY_SKIP_NEXT: Final = 3

LONG_REPLY: Final = 64 * 1024  # bytes
PIECE: Final = 256 * 1024  # bytes of a long reply to send together

# If there are no users; also the user of clients that stand in for nobody in particular.
ANYBODY: Final = everybody()


@mypyc_attr(allow_interpreted_subclasses=True)
class Pending:
    """A reply that is not ready yet, or that must wait for an earlier one.

    Attributes:
        client: gets it.
        reply: the bytes; None: not known yet.
        silent: whether to drop it, because the client does not want it.
        journaled: whether it may only be sent once the journal of the turn is in the append-only
            file.
    """

    __slots__ = ("client", "journaled", "reply", "silent")

    def __init__(self, client: "Client", reply: bytes | None) -> None:
        self.client = client
        self.reply = reply
        self.silent = False
        self.journaled = False

    def refuse(self, problem: bytes) -> None:
        """Reply with ``problem`` alone; empty: with nothing."""
        self.reply = problem


class CommandGroup:
    """The commands of a client between MULTI and EXEC (see ``groups``).

    Attributes:
        requests: the commands to run.
        words: how many words they have together.
        size: bytes of memory that they take.
        bad: one was refused, so none will run.
    """

    __slots__ = ("bad", "requests", "size", "words")

    def __init__(self) -> None:
        self.requests: list[list[bytes]] = []
        self.words = 0
        self.size = 0
        self.bad = False

    def clear(self) -> None:
        """Forget the commands."""
        self.requests = []
        self.words = 0
        self.size = 0


class Client:
    """The state of one connected client.

    Attributes:
        id: increasing number, never used again.
        out: replies that have not been handed to the connection yet.
        long: they may be too long to be copied as a whole; the code that sends them resets it.
        resp: protocol version of the replies, 2 or 3.
        user: the one that it has logged in as; before that, the default user.
        authenticated: whether its commands are served (always if the default user has no password,
            and connections left).
        unrestricted: whether it may run all commands on all queues; set by ``log_in``.
        budgeted: whether it has logged in as a user with a budget; paced: whether that has a rate;
            set by ``log_in``.
        counted: of the user whose connections it counts among; None: of none.
        name: from CLIENT SETNAME.
        label: its name in the event log; empty: not known yet, as after a change of its name.
        origin: its user and its name or address, as the node tells them apart; empty: not known.
        lib_name, lib_ver: from CLIENT SETINFO.
        reply_mode: REPLY_ON, REPLY_OFF, REPLY_SKIP (this command has no reply) or REPLY_SKIP_NEXT.
        monitor: whether it gets a line for every command.
        consumes: whether it gets push messages.
        silent: whether the machine waits for it to say something (see ``Machine.heard``).
        slow: it has not read much of what was sent, and gets no push messages until it has.
        no_evict: it stays connected even if all clients together hold too much.
        close: close the connection once the replies are sent.
        gone: it has disconnected.
        waits_for: names of the queues of its blocked GETJOB; empty: not blocked.
        wait_number: number of the blocked GETJOB; guards against stale time-outs.
        details: what the blocked GETJOB asked for besides the jobs; 0: nothing.
        reply_queue: replies in the order of the requests, starting with the first one that is not
            known, such as that of an ADDJOB that waits for copies.
        in_flight: number of these.
        in_slices: arguments left of a command about many ids (see ``batches``), whose reply is
            last in the queue: the client's next command must not begin before that.
        group: the commands since MULTI; None: there was none.
        resized: what it makes the process hold has changed, because of a command about many ids or
            of a group; the code that counts it again resets it.
        last_command: name of the last command, for CLIENT LIST.
    """

    __slots__ = (
        "authenticated",
        "budgeted",
        "close",
        "consumes",
        "counted",
        "details",
        "gone",
        "group",
        "id",
        "in_flight",
        "in_slices",
        "label",
        "last_command",
        "lib_name",
        "lib_ver",
        "long",
        "monitor",
        "name",
        "no_evict",
        "origin",
        "out",
        "paced",
        "reply_mode",
        "reply_queue",
        "resized",
        "resp",
        "silent",
        "slow",
        "unrestricted",
        "user",
        "wait_number",
        "waits_for",
    )

    def __init__(self, id: int, user: User = ANYBODY) -> None:
        self.id = id
        self.out: list[bytes] = []
        self.long = False
        self.resp = 2
        self.user = user
        self.authenticated = False
        self.unrestricted = False
        self.budgeted = False
        self.paced = False
        self.counted: Use | None = None
        self.name = b""
        self.label = ""
        self.origin = b""
        self.lib_name = b""
        self.lib_ver = b""
        self.reply_mode = REPLY_ON
        self.monitor = False
        self.consumes = False
        self.silent = False
        self.slow = False
        self.no_evict = False
        self.close = False
        self.gone = False
        self.waits_for: list[bytes] = []
        self.wait_number = 0
        self.details = 0
        self.in_flight = 0
        self.in_slices = 0
        self.reply_queue: deque[Pending] = deque()
        self.group: CommandGroup | None = None
        self.resized = False
        self.last_command = "NULL"
        # Last: compiled, attributes that are set after a call are checked at each use.
        self.log_in(user, user.open and not user.full)

    def log_in(self, user: User, authenticated: bool = True) -> None:
        """Make it ``user`` from now on."""
        self.leave()
        self.user = user
        self.origin = b""
        self.authenticated = authenticated
        self.unrestricted = authenticated and user.unrestricted
        budget = user.budget
        self.budgeted = authenticated and budget is not None
        self.paced = authenticated and budget is not None and budget.rate > 0
        if authenticated:
            self.counted = user.use
            user.use.connections += 1

    def leave(self) -> None:
        """Count no longer among the connections of its user."""
        if self.counted is not None:
            self.counted.connections -= 1
            self.counted = None

    def line_up(self, reply: Pending) -> None:
        """Append ``reply``, which is not known yet or has to wait for an earlier one."""
        self.reply_queue.append(reply)
        self.in_flight += 1

    def leave_group(self) -> None:
        """Forget the commands since MULTI."""
        self.group = None
        self.resized = True

    @property
    def blocked(self) -> bool:
        """Whether it waits for a job or for copies; then its next commands wait, too."""
        return len(self.waits_for) > 0 or self.in_flight > 0
