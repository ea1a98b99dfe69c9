"""Bindings: which queues get a copy of the jobs that are added to a topic.

A topic consists of words separated by dots, such as ``mail.new``. The topic of a binding may be a
pattern, by the rules of AMQP 0-9-1: ``*`` stands for exactly one word, ``#`` for any number of
words, or none.

All nodes of a cluster share the same bindings (see ``versions``).
"""

from collections.abc import Callable
from typing import Final

from disque_trio.node.core.shared.versions import (
    MAX_NAME,
    USER,
    Entry,
    Shared,
    SharedError,
    Versions,
    name_in,
)
from disque_trio.protocol.fields import Field

TOPIC: Final = b"@"  # the queue name of an ADDJOB begins with it if it is a topic
MAX_TOPIC: Final = 255  # bytes, as in AMQP
MAX_QUEUE: Final = MAX_NAME - MAX_TOPIC - 1  # bytes
MAX_BINDINGS: Final = 10_000  # that clients may set
MAX_GAPS: Final = 1_000  # bindings with # before other words: each may match in many ways
MAX_SIZE: Final = 4 * 1024 * 1024  # bytes of all that clients may set
_CACHED: Final = 100_000  # cached topics and names of queues


class Binding(Shared):
    """A queue that gets the jobs of a topic. ``name`` consists of both."""

    def __init__(self, topic: bytes, queue: bytes) -> None:
        super().__init__()
        self.name = topic + b" " + queue
        self.topic = topic
        self.queue = queue

    def has_gap(self) -> bool:
        """Whether other words follow a ``#``."""
        return b".#." in self.topic or self.topic.startswith(b"#.")

    def problem(self) -> str:
        if not 0 < len(self.queue) <= MAX_QUEUE or self.queue.startswith(TOPIC):
            return f"a queue that is bound must have 1 to {MAX_QUEUE} bytes, and no @ in front"
        return topic_problem(self.topic)

    def fields(self) -> list[Field]:
        return self.user_fields()


def topic_problem(topic: bytes) -> str:
    """Return why ``topic`` is not a valid topic; empty: it is one."""
    if not 0 < len(topic) <= MAX_TOPIC or topic.startswith(TOPIC) or b" " in topic:
        return f"a topic must have 1 to {MAX_TOPIC} bytes, no spaces, and no @ (but that of ADDJOB)"
    return ""


class Place:
    """The bindings whose topics begin with the same words.

    Attributes:
        next: the bindings that go on, by their next word.
        here: the bindings that end here, by queue.
        stays: the last word is ``#``: any word leads here again.
    """

    def __init__(self, stays: bool) -> None:
        self.next: dict[bytes, Place] = {}
        self.here: dict[bytes, Binding] = {}
        self.stays = stays


class Bindings(Versions[Binding]):
    """The bindings that a node knows.

    Attributes:
        gaps: how many have words after a ``#``.
        may: whether a binding may copy jobs now. ``forget_cached`` if its answers change.
    """

    def __init__(self) -> None:
        super().__init__(frozenset((USER,)))
        self.may: Callable[[Binding], bool] = _always
        self.gaps = 0
        self._root = Place(False)
        self._cache: dict[bytes, list[bytes]] = {}
        self._users: dict[bytes, dict[bytes, list[bytes]]] = {}  # cache of ``users_of``
        self._cached = 0

    def queues_of(self, topic: bytes) -> list[bytes]:
        """The sorted names of the queues that get a job for ``topic``. Do not change the list."""
        queues = self._cache.get(topic)
        if queues is None:
            may = self.may
            queues = sorted({binding.queue for binding in self.matching(topic) if may(binding)})
            if self._cached > _CACHED:
                self.forget_cached()
            self._cache[topic] = queues
            self._cached += 1 + len(queues)
        return queues

    def users_of(self, topic: bytes) -> dict[bytes, list[bytes]]:
        """The users of the bindings for which a queue gets a job for ``topic``, by queue, without
        queues for which a binding of nobody does. Do not change it."""
        found = self._users.get(topic)
        if found is None:
            found = {}
            free: set[bytes] = set()
            for binding in self.matching(topic):
                if not self.may(binding):
                    continue
                if binding.user:
                    found.setdefault(binding.queue, []).append(binding.user)
                else:
                    free.add(binding.queue)
            for queue in free:
                found.pop(queue, None)
            if self._cached > _CACHED:
                self.forget_cached()
            self._users[topic] = found
            self._cached += 1 + len(found)
        return found

    def matching(self, topic: bytes) -> list[Binding]:
        """The bindings that match ``topic``, in no particular order."""
        places: dict[Place, None] = {}
        _enter(places, self._root)
        for word in topic.split(b"."):
            reached: dict[Place, None] = {}
            for place in places:
                if place.stays:
                    _enter(reached, place)
                _enter(reached, place.next.get(word))
                _enter(reached, place.next.get(b"*"))
            places = reached
        return [binding for place in places for binding in place.here.values()]

    def forget_cached(self) -> None:
        """Look again which queues get the jobs of which topics."""
        self._cache.clear()
        self._users.clear()
        self._cached = 0

    # ---- changes --------------------------------------------------------------------------------

    def check(self, name: bytes, value: Binding, grows: int) -> None:
        if self.named(name) is None:
            if self.count >= MAX_BINDINGS:
                raise SharedError(f"there are {MAX_BINDINGS} bindings already, the maximum")
            if self.gaps >= MAX_GAPS and value.has_gap():
                raise SharedError(
                    f"there are {MAX_GAPS} bindings with # before other words already, the maximum"
                )
        if grows > 0 and self.size + grows > MAX_SIZE:
            raise SharedError(f"all bindings together would have more than {MAX_SIZE} bytes")

    def clear(self) -> None:
        self.gaps = 0
        self._root = Place(False)
        super().clear()

    def account(self, entry: Entry[Binding], step: int) -> None:
        super().account(entry, step)
        binding = entry.value
        if binding is None:
            return
        if binding.has_gap():
            self.gaps += step
        words = binding.topic.split(b".")
        path = [self._root]
        for word in words:
            place = path[-1].next.get(word)
            if place is None:
                place = path[-1].next[word] = Place(word == b"#")
            path.append(place)
        if step > 0:
            path[-1].here[binding.queue] = binding
            return
        del path[-1].here[binding.queue]
        while words and not path[-1].here and not path[-1].next:
            path.pop()
            del path[-1].next[words.pop()]

    def changed(self) -> None:
        self.forget_cached()

    def read(self, values: dict[int, bytes]) -> Binding:
        topic, _, queue = name_in(values).partition(b" ")
        binding = Binding(topic, queue)
        binding.user = values.get(USER, b"")
        return binding


def _always(binding: Binding) -> bool:
    return True


def _enter(places: dict[Place, None], place: Place | None) -> None:
    """Add ``place`` to ``places``, and the places behind ``#``, which may stand for no word."""
    while place is not None and place not in places:
        places[place] = None
        place = place.next.get(b"#")
