"""CLUSTER and HELLO: list, add and remove nodes of the cluster."""

from typing import Final

from disque_trio.cluster.members import is_node_id
from disque_trio.cluster.membership import PRIORITY_BAD, PRIORITY_OK
from disque_trio.cluster.peers import Peer
from disque_trio.node.core.node import Node
from disque_trio.process.addresses import is_host_name, is_port, plain_ip
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import OK, Text, Value, encode, error
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands import connection
from disque_trio.respserver.commands.arguments import SYNTAX

_FALLBACK: Final = "ERR Wrong CLUSTER subcommand or number of arguments"
_HELLO_FORMAT: Final = 1


def cluster(node: Node, client: Client, args: list[bytes]) -> None:
    """CLUSTER NODES, INFO, MYID, LEAVING [yes|no], RESET [SOFT|HARD], SAVECONFIG, FORGET id,
    MEET host port."""
    word = args[1].lower()
    count = len(args)
    answer: Value
    if word == b"nodes" and count == 2:
        answer = Text(_nodes(node).encode())
    elif word == b"info" and count == 2:
        answer = Text(_info(node).encode())
    elif word == b"myid" and count == 2:
        answer = node.id
    elif word == b"meet" and count == 4:
        _meet(node, client, args[2].decode("utf-8", "replace"), args[3])
        return
    elif word == b"leaving" and count == 2:
        client.out.append(b"+yes\r\n" if node.peers.leaving else b"+no\r\n")
        return
    else:
        if word == b"leaving" and count == 3:
            _set_leaving(node, args[2].lower())
        elif word == b"reset" and count in (2, 3):
            _reset(node, args[2].lower() if count == 3 else b"soft")
        elif word == b"saveconfig" and count == 2:
            _save(node)
        elif word == b"forget" and count == 3:
            _forget(node, args[2])
        else:
            raise CommandError(_FALLBACK)
        client.out.append(OK)
        return
    client.out.append(encode(answer, client.resp))


def _nodes(node: Node) -> str:
    text = node.peers.describe()
    if text:
        return text
    flags = "myself,leaving" if node.peers.leaving else "myself"  # a node that has no bus
    ip, port = node.peers.endpoint()
    return f"{node.id.decode()} {ip}:{port} {flags} 0 0 connected\n"


def _info(node: Node) -> str:
    peers = node.peers
    return (
        "cluster_state:ok\r\n"
        f"cluster_known_nodes:{1 + len(peers.others())}\r\n"
        f"cluster_reachable_nodes:{len(peers.reachable)}\r\n"
        f"cluster_size:{peers.size}\r\n"
        f"cluster_stats_messages_sent:{peers.messages_sent}\r\n"
        f"cluster_stats_messages_received:{peers.messages_received}\r\n"
    )


def _set_leaving(node: Node, word: bytes) -> None:
    if word not in (b"yes", b"no"):
        raise CommandError("ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'")
    node.set_leaving(word == b"yes")


def _reset(node: Node, word: bytes) -> None:
    if word not in (b"soft", b"hard"):
        raise CommandError(SYNTAX)
    node.flush()
    if word == b"hard":
        node.renew_id()
        node.commons.clear()
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


class Meeting(Pending):
    """The pending reply to a CLUSTER MEET whose ``host`` is being looked up."""

    __slots__ = ("_host", "_node", "_port")

    def __init__(self, node: Node, client: Client, host: str, port: int) -> None:
        super().__init__(client, None)
        self._node = node
        self._host = host
        self._port = port

    def found(self, addresses: list[str]) -> None:
        """Meet the node at ``addresses``; empty: none were found."""
        # If one address fails, another may work; and if a name stands for several nodes, these are
        # meant to form one cluster.
        for address in addresses:
            self._node.peers.meet(address, self._port)
        self.reply = OK if addresses else error(f"ERR No address found for '{self._host}'")
        self._node.answered.append(self)


def _meet(node: Node, client: Client, host: str, port: bytes) -> None:
    number = parse_int(port)
    if number is None:
        raise CommandError("ERR Invalid TCP port specified: " + port.decode("utf-8", "replace"))
    address = "" if "%" in host else plain_ip(host)  # a zone is only valid on one machine
    if not (address or is_host_name(host)) or not is_port(number):
        raise CommandError(f"ERR Invalid node address specified: {host}:{port.decode()}")
    if address:
        node.peers.meet(address, number)
        client.out.append(OK)
    else:
        meeting = Meeting(node, client, host, number)
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
    ip, port = node.peers.endpoint()
    priority = PRIORITY_BAD if node.peers.leaving else PRIORITY_OK
    me = Peer(node.id, ip, port, priority, node.peers.tls_port)
    tls = node.host.over_tls(client)
    lines: list[Value] = [
        [
            peer.id,
            peer.ip.encode(),
            b"%d" % (peer.tls_port if tls and peer.tls_port else peer.port),
            b"%d" % peer.priority,
        ]
        for peer in [me, *node.peers.others()]
    ]
    client.out.append(encode([_HELLO_FORMAT, node.id, *lines], client.resp))
