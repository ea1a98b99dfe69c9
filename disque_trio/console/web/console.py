"""All that the pages need, made once."""

from dataclasses import dataclass, field

import trio

from disque_trio.console.io.accounts import Accounts
from disque_trio.console.io.audit import Audit
from disque_trio.console.io.calls import Calls
from disque_trio.console.io.looks import Looks
from disque_trio.console.io.recent import Recent
from disque_trio.console.io.timelines import Timelines
from disque_trio.console.model.cluster import Cluster
from disque_trio.console.model.sessions import Attempts, Sessions
from disque_trio.process.logs import Log


@dataclass(slots=True)
class Console:
    """The console.

    Attributes:
        cluster: what is known of it. calls: commands as the console's own user.
        prefix: of all paths; empty, or like ``/disque``.
        trusted: addresses of proxies whose X-Forwarded-* counts.
        recent: what nodes have said a moment ago.
        hosts: names by which visitors may call it where nobody has to log in, beside addresses and
            localhost. None: any.
        stopping: set when the process is to end. ended: set when nothing is served any more.
        timelines: of event logs; None: none were named. bananaq: address; empty: none.
        bananaq_calls: commands for it.
    """

    cluster: Cluster
    looks: Looks
    calls: Calls
    accounts: Accounts
    sessions: Sessions
    attempts: Attempts
    audit: Audit
    log: Log
    prefix: str = ""
    trusted: frozenset[str] = frozenset()
    hosts: frozenset[str] | None = None
    timelines: Timelines | None = None
    bananaq: str = ""
    bananaq_calls: Calls | None = None
    recent: Recent = field(default_factory=Recent)
    stopping: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)
