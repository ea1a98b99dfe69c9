"""Adapts the process of a node to the interface that its commands use."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from socket import socket
from typing import TYPE_CHECKING, Protocol

from disque_trio.cluster.cluster import Cluster
from disque_trio.config import Config, rewrite
from disque_trio.eventlog.recorder import EventLog
from disque_trio.health.lines import AlarmLine, in_order, lines_of
from disque_trio.node.core.node import Node
from disque_trio.node.index_file import IndexFile
from disque_trio.node.progress_file import ProgressFile
from disque_trio.node.sibling_table import DUMP, RESTART, SiblingReport
from disque_trio.node.worker import Worker
from disque_trio.notation.addresses import format_address
from disque_trio.process.restart import replace_process
from disque_trio.process.systemd import Notifier
from disque_trio.respserver.client import Client
from disque_trio.respserver.commands.info import Fields
from disque_trio.respserver.process_host import ProcessHost, Program, resident

if TYPE_CHECKING:
    from disque_trio.node.siblings import Siblings
    from disque_trio.node.together import Together


class NodeProgram(Program, Protocol):
    """The interface of the program that ``NodeHost`` belongs to."""

    node: Node
    event_log: EventLog
    progress_file: ProgressFile
    index_file: IndexFile
    siblings: "Siblings | None"

    def restart_problem(self) -> str | None:
        """Return why a new process could not take over from this one, or None."""


class NodeHost(ProcessHost):
    """Gives the commands of a node access to its process.

    Args:
        program: owns the node; not used before it is complete.
        config: CONFIG SET changes it.
        run_id: of this process, 40 hex characters.
        cluster: the node's part in its cluster.
        worker: which process of the server this is, if there are several.
        notifier: tells systemd the state of the node.
        activated: listening sockets that are not the node's own; a new process cannot open them.
    """

    def __init__(
        self,
        program: NodeProgram,
        config: Config,
        run_id: str,
        cluster: Cluster,
        worker: Worker | None,
        notifier: Notifier,
        activated: Sequence[socket],
    ) -> None:
        super().__init__(program, config, run_id, config.known_port, "disque")
        self._node_program = program
        self._config = config
        self._cluster = cluster
        self._worker = worker
        self._notifier = notifier
        self._activated = activated
        self._together: Together | None = None

    def move_problem(self, directory: str) -> str:
        return super().move_problem(directory) or self._cluster.move_problem(directory) or ""

    def write_settings(self) -> None:
        if self._worker is None:
            super().write_settings()
        else:
            rewrite(self._worker.shared(self._config))

    def begin_restart(self, client: Client) -> bool:
        siblings = self._node_program.siblings
        together = self._together
        if together is None or siblings is None or not siblings.is_open:
            return False
        if siblings.is_common(client):
            together.begin_restart(client)
            return True
        return False

    def begin_shutdown(self, client: Client) -> bool:
        siblings = self._node_program.siblings
        if self._together is None or siblings is None or not siblings.is_open:
            return False
        self._together.begin_shutdown(client)
        return True

    def work_together(self, siblings: "Siblings") -> None:
        """Do with the other processes what clients want of all."""
        from disque_trio.node.together import Together

        siblings.obey(self._obey)
        self._together = Together(
            siblings,
            self._engine,
            self.restart,
            self._restart_problem,
            self._dump,
            partial(self.shutdown, False),
        )

    def _obey(self, what: bytes) -> str | None:
        """Do what another process asks for; return what went wrong."""
        if what == RESTART:
            return self.restart()
        if what == DUMP:
            return self._dump()
        self._node_program.daemon.persistence.rewriting.apply()
        return None

    def _dump(self) -> str | None:
        problem = self._node_program.daemon.persistence.dump_now()
        return f"ERR Errors trying to SHUTDOWN. Check logs: {problem}" if problem else None

    def _restart_problem(self) -> str | None:
        problem = self._node_program.restart_problem()
        return None if problem is None else f"ERR RESTART is not possible: {problem}"

    def restart(self) -> str | None:
        daemon = self._node_program.daemon
        problem = self._restart_problem()
        if problem is not None:
            return problem
        # With an index, the file that there is says enough, and takes no time.
        if not self._is_known() and (problem := daemon.persistence.dump_now()):
            return f"ERR Errors trying to RESTART. Check logs: {problem}"
        daemon.engine.halt()
        daemon.restart()
        return None

    def _is_known(self) -> bool:
        """Whether the next process will know all from the files that there are."""
        program = self._node_program
        writer = program.daemon.persistence.file.writer
        good = writer is not None and not writer.problem and not writer.distrusted
        return good and program.progress_file.is_kept and program.index_file.is_worth_it()

    def look_up(self, name: str, found: Callable[[list[str]], None]) -> None:
        self._cluster.names.look_up(name, found)

    def crash(self, restart: bool, delay: int) -> None:
        if restart:
            self._cluster.save_changes()
            time.sleep(delay / 1000)
            # The node's own sockets close on exec; the new process binds them again.
            replace_process(self._notifier, self._config.started_in, self._activated)
        os.kill(os.getpid(), signal.SIGSEGV)

    def report(self, queued: int) -> SiblingReport:
        """What this process tells the others of its server; ``queued``: how many jobs are."""
        engine = self._engine
        node = self._node_program.node
        store = node.store
        ip, port = node.peers.endpoint()
        return SiblingReport(
            node.id,
            format_address(ip, port),
            {
                "process_id": os.getpid(),
                "uptime_in_seconds": self.uptime(),
                "connected_clients": len(engine.clients.by_id),
                "blocked_clients": node.blocked_clients,
                "used_memory": node.memory.used,
                "used_memory_rss": resident(),
                "maxmemory": node.memory.limit,
                "registered_jobs": node.held(),
                "queued_jobs": queued,
                "total_connections_received": engine.stats.connections,
                "total_commands_processed": node.total_commands,
                "total_jobs_added": store.total_added,
                "total_jobs_delivered": store.total_delivered,
                "total_jobs_acked": store.total_acked,
                "total_jobs_requeued": store.total_requeued,
                "total_jobs_expired": store.outcomes.total_expired,
                "total_jobs_dead": node.dead_letters.total_dead,
            },
            lines_of(self._node_program.daemon.health.alarms()),
        )

    def alarms(self) -> list[AlarmLine]:
        own = super().alarms()
        siblings = self._node_program.siblings
        if siblings is None:
            return own
        mine = [line._replace(process=siblings.number) for line in own]
        return in_order([*mine, *siblings.alarms()])

    def reset_stats(self) -> None:
        super().reset_stats()
        if self._node_program.siblings is not None:
            self._node_program.siblings.reset()

    def info(self) -> dict[str, Fields]:
        sections = super().info()
        siblings = self._node_program.siblings
        if siblings is not None:
            sections["server"] |= {"processes": siblings.count, "process": siblings.number}
            sections["stats"] |= siblings.figures()
            sections["processes"] = siblings.processes()
        sections["clients"]["cluster_connections"] = self._cluster.links.count
        sections["memory"]["mem_cluster_links"] = self._cluster.links.memory
        trust = self._cluster.membership.trust
        if trust is not None:
            sections["server"]["cluster_identity_key"] = trust.key.hex()
            sections["stats"]["cluster_identity_refused"] = trust.refused
        sections["persistence"] |= self._node_program.progress_file.info()
        sections["persistence"] |= self._node_program.index_file.info()
        sections["persistence"] |= self._node_program.event_log.info()
        return sections
