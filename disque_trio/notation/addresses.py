"""The address of a server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens: a TCP host and port, or the path of a Unix socket. Without a port,
    ``host`` is the name of a service, whose location sentinels know."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
