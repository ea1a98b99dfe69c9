"""The address of a server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens: a TCP host and port, or the path of a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
