"""Assembles the node's part in its cluster: its id, the other members and the bus.

Owns nodes.conf while the process lives. Writes it outside the turns, since a disk may be slow; one
write at a time, and never an older text over a newer one.
"""

import math
import os
import socket
import threading
from collections.abc import Sequence
from random import Random

import trio

from disque_trio.cluster.buslinks import BusLinks
from disque_trio.cluster.identities import Identities
from disque_trio.cluster.keyring import Keyring
from disque_trio.cluster.keys_file import (
    KeysFileError,
    copy_key,
    is_key_of_another,
    load_key,
    load_keyring,
    save_keyring,
)
from disque_trio.cluster.membership import Membership
from disque_trio.cluster.names import NameLookups
from disque_trio.cluster.nodes_conf import NodesConfError, parse_nodes
from disque_trio.cluster.nodes_file import NodesFile
from disque_trio.config import Config
from disque_trio.process.clock import Clock
from disque_trio.process.logs import Log
from disque_trio.process.sockets import is_own_address, on_all_interfaces
from disque_trio.protocol.bus import PacketWriter
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.listeners import known_listeners, tcp_endpoints
from disque_trio.respserver.io.poller import Poller
from disque_trio.respserver.io.stats import Stats

SAVE_AGAIN_SECONDS = 1.0
MEET_EVERY = 1_000  # ms


class ClusterError(Exception):
    """The node cannot take part in a cluster, not even as its only member; the text says why and
    what to do."""


class Cluster:
    """The cluster state that a node needs before it starts: its own id and the known members.

    Args:
        other_workers: the other processes of this server: for each, the address at which to meet
            it, then one by which it may be known.

    Attributes:
        names: looks up the addresses of hosts.
        tls_offset: how far the port for TLS that only this node has is above the configured one.
        problem: why nodes.conf cannot be written; empty: it can.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        stats: Stats,
        log: Log,
        poller: Poller,
        other_workers: Sequence[Sequence[tuple[str, int]]] = (),
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        self._port = config.known_port
        self._dumps = 0  # texts that were made for the file so far
        self._written = 0  # the number of the one that is in the file
        self._writing = threading.Lock()
        self._changed = trio.Event()
        self._other_workers = other_workers
        self.tls_offset = 0
        self.problem = ""
        self.names = NameLookups()
        self.links = BusLinks(config, stats, log, poller)
        self.packets = PacketWriter(os.urandom(20).hex().encode(), config.known_port)
        self.membership = Membership(
            self.packets, self.links.connect, Random(), self._save_now, is_own_address
        )
        self._hurried = trio.Event()  # there may be something to do now
        self.links.hurry = self.membership.heartbeat.hurry = self._hurry
        self.membership.heartbeat.unmet = self._tell_unmet
        self._path = os.path.realpath(config.cluster_config_file)
        self._keyring: Keyring | None = None
        self._private = b""  # this node's private key as text
        self._file = NodesFile(self._path)
        try:
            self._load()
            if config.cluster_identity != "no":
                self._use_identity()
            elif config.cluster_encrypt:
                log.warning("cluster-encrypt encrypts nothing without cluster-identity")
        except BaseException:
            self._file.close()
            raise
        self.apply()

    def _load(self) -> None:
        """Load nodes.conf, or write the first one. Raises ``ClusterError``."""
        text = self._file.load()
        if text.strip():
            try:
                self.membership.load_conf(text, self._clock.now())
            except NodesConfError as damage:
                raise ClusterError(
                    f"{self._path}: {damage}. Repair the file, or remove it: then the node starts "
                    "with a new id and has to be met again"
                ) from damage
            return
        # Jobs on disk name their holders, so the id must be on disk before the first of them.
        problem = self.membership.save()
        if problem:
            raise ClusterError(f"{self._path} cannot be written: {problem}")

    def _use_identity(self) -> None:
        """Load the keys of this node and of others, and show who this node is from now on. Raises
        ``ClusterError``."""
        try:
            key = load_key(self._path)
            keyring = self._keyring = load_keyring(self._path)
        except KeysFileError as problem:
            raise ClusterError(str(problem)) from problem
        self._private = key.pem()
        trust = self.membership.use_identity(key.key, keyring)
        trust.required = self._config.cluster_identity == "yes"
        trust.tell = self._tell_of_key
        trust.accuse = self._accuse
        trust.close_links = self.links.part_with
        trust.stored = self._keys_changed
        self.links.identities = Identities(key, trust, self.packets)
        self._log.notice("cluster-identity: this node is known by its key", key=key.key.hex())

    def _keys_changed(self) -> None:
        """Write the keys of nodes with nodes.conf at the end of the turn."""
        self.membership.config_changed = True

    def _tell_of_key(self, text: str, id: bytes, key: bytes) -> None:
        self._log.warning(text, node=id.decode("ascii", "replace"), key=key.hex())

    def _accuse(self, text: str, id: bytes, key: bytes) -> None:
        self.links.tell_once(text, f"{id.decode('ascii', 'replace')} {key.hex()}")

    def listens(self, listeners: Sequence[socket.socket], bus: Sequence[socket.socket]) -> None:
        """Set where the node listens for clients and for other nodes."""
        known = known_listeners(listeners, self._config.tls_port)
        self._port = next((port for _, port in tcp_endpoints(known)), 0)
        self.links.enabled = len(bus) > 0
        named = [listener for listener in bus if not on_all_interfaces(listener)]
        families = {listener.family for listener in bus if listener not in named}
        # If all addresses of a family are listened on, the kernel's choice is best.
        self.links.sources = [
            listener.getsockname()[0] for listener in named if listener.family not in families
        ]
        self.apply()
        if families and self._config.protected_mode and not self.links.guarded:
            self._log.notice("the cluster bus serves nodes on this machine only (protected-mode)")

    def apply(self) -> None:
        """Apply changed settings."""
        config = self._config
        self.membership.heartbeat.node_timeout = config.cluster_node_timeout
        domain = config.cluster_failure_domain
        packets = self.packets
        packets.ip = config.cluster_announce_ip
        packets.port = config.cluster_announce_port or self._port
        packets.tls_port = config.cluster_announce_tls_port or config.tls_port
        if packets.tls_port:
            packets.tls_port += self.tls_offset
        self.membership.set_extensions(config.cluster_extensions)
        self.links.halves.apply()
        self.links.use_secrets(config.cluster_secret)
        if self.links.identities is not None:
            self.links.identities.encrypt = config.cluster_encrypt
        self._hurry()
        self.membership.spread(domain == "host" or (domain == "auto" and config.processes > 1))

    async def run(self, engine: Engine) -> None:
        """Keep the cluster up to date until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_saved)
            nursery.start_soon(self.names.run, engine)
            meet_at = 0
            # Start at once: after a restart, the others wait to hear from this node.
            while not engine.halted:
                now = self._clock.now()
                if self._other_workers and now >= meet_at:
                    self._meet_other_workers()
                    meet_at = now + MEET_EVERY
                self.links.cron(now)
                self.membership.cron(now)
                engine.after_node()
                self._hurried = trio.Event()
                dues = [self.links.next_due(), self.membership.heartbeat.next_due()]
                if self._other_workers:
                    dues.append(meet_at)
                due = min((due for due in dues if due), default=math.inf)
                with trio.move_on_after(max(due - self._clock.now(), 0) / 1000):
                    await self._hurried.wait()

    def _hurry(self) -> None:
        """Check again what is due: something may have become due earlier."""
        self._hurried.set()

    def _tell_unmet(self, ip: str, port: int) -> None:
        """Log that the node at this address, which was to be met, is given up."""
        self._log.warning("CLUSTER MEET had no success; try it again", ip=ip, port=port)

    def _meet_other_workers(self) -> None:
        """Meet the workers of this server that are not known yet."""
        for places in self._other_workers:
            if not self.membership.has(places):
                self.membership.meet(*places[0])

    # ---- nodes.conf -----------------------------------------------------------------------------

    def _write(self, number: int, text: str, keys: str | None) -> str | None:
        """Write ``text``, and the ``keys`` of nodes unless they are None, to the files, unless
        later ones are there. May be called in a thread."""
        with self._writing:
            if number < self._written:
                return None
            # The keys come first: a member without a pin would be taken for one from before
            # identities were used, and so would anybody that shows its id.
            problem = save_keyring(self._path, keys) if keys is not None else None
            if problem is None:
                problem = self._file.save(text)
            if problem is None:
                self._written = number
            return problem

    def changed(self) -> None:
        """Write nodes.conf now: a turn has changed its contents. A node that is killed before that
        forgets the nodes that it just met."""
        self._changed.set()

    async def _keep_saved(self) -> None:
        """Write nodes.conf whenever it has changed, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            await self._save()

    async def _save(self) -> None:
        membership = self.membership
        self._dumps += 1
        problem: str | None = "the node ended"
        text = membership.dump_conf()
        keys = self._keys()
        membership.config_changed = False  # later changes are not in the text
        try:
            problem = await trio.to_thread.run_sync(self._write, self._dumps, text, keys)
        finally:
            if problem is not None:
                membership.config_changed = True
        self.problem = problem or ""
        if problem is not None:
            await trio.sleep(SAVE_AGAIN_SECONDS)

    def _save_now(self, text: str) -> str | None:
        """CLUSTER SAVECONFIG: the caller waits for the disk."""
        self._dumps += 1
        return self._write(self._dumps, text, self._keys())

    def _keys(self) -> str | None:
        """The text for the file with the keys of nodes; None: nodes show no identity."""
        return self._keyring.dump() if self._keyring is not None else None

    def _tell(self, problem: str) -> None:
        self._log.warning("nodes.conf cannot be written", file=self._path, reason=problem)

    @property
    def path(self) -> str:
        """The path of nodes.conf."""
        return self._path

    def save_changes(self) -> None:
        """Write changes now: the process is about to end, and with it the thread that may be about
        to write."""
        if self.membership.config_changed or self._written < self._dumps:
            problem = self.membership.save()
            if problem:
                self._tell(problem)

    def move_problem(self, directory: str) -> str | None:
        """Return why nodes.conf cannot follow the node to ``directory``, or None."""
        name = self._config.cluster_config_file
        path = os.path.realpath(os.path.join(directory, name))
        if self._private and is_key_of_another(path, self._private):
            return f"there is the key of another node: {name}.key"
        if path == self._path or not os.path.exists(path):
            return None
        try:
            there = NodesFile(path)
        except OSError as problem:
            return str(problem)
        try:
            text = there.load()
            if not text.strip() or parse_nodes(text).myself.id == self.packets.id:
                return None  # empty, or left behind when the node went away from there
        except NodesConfError as problem:
            return f"there is a damaged {name}: {problem}"
        except OSError as problem:
            return str(problem)
        finally:
            there.close()
        return f"there is a {name} of another node"

    def move(self) -> None:
        """Follow a change of the working directory: nodes.conf has to be where the next start looks
        for it."""
        path = os.path.realpath(self._config.cluster_config_file)
        if path == self._path:
            return
        try:
            new = NodesFile(path)
        except OSError as problem:
            self._tell(str(problem))
            return
        with self._writing:
            old, self._file = self._file, new
            self._path = path
        old.close()
        problem_text = copy_key(path, self._private) if self._private else None
        problem_text = problem_text or self.membership.save()
        if problem_text:
            self._tell(problem_text)

    def close(self) -> None:
        """Write changes, and release the file."""
        self.save_changes()
        with self._writing:
            self._file.close()
