"""CLUSTER and HELLO: list, add and remove nodes of the cluster."""

from collections.abc import Callable
from typing import Final

from disque_trio.cluster.keyring import parse_key
from disque_trio.cluster.members import is_node_id
from disque_trio.cluster.membership import PRIORITY_BAD, PRIORITY_OK, PRIORITY_SUSPECT
from disque_trio.cluster.peers import Peer
from disque_trio.cluster.troubles import TROUBLE_FULL, TROUBLE_SLOW
from disque_trio.cluster.trust import Trust
from disque_trio.health import deeds
from disque_trio.node.core.node import Node
from disque_trio.node.core.queues.owners import able, owner
from disque_trio.process.addresses import is_host_name, is_port, plain_ip
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import OK, Text, Value, encode, error
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands import connection
from disque_trio.respserver.commands.arguments import SYNTAX

_FALLBACK: Final = "ERR Wrong CLUSTER subcommand or number of arguments"
_HELLO_FORMAT: Final = 1
_DEEDS: Final = {
    b"forget": deeds.FORGOTTEN,
    b"expel": deeds.EXPELLED,
    b"readmit": deeds.READMITTED,
    b"reset": deeds.RESET,
}


def cluster(node: Node, client: Client, args: list[bytes]) -> None:
    """CLUSTER and its subcommands."""
    word = args[1].lower()
    count = len(args)
    answer = _ANSWERS.get(word) if count == 2 else None
    if answer is not None:
        client.out.append(encode(answer(node, client), client.resp))
        return
    if word == b"meet" and count in (4, 6):
        key = _key_to_show(node, args[4:])
        _meet(node, client, args[2].decode("utf-8", "replace"), args[3], key)
        return
    if word == b"leaving" and count == 2:
        client.out.append(b"+yes\r\n" if node.peers.leaving else b"+no\r\n")
        return
    if word == b"leaving" and count == 3:
        _set_leaving(node, args[2].lower())
    elif word == b"reset" and count in (2, 3):
        _reset(node, args[2].lower() if count == 3 else b"soft")
    elif word == b"saveconfig" and count == 2:
        _save(node)
    elif word == b"forget" and count == 3:
        _forget(node, args[2])
    elif word == b"expel" and count == 3:
        _expel(node, args[2])
    elif word == b"readmit" and count == 3:
        _readmit(node, args[2])
    else:
        raise CommandError(_FALLBACK)
    client.out.append(OK)
    _tell(node, client, word, args[2:])


def _tell(node: Node, client: Client, word: bytes, rest: list[bytes]) -> None:
    """Have the log tell that ``client`` did what the subcommand ``word`` does."""
    if word == b"leaving":
        node.host.did(client, deeds.LEAVES if node.peers.leaving else deeds.STAYS)
    elif word in _DEEDS:
        node.host.did(client, _DEEDS[word], rest[0] if rest else b"")


def _nodes(node: Node) -> str:
    text = node.peers.describe()
    if text:
        return text
    flags = "myself,leaving" if node.peers.leaving else "myself"  # a node that has no bus
    ip, port = node.peers.endpoint()
    return f"{node.id.decode()} {ip}:{port} {flags} 0 0 connected\n"


def _info(node: Node) -> str:
    peers = node.peers
    trust = peers.trust
    about_keys = ""
    if trust is not None:
        about_keys = (
            f"cluster_identity:{'yes' if trust.required else 'optional'}\r\n"
            f"cluster_identity_key:{trust.key.hex()}\r\n"
            f"cluster_identity_pinned:{len(trust.keyring.pins)}\r\n"
            f"cluster_identity_missing:{trust.unpinned()}\r\n"
            f"cluster_identity_expelled:{len(trust.keyring.expelled())}\r\n"
            f"cluster_identity_refused:{trust.refused}\r\n"
        )
    return (
        "cluster_state:ok\r\n"
        f"cluster_known_nodes:{1 + len(peers.others())}\r\n"
        f"cluster_reachable_nodes:{len(peers.reachable)}\r\n"
        f"cluster_size:{peers.size}\r\n"
        f"cluster_stats_messages_sent:{peers.messages_sent}\r\n"
        f"cluster_stats_messages_received:{peers.messages_received}\r\n" + about_keys
    )


def _set_leaving(node: Node, word: bytes) -> None:
    if word not in (b"yes", b"no"):
        raise CommandError("ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'")
    node.set_leaving(word == b"yes")


def _hand_over(node: Node) -> int:
    """Begin, or go on, to give all jobs away. Returns how many others may not have."""
    if not node.peers.leaving:
        raise CommandError("ERR This node stays. CLUSTER LEAVING yes comes first")
    node.handover.begin(node.now)
    return node.handover.left()


def _reset(node: Node, word: bytes) -> None:
    if word not in (b"soft", b"hard"):
        raise CommandError(SYNTAX)
    node.flush()
    if word == b"hard":
        node.renew_id()
        node.shared_maps.clear()
    node.peers.reset(node.id)


def _save(node: Node) -> None:
    problem = node.peers.save()
    if problem is not None:
        raise CommandError(f"ERR error saving the cluster node config: {problem}")


def _forget(node: Node, id: bytes) -> None:
    if not is_node_id(id):
        raise CommandError("ERR Invalid node identifier")
    if id == node.id:
        raise CommandError("ERR I tried hard but I can't forget myself...")
    if not node.peers.forget(id):
        raise CommandError(f"ERR Unknown node {id.decode()}")


def _trust(node: Node) -> Trust:
    """The keys of nodes. Raises ``CommandError`` if nodes show no identity."""
    trust = node.peers.trust
    if trust is None:
        raise CommandError("ERR This node has no cluster-identity")
    return trust


def _key_to_show(node: Node, words: list[bytes]) -> bytes:
    """The key that a node has to show, from KEY and the key; empty: there are no ``words``."""
    if not words:
        return b""
    if words[0].lower() != b"key":
        raise CommandError(SYNTAX)
    _trust(node)
    return _parse_key(words[1])


def _parse_key(word: bytes) -> bytes:
    key = parse_key(word.decode("utf-8", "replace"))
    if not key:
        raise CommandError("ERR A key has 64 hex characters")
    return key


def _keys(node: Node) -> Value:
    """For each key: id of the node (empty: unknown), key, state, and who vouched for it."""
    trust = _trust(node)
    keyring = trust.keyring
    lines: list[Value] = [[node.id, trust.key.hex().encode(), b"myself", b""]]
    for pin in sorted(keyring.pins.values()):
        state = b"expelled" if keyring.is_expelled(pin.key) else b"pinned"
        lines.append([pin.id, pin.key.hex().encode(), state, pin.by])
    known = {pin.key for pin in keyring.pins.values()}
    others = [key for key in sorted(keyring.expelled()) if key not in known]
    return lines + [[b"", key.hex().encode(), b"expelled", b""] for key in others]


def _expel(node: Node, word: bytes) -> None:
    trust = _trust(node)
    key = trust.keyring.key_of(word) if is_node_id(word) else _parse_key(word)
    if word == node.id or key == trust.key:
        raise CommandError("ERR A node cannot expel itself: ask another one")
    if not key:
        raise CommandError(f"ERR No key of node {word.decode()} is known")
    trust.expel(key)
    _save(node)


def _readmit(node: Node, word: bytes) -> None:
    trust = _trust(node)
    key = _parse_key(word)
    if not trust.keyring.is_expelled(key):
        raise CommandError("ERR That key is not expelled")
    if not trust.readmit(key):
        raise CommandError("ERR That key is expelled for good: the node needs a new one")
    _save(node)


class Meeting(Pending):
    """The pending reply to a CLUSTER MEET whose ``host`` is being looked up."""

    __slots__ = ("_host", "_key", "_node", "_port")

    def __init__(self, node: Node, client: Client, host: str, port: int, key: bytes) -> None:
        super().__init__(client, None)
        self._key = key
        self._node = node
        self._host = host
        self._port = port

    def found(self, addresses: list[str]) -> None:
        """Meet the node at ``addresses``; empty: none were found."""
        # If one address fails, another may work; and if a name stands for several nodes, these are
        # meant to form one cluster.
        for address in addresses:
            self._node.peers.meet(address, self._port, self._key)
        self.reply = OK if addresses else error(f"ERR No address found for '{self._host}'")
        self._node.answered.append(self)


def _meet(node: Node, client: Client, host: str, port: bytes, key: bytes) -> None:
    number = parse_int(port)
    if number is None:
        raise CommandError("ERR Invalid TCP port specified: " + port.decode("utf-8", "replace"))
    address = "" if "%" in host else plain_ip(host)  # a zone is only valid on one machine
    if not (address or is_host_name(host)) or not is_port(number):
        raise CommandError(f"ERR Invalid node address specified: {host}:{port.decode()}")
    node.host.did(client, deeds.MET, b"%b:%b" % (host.encode(), port))
    if address:
        node.peers.meet(address, number, key)
        client.out.append(OK)
    else:
        meeting = Meeting(node, client, host, number, key)
        client.line_up(meeting)
        node.host.look_up(host, meeting.found)


def hello(node: Node, client: Client, args: list[bytes]) -> None:
    """HELLO: this node and all others with their priorities, as Disque clients expect. With a
    protocol version it is Redis's handshake."""
    if len(args) == 1:
        if not client.authenticated:
            raise CommandError("NOAUTH Authentication required.")
        _hello_nodes(node, client)
    else:
        connection.hello(node, client, args)


def _hello_nodes(node: Node, client: Client) -> None:
    lines: list[Value] = [line for _, line in _lines(node, client)]
    client.out.append(encode([_HELLO_FORMAT, node.id, *lines], client.resp))


def _lines(node: Node, client: Client) -> "list[tuple[Peer, list[Value]]]":
    """All nodes, and what HELLO tells ``client`` of each."""
    bad = node.peers.leaving or node.add_problem != ""
    poor = node.peers.trouble & (TROUBLE_FULL | TROUBLE_SLOW) != 0
    me = _myself(node, PRIORITY_BAD if bad else PRIORITY_SUSPECT if poor else PRIORITY_OK)
    tls = node.host.over_tls(client)
    return [
        (peer, [*_place(peer, tls), b"%d" % peer.priority]) for peer in [me, *node.peers.others()]
    ]


def _processes(node: Node, client: Client) -> Value:
    """For each node as people count them, its processes: the number of each, and its line of
    HELLO."""
    found: dict[bytes, dict[int, list[Value]]] = {}
    for peer, line in _lines(node, client):
        number = peer.process[8] if peer.process else 0
        found.setdefault(peer.process[:8] or peer.id, {})[number] = [number, *line]
    return [[lines[number] for number in sorted(lines)] for lines in found.values()]


def qowner(node: Node, client: Client, args: list[bytes]) -> None:
    """QOWNER queue [queue ...]: the node that is best for each queue now."""
    tls = node.host.over_tls(client)
    peers = {peer.id: peer for peer in node.peers.others() if peer.ip}
    peers[node.id] = _myself(node, PRIORITY_OK)
    ids = [id for id in able(node.peers, node.id) if id in peers] or [node.id]
    places: list[Value] = [_place(peers[owner(queue, ids)], tls) for queue in args[1:]]
    client.out.append(encode(places, client.resp))


def _myself(node: Node, priority: int) -> Peer:
    ip, port = node.peers.endpoint()
    return Peer(node.id, ip, port, priority, node.peers.tls_port, node.peers.own_process)


_ANSWERS: "Final[dict[bytes, Callable[[Node, Client], Value]]]" = {
    b"nodes": lambda node, client: Text(_nodes(node).encode()),
    b"processes": _processes,
    b"info": lambda node, client: Text(_info(node).encode()),
    b"myid": lambda node, client: node.id,
    b"mykey": lambda node, client: _trust(node).key.hex().encode(),
    b"keys": lambda node, client: _keys(node),
    b"handover": lambda node, client: _hand_over(node),
}


def _place(peer: Peer, tls: bool) -> list[Value]:
    """Where clients reach a node: id, ip and port, that for TLS if they use it."""
    port = peer.tls_port if tls and peer.tls_port else peer.port
    return [peer.id, peer.ip.encode(), b"%d" % port]
