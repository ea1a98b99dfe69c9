"""Keeps the policies of queues, and which nodes announce extensions, in a file beside nodes.conf.

What a client changes is written before it is answered, so that OK means that it is on the disk.
What other nodes tell is written away from the turns: those nodes have it, too.
"""

import os
import threading

import trio

from disque_trio.cluster.membership import Membership
from disque_trio.config import Config
from disque_trio.disk import replace_file
from disque_trio.node.core.node import Node
from disque_trio.node.core.policy_words import PolicyError, format_file, parse_file
from disque_trio.process.logs import Log

SUFFIX = ".policies"
WRITE_AGAIN_SECONDS = 1.0


class PolicyFileError(Exception):
    """The file cannot be read; the text says why and what to do."""


class PolicyFile:
    """The file of one node. The lock of nodes.conf keeps other processes away.

    Args:
        config: where nodes.conf is.
        node: whose policies are kept.
        membership: the other nodes.

    Raises:
        PolicyFileError: it is damaged, or cannot be read.
    """

    def __init__(self, config: Config, node: Node, membership: Membership, log: Log) -> None:
        self._config = config
        self._node = node
        self._membership = membership
        self._log = log
        self._path = self._belongs()
        self._dumps = 0  # texts that were made so far
        self._written = 0  # the number of the one that is in the file
        self._writing = threading.Lock()
        self._stale = trio.Event()
        self._load()
        node.policy_sharing.keep = self.save
        node.policy_sharing.changed = self._changed
        membership.extensions_heard = self._changed

    def _belongs(self) -> str:
        return os.path.abspath(self._config.cluster_config_file) + SUFFIX  # noqa: PTH100

    def _load(self) -> None:
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123
                text = file.read()
        except FileNotFoundError:
            return
        except OSError as problem:
            raise PolicyFileError(f"cannot read {self._path}: {problem.strerror}") from problem
        try:
            announced = parse_file(text, self._node.policies)
        except PolicyError as damage:
            raise PolicyFileError(
                f"{self._path}: {damage}. Mend the file, or remove it: then the node has the "
                "policies that the other nodes of its cluster know"
            ) from damage
        self._membership.remember_extensions(announced)

    def _text(self) -> tuple[int, bytes]:
        self._dumps += 1
        return self._dumps, format_file(self._node.policies, self._membership.extensions())

    def _write(self, number: int, text: bytes) -> str | None:
        """Put ``text`` into the file, unless a later one is there; may be called in a thread.
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
        """Write what is known now; the caller waits for the disk. Returns why that failed, or
        None."""
        return self._write(*self._text())

    def _changed(self) -> None:
        self._stale.set()

    async def run(self) -> None:
        """Write the file whenever it is stale, until cancelled."""
        while True:
            await self._stale.wait()
            self._stale = trio.Event()  # what changes from here on is not in the text
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
        self._log.warning(
            "the policies of queues cannot be written", file=self._path, reason=problem
        )
