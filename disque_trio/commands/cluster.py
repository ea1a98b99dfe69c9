"""CLUSTER: this node as a cluster of one. It has no bus yet, so it can meet nobody."""

from disque_trio.commands.parse import SYNTAX
from disque_trio.core.client import Client
from disque_trio.core.command import CommandError
from disque_trio.core.node import Node
from disque_trio.protocol.ints import parse_int
from disque_trio.protocol.reply import OK, Text, Value, encode

_FALLBACK = "ERR Wrong CLUSTER subcommand or number of arguments"


def cluster(node: Node, client: Client, args: list[bytes]) -> None:
    """CLUSTER NODES, INFO, MYID, LEAVING [yes|no], RESET [SOFT|HARD], SAVECONFIG, FORGET id,
    MEET ip port."""
    word = args[1].lower()
    count = len(args)
    answer: Value
    if word == b"nodes" and count == 2:
        answer = Text(_nodes(node).encode())
    elif word == b"info" and count == 2:
        answer = Text(
            b"cluster_state:ok\r\ncluster_known_nodes:1\r\ncluster_reachable_nodes:0\r\n"
            b"cluster_size:1\r\ncluster_stats_messages_sent:0\r\n"
            b"cluster_stats_messages_received:0\r\n"
        )
    elif word == b"myid" and count == 2:
        answer = node.id
    elif word == b"leaving" and count in (2, 3):
        _leaving(node, client, args)
        return
    elif word == b"reset" and count in (2, 3):
        if count == 3 and args[2].lower() not in (b"soft", b"hard"):
            raise CommandError(SYNTAX)
        node.flush()
        if count == 3 and args[2].lower() == b"hard":
            node.renew_id()
        client.out.append(OK)
        return
    elif word == b"saveconfig" and count == 2:
        client.out.append(OK)  # a node alone has nothing to save
        return
    elif word == b"forget" and count == 3:
        raise CommandError(_forget_problem(node, args[2]))
    elif word == b"meet" and count == 4:
        raise CommandError(_meet_problem(args[2], args[3]))
    else:
        raise CommandError(_FALLBACK)
    client.out.append(encode(answer, client.resp))


def _nodes(node: Node) -> str:
    ip, port = node.host.endpoint()
    flags = "myself,leaving" if node.leaving else "myself"
    return f"{node.id.decode()} {ip}:{port} {flags} 0 0 connected\n"


def _leaving(node: Node, client: Client, args: list[bytes]) -> None:
    if len(args) == 2:
        client.out.append(b"+yes\r\n" if node.leaving else b"+no\r\n")
        return
    word = args[2].lower()
    if word not in (b"yes", b"no"):
        raise CommandError("ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'")
    node.leaving = word == b"yes"
    if node.leaving:
        node.unblock_all()
    client.out.append(OK)


def _forget_problem(node: Node, id: bytes) -> str:
    if len(id) != 40 or not all(char in b"0123456789abcdef" for char in id):
        return "ERR Invalid node identifier"
    if id == node.id:
        return "ERR I tried hard but I can't forget myself..."
    return f"ERR Unknown node {id.decode()}"


def _meet_problem(ip: bytes, port: bytes) -> str:
    number = parse_int(port)
    if number is None:
        return "ERR Invalid TCP port specified: " + port.decode("utf-8", "replace")
    address = ip.decode("utf-8", "replace")
    if not 1 <= number <= 55535 or not (":" in address or address.replace(".", "").isdigit()):
        return f"ERR Invalid node address specified: {address}:{number}"
    return "ERR This version has no cluster bus: the node works alone"
