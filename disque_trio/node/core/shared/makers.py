"""The users who made schedules and bindings, with whose rights these act.

A schedule acts as long as its user might set it now, and so does a binding. Those of an earlier
release, of the default user, and those from a file that was changed by hand belong to nobody: they
always act. Each node asks its own users.
"""

from collections.abc import Callable
from typing import Final, Generic

from disque_trio.glob import glob_prefix
from disque_trio.node.core.rpc.services import Services
from disque_trio.node.core.shared.bindings import TOPIC, Binding
from disque_trio.node.core.shared.schedules import Schedule
from disque_trio.node.core.shared.versions import V, Versions
from disque_trio.resp.inline import quote
from disque_trio.respserver.access import ADD, PATTERN, TAKE, Access
from disque_trio.respserver.acl.user import DEFAULT
from disque_trio.respserver.client import Client

SLICE: Final = 500  # names to look at in a turn; about a millisecond
MOST_TOLD: Final = 20  # names to log of one user


class Makers(Generic[V]):
    """Whether the schedules of a node, or its bindings, may act.

    Args:
        what: the word for one: ``schedule``.
        word: the command that makes one, as in rules: ``cron|set``.
        accesses: the queues that this command accesses for one, without PATTERN or with.
        known: the values.

    Attributes:
        stopped: why those that may not act may not, by name.
        tell: called with what has happened, and to which, for the log.
        turned: called when other values may act.
    """

    def __init__(
        self,
        what: str,
        word: str,
        accesses: Callable[[V], list[Access]],
        services: Services,
        known: Versions[V],
    ) -> None:
        self.stopped: dict[bytes, str] = {}
        self.tell: Callable[[str, str], None] = _nobody
        self.turned: Callable[[], None] = _nothing
        self._what = what
        self._word = word
        self._accesses = accesses
        self._machine = services.machine
        self._known = known
        self._timer = services.timer
        self._owned: dict[bytes, bytes] = {}  # the users of those that have one, by name
        self._pending: dict[bytes, None] = {}  # names to look at

    def problem(self, value: V) -> str:
        """Return why ``value`` may not act now; empty: it may."""
        return self._refusal(value)[1] if value.user else ""

    def allows(self, value: V) -> bool:
        """Whether ``value`` may act now."""
        return not value.user or not self._refusal(value)[1]

    def _refusal(self, value: V) -> tuple[str, str]:
        """Why ``value``, which has a user, may not act: the reason of ACL LOG, and a text; empty
        if it may."""
        whose = "user " + value.user.decode()
        user = self._machine.users.by_name.get(value.user)
        if user is None:
            return "auth", f"{whose} does not exist"
        if not user.enabled:
            return "auth", f"{whose} is off"
        if user.unrestricted:
            return "", ""
        accesses = self._accesses(value)
        refused = user.refusal(self._word, accesses)
        if refused is None:
            return "", ""
        reason, object = refused
        if reason == "command":
            return reason, f"{whose} may not run {self._word.replace('|', ' ').upper()}"
        does = "add to" if (object, ADD) in accesses else "take from"
        return reason, f"{whose} may not {does} {quote(object).decode()}"

    # ---- changes --------------------------------------------------------------------------------

    def changed(self, names: list[bytes]) -> None:
        """Look at the values with these names, which have changed."""
        for name in names:
            value = self._known.named(name)
            if value is not None and value.user:
                self._owned[name] = value.user
                self._pending[name] = None
            elif self._owned.pop(name, None) is not None:
                self._pending[name] = None
        self._call()

    def users_changed(self) -> None:
        """Look at all values: their users may have other rights."""
        for name in self._owned:
            self._pending[name] = None
        self.turned()
        self._call()

    def _call(self) -> None:
        if self._pending:
            self._timer.wake_by(max(self._machine.now, 1))

    def go_on(self, now: int) -> None:
        """Look at a slice of what has changed at ``now``, and say what may no longer act."""
        if not self._pending:
            return
        told: dict[tuple[bytes, bool], list[str]] = {}  # by user, and whether they act
        for name in list(self._pending)[:SLICE]:
            del self._pending[name]
            value = self._known.named(name)
            user = value.user if value is not None else b""
            reason, problem = ("", "")
            if value is not None and user:
                reason, problem = self._refusal(value)
            old = self.stopped.get(name, "")
            if problem == old:
                continue
            text = quote(name).decode()
            if problem:
                self.stopped[name] = problem
                text += f" ({problem})"
            else:
                del self.stopped[name]
            if not user:
                continue  # it is gone, or belongs to nobody now
            some = told.setdefault((user, not problem), [])
            some.append(text)
            if problem and len(some) <= MOST_TOLD:
                self._machine.users.log.add(now, reason, self._what, name, user, "")
        for (user, acts), some in told.items():
            state = "may act again" if acts else "do nothing any more"
            shown = some[:MOST_TOLD]
            if len(some) > MOST_TOLD:
                shown.append(f"and {len(some) - MOST_TOLD} more")
            self.tell(f"{self._what}s of the user {user.decode()} {state}", ", ".join(shown))
        self._call()


def maker_of(client: Client) -> bytes:
    """The user of what ``client`` makes; empty: it belongs to nobody."""
    name = client.user.name
    return b"" if name == DEFAULT else name


def of_schedule(schedule: Schedule) -> list[Access]:
    """The queue that ``schedule`` adds to."""
    return [(schedule.queue, ADD)]


def of_binding(binding: Binding) -> list[Access]:
    """The topic that is read for ``binding``, and the queue that it adds to."""
    return [topic_access(binding.topic), (binding.queue, ADD)]


def topic_access(topic: bytes) -> Access:
    """The right to read what is added to ``topic``. For an AMQP pattern, this is a glob that
    matches at least as much: what comes before its first wildcard, followed by anything."""
    words = topic.split(b".")
    for at, word in enumerate(words):
        if word in (b"*", b"#"):
            start = b"".join([TOPIC, *[before + b"." for before in words[:at]]])
            if word == b"#":
                start = start.removesuffix(b".")  # it may stand for no word
            return glob_prefix(start) + b"*", TAKE | PATTERN
    return TOPIC + topic, TAKE


def _nobody(what: str, details: str) -> None:
    pass


def _nothing() -> None:
    pass
