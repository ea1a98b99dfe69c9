"""CLUSTER: who is in the cluster, who gets in, and who goes."""

from ipaddress import IPv6Address, ip_address
from typing import Final

from disque_trio.commands.parse import SYNTAX
from disque_trio.core.client import Client
from disque_trio.core.command import CommandError
from disque_trio.core.node import Node
from disque_trio.protocol.ints import parse_int
from disque_trio.protocol.reply import OK, Text, Value, encode

_FALLBACK: Final = "ERR Wrong CLUSTER subcommand or number of arguments"
_MAX_PORT: Final = 55_535  # of clients; the bus is 10000 above


def cluster(node: Node, client: Client, args: list[bytes]) -> None:
    """CLUSTER NODES, INFO, MYID, LEAVING [yes|no], RESET [SOFT|HARD], SAVECONFIG, FORGET id,
    MEET ip port."""
    word = args[1].lower()
    count = len(args)
    answer: Value
    if word == b"nodes" and count == 2:
        answer = Text(_nodes(node).encode())
    elif word == b"info" and count == 2:
        answer = Text(_info(node).encode())
    elif word == b"myid" and count == 2:
        answer = node.id
    elif word == b"leaving" and count == 2:
        client.out.append(b"+yes\r\n" if node.leaving else b"+no\r\n")
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
        elif word == b"meet" and count == 4:
            _meet(node, args[2].decode("utf-8", "replace"), args[3])
        else:
            raise CommandError(_FALLBACK)
        client.out.append(OK)
        return
    client.out.append(encode(answer, client.resp))


def _nodes(node: Node) -> str:
    text = node.peers.describe()
    if text:
        return text
    flags = "myself,leaving" if node.leaving else "myself"  # a node that has no bus
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
    node.peers.reset(node.id)


def _save(node: Node) -> None:
    problem = node.peers.save()
    if problem is not None:
        raise CommandError(f"ERR error saving the cluster node config: {problem}")


def _forget(node: Node, id: bytes) -> None:
    if len(id) != 40 or id.strip(b"0123456789abcdef"):
        raise CommandError("ERR Invalid node identifier")
    if id == node.id:
        raise CommandError("ERR I tried hard but I can't forget myself...")
    if not node.peers.forget(id):
        raise CommandError(f"ERR Unknown node {id.decode()}")


def _meet(node: Node, ip: str, port: bytes) -> None:
    number = parse_int(port)
    if number is None:
        raise CommandError("ERR Invalid TCP port specified: " + port.decode("utf-8", "replace"))
    address = _plain_ip(ip)
    if not address or not 1 <= number <= _MAX_PORT:
        raise CommandError(f"ERR Invalid node address specified: {ip}:{port.decode()}")
    node.peers.meet(address, number)


def _plain_ip(text: str) -> str:
    """An ip literal in its usual spelling, IPv4 within IPv6 as IPv4; empty if it is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    if "%" in text:
        return ""  # a zone means something on one machine only
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
