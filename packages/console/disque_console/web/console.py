"""The objects that all pages share."""

from dataclasses import dataclass, field

import trio

from disque_console.io.accounts import Accounts
from disque_console.io.audit import Audit
from disque_console.io.bulk import Bulks
from disque_console.io.calls import Calls
from disque_console.io.history_file import HistoryFile
from disque_console.io.recent import Recent
from disque_console.io.timelines import Timelines
from disque_console.model.attempts import Attempts, Browsers
from disque_console.model.roles import Role
from disque_console.model.sessions import Session, Sessions, Streams
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.looks import Looks
from disque_trio.process.logs import Log


@dataclass(slots=True)
class Console:
    """The console.

    Attributes:
        cluster: its state. history: keeps what its charts show.
        calls: sends commands as the console's own user.
        prefix: of all paths; empty, or such as ``/disque``.
        trusted: addresses of proxies whose X-Forwarded-* headers to trust.
        recent: a short-lived cache of nodes' replies.
        hosts: host names to accept, besides addresses and localhost, if no login is required; None
            for any.
        bulks: the bulk actions in progress. streams: counts the live pages.
        stopping: set when the process should stop. ended: set when the server has stopped.
        timelines: of event logs, or None. bananaq: address, or empty.
        trace_url: of the page of a trace, with ``{trace}`` for its id; or empty.
        bananaq_calls: sends commands to it.
    """

    cluster: Cluster
    looks: Looks
    calls: Calls
    accounts: Accounts
    sessions: Sessions
    attempts: Attempts
    browsers: Browsers
    audit: Audit
    history: HistoryFile
    log: Log
    prefix: str = ""
    trusted: frozenset[str] = frozenset()
    hosts: frozenset[str] | None = None
    timelines: Timelines | None = None
    bananaq: str = ""
    trace_url: str = ""
    bananaq_calls: Calls | None = None
    recent: Recent = field(default_factory=Recent)
    bulks: Bulks = field(init=False)
    streams: Streams = field(default_factory=Streams)
    stopping: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        self.bulks = Bulks(self.cluster.nodes)

    def role_of(self, session: Session | None, now: float) -> Role | None:
        """The role of a session's visitor at ``now`` (s since the epoch); None if the session is
        over. Without a session, the role of visitors who need not log in."""
        if session is None:
            return None if self.accounts.wanted else Role.ADMIN
        return self.accounts.still(session) if self.sessions.lasts(session, now) else None
