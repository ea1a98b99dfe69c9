"""Keeps what all nodes share by name (policies, schedules, bindings) in files beside nodes.conf.

A client's change is written before the reply, so that OK means that it is on disk. Other nodes'
changes are written outside the turns: those nodes have them, too.
"""

import os
import threading
from collections.abc import Callable

import trio

from disque_trio.cluster.membership import Membership
from disque_trio.config import Config
from disque_trio.disk import replace_file
from disque_trio.node.core import binding_words, policy_words, schedule_words
from disque_trio.node.core.bindings import Binding
from disque_trio.node.core.node import Node
from disque_trio.node.core.policies import Policy
from disque_trio.node.core.schedules import Schedule
from disque_trio.node.core.sharing import Sharing
from disque_trio.node.core.versions import SharedError
from disque_trio.process.logs import Log

WRITE_AGAIN_SECONDS = 1.0


class SharedFileError(Exception):
    """The file cannot be read; the text says why and what to do."""


class SharedFile:
    """A file of one node. The lock of nodes.conf keeps other processes away.

    Args:
        config: says where nodes.conf is.
        what: its contents; also the end of its name.
        sharing: knows when the contents change.
        dump: makes the text of the file; empty: no file is needed.
        load: takes a text; raises ``SharedError``.

    Raises:
        SharedFileError: the file is damaged, or cannot be read.
    """

    def __init__(
        self,
        config: Config,
        what: str,
        sharing: Sharing[Policy] | Sharing[Schedule] | Sharing[Binding],
        dump: Callable[[], bytes],
        load: Callable[[bytes], None],
        log: Log,
    ) -> None:
        self._config = config
        self._what = what
        self._dump = dump
        self._log = log
        self._path = self._belongs()
        self._dumps = 0  # texts that were made so far
        self._written = 0  # the number of the one that is in the file
        self._writing = threading.Lock()
        self._stale = trio.Event()
        self._load(load)
        sharing.keep = self.save
        sharing.changed = self.changed

    def _belongs(self) -> str:
        path = os.path.abspath(self._config.cluster_config_file)  # noqa: PTH100
        return f"{path}.{self._what}"

    def _load(self, load: Callable[[bytes], None]) -> None:
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123
                text = file.read()
        except FileNotFoundError:
            return
        except OSError as problem:
            raise SharedFileError(f"cannot read {self._path}: {problem.strerror}") from problem
        try:
            load(text)
        except SharedError as damage:
            raise SharedFileError(
                f"{self._path}: {damage}. Repair the file, or remove it: then the node has the "
                f"{self._what} that the other nodes of its cluster know"
            ) from damage

    def _text(self) -> tuple[int, bytes]:
        self._dumps += 1
        return self._dumps, self._dump()

    def _write(self, number: int, text: bytes) -> str | None:
        """Write ``text`` to the file, unless a later one is there. May be called in a thread.
        Returns why that failed, or None."""
        with self._writing:
            if number < self._written:
                return None
            try:
                if text or os.path.exists(self._path):  # noqa: PTH110
                    replace_file(self._path, text)
            except OSError as problem:
                return problem.strerror or str(problem)
            self._written = number
            return None

    def save(self) -> str | None:
        """Write what is known now, and wait for the disk. Return why that failed, or None."""
        return self._write(*self._text())

    def changed(self) -> None:
        """Note that the contents of the file have changed."""
        self._stale.set()

    async def run(self) -> None:
        """Write the file whenever it is stale, until cancelled."""
        while True:
            await self._stale.wait()
            self._stale = trio.Event()  # later changes are not in the text
            problem: str | None = "the node ended"
            number, text = self._text()
            try:
                problem = await trio.to_thread.run_sync(self._write, number, text)
            finally:
                if problem is not None:
                    self._stale.set()
            if problem is not None:
                self._tell(problem)
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
        if self._stale.is_set() or self._written < self._dumps:
            self._save_last()

    def _save_last(self) -> None:
        problem = self.save()
        if problem is not None:
            self._tell(problem)

    def _tell(self, problem: str) -> None:
        self._log.warning(f"the {self._what} cannot be written", file=self._path, reason=problem)


def policies_file(config: Config, node: Node, membership: Membership, log: Log) -> SharedFile:
    """The file of the policies of ``node``, and of the extensions that other nodes announce. Raises
    ``SharedFileError``."""

    def dump() -> bytes:
        return policy_words.format_file(node.policies, membership.extensions())

    def load(text: bytes) -> None:
        membership.remember_extensions(policy_words.parse_file(text, node.policies))

    file = SharedFile(config, "policies", node.policy_sharing, dump, load, log)
    membership.extensions_heard = file.changed
    return file


def schedules_file(config: Config, node: Node, log: Log) -> SharedFile:
    """The file of the schedules of ``node``. Raises ``SharedFileError``."""

    def dump() -> bytes:
        return schedule_words.format_file(node.ticks.schedules)

    def load(text: bytes) -> None:
        schedule_words.parse_file(text, node.ticks.schedules)
        node.ticks.sharing.heard(list(node.ticks.schedules.entries))

    return SharedFile(config, "schedules", node.ticks.sharing, dump, load, log)


def bindings_file(config: Config, node: Node, log: Log) -> SharedFile:
    """The file of the bindings that ``node`` knows. Raises ``SharedFileError``."""
    topics = node.topics

    def dump() -> bytes:
        return binding_words.format_file(topics.bindings)

    def load(text: bytes) -> None:
        binding_words.parse_file(text, topics.bindings)

    return SharedFile(config, "bindings", topics.sharing, dump, load, log)
