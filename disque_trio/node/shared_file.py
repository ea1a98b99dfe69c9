"""Keeps what all nodes share by name (policies, schedules ...) in files beside nodes.conf.

A client's change is written before the reply, so that OK means that it is on disk. Other nodes'
changes are written outside the turns: those nodes have them, too. Either kind is appended. A file
that has grown to a multiple of what it holds is replaced, and so is any whose changes were appended
when the node stops: earlier releases read only such a file. The text of a whole file is made in
pieces, between which clients are served.

A start skips lines that it cannot read, and keeps a copy of the file: the other nodes know what is
missing.
"""

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial

import trio

from disque_trio.cluster.membership import Membership
from disque_trio.config import Config
from disque_trio.disk import append_to_file, remove_leftovers, replace_file
from disque_trio.node.core import pause_words
from disque_trio.node.core.node import Node
from disque_trio.node.core.queue_pauses import QueuePause
from disque_trio.node.core.shared import binding_words, policy_words, schedule_words
from disque_trio.node.core.shared.bindings import Binding
from disque_trio.node.core.shared.policies import Policy
from disque_trio.node.core.shared.schedules import Schedule
from disque_trio.node.core.shared.sharing import Sharing
from disque_trio.node.core.shared.version_words import CHANGES, without_torn
from disque_trio.process.logs import Log

WRITE_AGAIN_SECONDS = 1.0
GROWTH = 3  # a file is replaced when it is this many times as long as what it holds,
SMALL = 64 * 1024  # and as many bytes longer,
COPIES = 100  # of files with lines that could not be read
MOST_TOLD = 20  # such lines to log
MANY = 1_000  # or when more names than that are to be written


class SharedFileError(Exception):
    """The file cannot be read; the text says why and what to do."""


class Text:
    """What is to be written.

    Attributes:
        number: of texts and changes, in their order.
        whole: it is the whole file; otherwise to be appended.
        data: bytes; empty until all pieces are made.
        since: texts that were appended after this one was made, as far as it is a whole file.
    """

    def __init__(self, number: int, whole: bool) -> None:
        self.number = number
        self.whole = whole
        self.data = b""
        self.since: list[bytes] = []


class SharedFile:
    """A file of one node. The lock of nodes.conf keeps other processes away.

    Args:
        config: says where nodes.conf is.
        what: its contents; also the end of its name.
        sharing: knows when the contents change.
        dump: makes the text of the file, in pieces; nothing: no file is needed.
        changes: makes the text to append after changes of these names.
        load: takes a text; returns the lines that it skipped, and why.

    Attributes:
        problem: why it cannot be written; empty: it can.

    Raises:
        SharedFileError: the file cannot be read.
    """

    def __init__(
        self,
        config: Config,
        what: str,
        sharing: Sharing[Policy] | Sharing[Schedule] | Sharing[Binding] | Sharing[QueuePause],
        dump: Callable[[], Iterator[bytes]],
        changes: Callable[[list[bytes]], bytes],
        load: Callable[[bytes], list[str]],
        log: Log,
    ) -> None:
        self._config = config
        self._what = what
        self._sharing = sharing
        self._dump = dump
        self._changes = changes
        self._log = log
        self._path = self._belongs()
        self.problem = ""
        self._number = 0  # of the last change or text
        self._pending: dict[bytes, int] = {}  # names to write, and the numbers of their changes
        # The last change that only a whole file has, which is to be written; 0: none.
        self._whole = 0
        self._grown = False  # it should be replaced, which can wait
        self._stale = trio.Event()
        # The rest describes the file, and is changed by whoever writes it, maybe in a thread.
        self._writing = threading.Lock()
        self._written = 0  # the number of the last text in it
        self._replaced = 0  # the number of the last whole one
        self._size = 0  # bytes; 0: there is no file
        self._base = 0  # bytes of it that are no later changes
        self._rewrite: Text | None = None  # the last whole text, until it is written
        self._load(load)
        sharing.keep = self.save
        sharing.changed = self.changed
        sharing.warn = self._warn

    def _belongs(self) -> str:
        path = os.path.abspath(self._config.cluster_config_file)
        return f"{path}.{self._what}"

    def _load(self, load: Callable[[bytes], list[str]]) -> None:
        remove_leftovers(self._path)
        try:
            with open(self._path, "rb") as file:
                found = file.read()
        except FileNotFoundError:
            return
        except OSError as problem:
            raise SharedFileError(f"cannot read {self._path}: {problem.strerror}") from problem
        text = without_torn(found)
        skipped = load(text)
        if skipped:
            self._sharing.skipped = len(skipped)
            copy = self._keep_copy(found)
            for line in skipped[:MOST_TOLD]:
                self._log.warning(
                    f"a line of the {self._what} was skipped: the node asks the others for what it "
                    "said",
                    file=self._path,
                    line=line,
                    copy=copy,
                )
        self._size = len(text)
        base = text.find(CHANGES)
        self._base = self._size if base < 0 else base
        if len(found) > len(text):
            self._log.warning(
                f"the last change of the {self._what} was not written completely",
                file=self._path,
                bytes=len(found) - len(text),
            )
        if skipped or text != found or not text.endswith(b"\n"):
            self.changed(None)

    def _keep_copy(self, found: bytes) -> str:
        """Keep ``found``, what was in the file, which is going to be replaced. Return the name of
        the copy, or why there is none."""
        for number in range(1, COPIES + 1):
            path = f"{self._path}.damaged-{number}"
            try:
                with open(path, "rb") as file:
                    if file.read() == found:
                        return path
            except FileNotFoundError:
                break
            except OSError as problem:
                return f"none: {problem.strerror}"
        try:
            replace_file(path, found)
        except OSError as problem:
            return f"none: {problem.strerror}"
        return path

    @property
    def path(self) -> str:
        """Its path."""
        return self._path

    def _warn(self, what: str, details: str) -> None:
        self._log.warning(what, details=details)

    # ---- writing --------------------------------------------------------------------------------

    def _begin(self, whole: bool) -> tuple[Text, Iterator[bytes]]:
        """The text to write now, without data, and the pieces of its data."""
        self._number += 1
        text = Text(self._number, whole)
        if not whole:
            names = [name for name, at in self._pending.items() if at > self._whole]
            return text, iter([self._changes(names)])
        self._rewrite = text
        self._whole = text.number
        return text, self._dump()

    def _fits(self) -> bool:
        """Whether the file is as this object left it, so that something can be appended."""
        with self._writing:
            try:
                return 0 < self._size == os.stat(self._path).st_size
            except OSError:
                return False

    def _write(self, text: Text) -> str | None:
        """Write ``text`` to the file, unless it is out of date. May be called in a thread. Returns
        why that failed, or None."""
        with self._writing:
            try:
                if text.whole:
                    self._replace(text)
                elif text.number > self._written and text.data:
                    self._append(text.data)
            except OSError as problem:
                return problem.strerror or str(problem)
            self._written = max(self._written, text.number)
            return None

    def _replace(self, text: Text) -> None:
        if text.number < self._replaced:
            return
        data = text.data
        if text.since:
            data += CHANGES + b"".join(text.since)
        if data or os.path.exists(self._path):
            replace_file(self._path, data)
        if self._rewrite is text:
            self._rewrite = None
        self._replaced = text.number
        self._size = len(data)
        self._base = len(text.data)

    def _append(self, data: bytes) -> None:
        line = CHANGES if self._size == self._base else b""
        append_to_file(self._path, line + data)
        self._size += len(line + data)
        if self._rewrite is not None:
            self._rewrite.since.append(data)

    def _settle(self) -> None:
        """Take note of what was written."""
        written = self._written
        self._pending = {name: at for name, at in self._pending.items() if at > written}
        if self._whole <= self._replaced:
            self._whole = 0
        self._grown = self._size > GROWTH * self._sharing.size() + SMALL
        if self._grown:
            self._stale.set()

    def save(self, names: list[bytes]) -> str | None:
        """Write what is known of ``names`` now, and wait for the disk. Return why that failed, or
        None. What was written of it then is replaced by the next that is written."""
        self._note(names)
        return self._save(not self._fits())

    def _save(self, whole: bool) -> str | None:
        before = self._whole
        text, pieces = self._begin(whole)
        text.data = b"".join(pieces)
        problem = self._write(text)
        if problem is None:
            self._settle()
        else:
            self._whole = before
        return problem

    def _note(self, names: list[bytes]) -> None:
        self._number += 1
        for name in names:
            self._pending[name] = self._number

    def changed(self, names: list[bytes] | None) -> None:
        """Note that something has changed: of ``names``, or anything (None)."""
        self._note(names or [])
        if names is None or len(self._pending) > MANY:
            self._whole = self._number
        self._stale.set()

    async def run(self) -> None:
        """Write what has changed whenever something has, until cancelled."""
        while True:
            await self._stale.wait()
            self._stale = trio.Event()  # later changes are not in the text
            problem: str | None = "the node ended"
            try:
                text, pieces = self._begin(self._whole > 0 or self._grown or not self._fits())
                made: list[bytes] = []
                for piece in pieces:
                    made.append(piece)
                    await trio.lowlevel.checkpoint()
                text.data = b"".join(made)
                problem = await trio.to_thread.run_sync(self._write, text)
            finally:
                if problem is None:
                    self._settle()
                else:
                    self._whole = self._number
                    self._stale.set()
            self.problem = problem or ""
            if problem is not None:
                await trio.sleep(WRITE_AGAIN_SECONDS)

    def move(self) -> None:
        """Follow a change of the working directory, as nodes.conf does."""
        path = self._belongs()
        if path != self._path:
            with self._writing:
                self._path = path
            self._save_last()

    def close(self) -> None:
        """Write what is not written yet: the process is about to end."""
        if self._stale.is_set() or self._pending or self._whole or self._size > self._base:
            self._save_last()

    def _save_last(self) -> None:
        problem = self._save(True)
        if problem is not None:
            self._tell(problem)

    def _tell(self, problem: str) -> None:
        self._log.warning(f"the {self._what} cannot be written", file=self._path, reason=problem)


def policies_file(config: Config, node: Node, membership: Membership, log: Log) -> SharedFile:
    """The file of the policies of ``node``, and of the extensions that other nodes announce. Raises
    ``SharedFileError``."""
    policies = node.policies

    def dump() -> Iterator[bytes]:
        return policy_words.format_file(policies, membership.extensions())

    def load(text: bytes) -> list[str]:
        nodes: dict[bytes, int] = {}
        skipped = policy_words.parse_file(text, policies, nodes)
        membership.remember_extensions(nodes)
        return skipped

    changes = partial(policy_words.format_changes, policies)
    file = SharedFile(config, "policies", node.policy_sharing, dump, changes, load, log)
    membership.extensions_heard = lambda: file.changed(None)
    return file


def schedules_file(config: Config, node: Node, log: Log) -> SharedFile:
    """The file of the schedules of ``node``. Raises ``SharedFileError``."""
    schedules, sharing = node.ticks.schedules, node.ticks.sharing

    def load(text: bytes) -> list[str]:
        skipped = schedule_words.parse_file(text, schedules)
        sharing.on_change(list(schedules.entries))
        return skipped

    dump = partial(schedule_words.format_file, schedules)
    changes = partial(schedule_words.format_changes, schedules)
    return SharedFile(config, "schedules", sharing, dump, changes, load, log)


def bindings_file(config: Config, node: Node, log: Log) -> SharedFile:
    """The file of the bindings that ``node`` knows. Raises ``SharedFileError``."""
    bindings, sharing = node.topics.bindings, node.topics.sharing

    def load(text: bytes) -> list[str]:
        skipped = binding_words.parse_file(text, bindings)
        sharing.on_change(list(bindings.entries))
        return skipped

    dump = partial(binding_words.format_file, bindings)
    changes = partial(binding_words.format_changes, bindings)
    return SharedFile(config, "bindings", sharing, dump, changes, load, log)


def pauses_file(config: Config, node: Node, log: Log) -> SharedFile:
    """The file of the pauses that ``node`` shares with others. Raises ``SharedFileError``."""
    pauses = node.queue_pauses.known
    dump = partial(pause_words.format_file, pauses)
    changes = partial(pause_words.format_changes, pauses)
    load = partial(pause_words.parse_file, pauses=pauses)
    return SharedFile(config, "pauses", node.queue_pauses.sharing, dump, changes, load, log)
