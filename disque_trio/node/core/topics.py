"""Adds jobs to topics: one ADDJOB for each bound queue.

Each of these is run for a stand-in for the client. Its replies, in the order of the queues, make
the array that the client gets. So each waits for its copies, and fails, like a separate command.

They are run at once as far as a turn has room for them; the rest is run in slices, between which
other clients are served. Later commands of the client wait until all have been started.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from disque_trio.node.core.jobs.waits import REMOVED
from disque_trio.node.core.rpc.services import Services
from disque_trio.node.core.shared.bindings import TOPIC, Bindings
from disque_trio.node.core.shared.makers import Makers, of_binding
from disque_trio.node.core.shared.sharing import SharedMaps, Sharing
from disque_trio.protocol import bus
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.client import ANYBODY, Client, Pending
from disque_trio.respserver.command import CommandError

if TYPE_CHECKING:
    from mypy_extensions import i64

SLICE: Final = 50  # jobs; about a millisecond
SLICE_WORDS: Final = 2_000  # words of their ADDJOBs
SLICE_BYTES: Final = 1 << 20  # of their bodies
MOST_LEFT: Final = 1 << 20  # jobs that remain to be added


class FanOut(Pending):
    """The pending reply of an ADDJOB for a topic.

    Attributes:
        part: the stand-in that adds the jobs and gets their replies.
        args: of the ADDJOB.
        queues: get a job each.
        begun: how many of them have been handled.
        most: jobs in a slice.
        users: those of the bindings, by queue; empty: no user has a budget.
    """

    __slots__ = ("args", "begun", "most", "part", "queues", "users")

    def __init__(self, client: Client, args: list[bytes], queues: list[bytes], slice: int) -> None:
        super().__init__(client, None)
        part = self.part = Client(client.id)
        part.name = client.name
        part.label = client.label
        self.args = args
        self.queues = queues
        self.begun = 0
        self.users: dict[bytes, list[bytes]] = {}
        size = len(args[2])
        self.most = max(1, min(slice, SLICE_WORDS // len(args), SLICE_BYTES // (size + 1)))

    @property
    def left(self) -> int:
        """The number of queues that have not been handled yet."""
        return len(self.queues) - self.begun

    def replies(self) -> bytes:
        """The array of all replies, or, if all are the same error, that error."""
        out = self.part.out
        first = out[0]
        if first[:1] == b"-" and out.count(first) == len(out):
            return first
        return b"*%d\r\n" % len(out) + b"".join(out)


class Topics:
    """The topics of one node.

    Args:
        shared_maps: what all nodes share.

    Attributes:
        bindings: the known ones.
        sharing: shares them with other nodes.
        makers: the users who made them.
        slice: jobs in a slice.
        most_left: how many jobs may remain to be added; beyond that, new ADDJOBs for topics are
            refused.
        waiting: the ADDJOBs that have not been answered, by their stand-ins.
        is_full: whether the queues of a user hold as much as its budget lets them.
    """

    def __init__(self, services: Services, shared_maps: SharedMaps) -> None:
        machine = services.machine
        known = self.bindings = Bindings()
        self.sharing = Sharing("bindings", bus.BINDINGS, services, known, shared_maps)
        self.makers = Makers("binding", "bind", of_binding, services, known)
        self.makers.turned = known.forget_cached
        known.may = self.makers.allows
        self.sharing.on_change = self.makers.changed
        self.slice = SLICE
        self.most_left = MOST_LEFT
        self.waiting: dict[Client, FanOut] = {}
        self.is_full: Callable[[User], bool] = _never
        self._machine = machine
        self._timer = services.timer
        self._in_slices: deque[FanOut] = deque()
        self._begun: list[Client] = []  # stand-ins that left it since the last ``settle``
        self._left = 0  # jobs that these have yet to add
        self._now: i64 = 0
        self._room = 0  # jobs that may be added at once at ``_now``

    def add(self, client: Client, args: list[bytes], queues: list[bytes]) -> None:
        """Add the job of the ADDJOB ``args`` to each of ``queues``.

        Raises:
            CommandError: too many jobs remain to be added.
        """
        if not queues:
            client.out.append(b"*0\r\n")
            return
        if self._left + len(queues) > self.most_left:
            raise CommandError(
                f"ERR more than {self.most_left} jobs are being added to topics, try later"
            )
        if self._now != self._machine.now:
            self._now = self._machine.now
            self._room = self.slice
        fan_out = FanOut(client, args, queues, self.slice)
        if self._machine.memory.shares is not None:
            fan_out.users = self.bindings.users_of(args[1][len(TOPIC) :])
        if client.paced:
            client.user.use.pace.spend(len(queues) - 1)
        self._room -= self._go_on(fan_out, min(fan_out.most, self._room))
        part = fan_out.part
        if not fan_out.left and not part.in_flight:
            client.out.append(fan_out.replies())
            return
        client.line_up(fan_out)
        self.waiting[part] = fan_out
        if fan_out.left:
            self._in_slices.append(fan_out)
            self._left += fan_out.left
            client.in_slices += fan_out.left
            self._timer.wake_by(self._machine.now)

    def _go_on(self, fan_out: FanOut, most: int) -> int:
        """Run up to ``most`` further ADDJOBs of ``fan_out``; return how many."""
        machine = self._machine
        begun = fan_out.begun
        queues = fan_out.queues[begun : begun + most]
        rest = fan_out.args[2:]
        for queue in queues:
            if fan_out.users:
                fan_out.part.user = self._user_of(fan_out.users.get(queue, []))
            machine.command(fan_out.part, [b"ADDJOB", queue, *rest], machine.now)
        fan_out.begun = begun + len(queues)
        return len(queues)

    def _user_of(self, names: list[bytes]) -> User:
        """The user whose budget a copy has to fit into, of those with these ``names``, who made the
        bindings: if possible, one with room. ``ANYBODY``: none."""
        found = ANYBODY
        for name in names:
            user = self._machine.users.by_name.get(name)
            if user is not None:
                found = user
                if not self.is_full(user):
                    break
        return found

    def go_on(self, now: int) -> None:
        """Do a slice of the first unfinished ADDJOB."""
        if not self._in_slices:
            return
        fan_out = self._in_slices[0]
        done = self._go_on(fan_out, fan_out.most)
        self._left -= done
        fan_out.client.in_slices -= done
        if not fan_out.left:
            self._in_slices.popleft()
            self._begun.append(fan_out.part)
            self._machine.woken.append(fan_out.client)  # its next commands may begin
        if self._in_slices:
            self._timer.wake_by(now)

    def settle(self) -> None:
        """Reply to ADDJOBs that have all their replies, at the end of a turn. Call it only while
        ``waiting``, after the stand-ins got their replies."""
        machine = self._machine
        begun, self._begun = self._begun, []
        for part in [*begun, *machine.woken]:
            fan_out = self.waiting.get(part)
            if fan_out is not None and not fan_out.left and not part.in_flight:
                del self.waiting[part]
                fan_out.reply = fan_out.replies()
                machine.answered.append(fan_out)

    def forget_client(self, client: Client) -> None:
        """Stop the ADDJOBs of ``client``, which has disconnected, and their waits."""
        for fan_out in client.reply_queue:
            if isinstance(fan_out, FanOut) and fan_out.reply is None:
                self._stop(fan_out)
                del self.waiting[fan_out.part]
                self._machine.forget_client(fan_out.part)

    def _stop(self, fan_out: FanOut) -> None:
        """Start no more ADDJOBs of ``fan_out``."""
        left = fan_out.left
        if left:
            self._in_slices.remove(fan_out)
            self._left -= left
            fan_out.client.in_slices -= left
            fan_out.begun += left

    def flush(self) -> None:
        """Start over: all jobs have been forgotten. Jobs that remain are not added."""
        for fan_out in list(self._in_slices):
            for _ in range(fan_out.left):
                fan_out.part.line_up(Pending(fan_out.part, REMOVED))
            self._stop(fan_out)
            self._machine.answered.append(fan_out.part.reply_queue[-1])


def _never(user: User) -> bool:
    return False
