"""Where the nodes are, as a URL says it."""

from urllib.parse import unquote

DEFAULT = "disque://127.0.0.1:7711"


def parse_url(url: str) -> tuple[list[str], str | None]:
    """The nodes and the password of ``disque://:password@host:7711,host2:7711``.

    Each node may have the whole form, as in ``disque://a:7711;disque://b:7711``; the first password
    counts. Raises ValueError: it is something else.
    """
    nodes: list[str] = []
    password: str | None = None
    for part in url.replace(";", ",").split(","):
        scheme, colon, rest = part.strip().rpartition("://")
        if (colon and scheme != "disque") or (not colon and not nodes):
            # Without the rest, which may have a password in it.
            raise ValueError(f"a URL is disque://host:port, and not {scheme or part!r}")
        user, at, address = rest.rstrip("/").rpartition("@")
        if at and password is None:
            password = unquote(user.partition(":")[2] or user)
        if address:
            nodes.append(address)
    if not nodes:
        raise ValueError("there is no node in the URL")
    return nodes, password
