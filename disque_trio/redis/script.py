"""A Lua script that runs in Redis."""

import hashlib


class Script:
    """A script, also available as a function for servers that support functions.

    Args:
        source: Lua; takes KEYS and ARGV.
        name: what it is called in FUNCTION LIST.
        allow_oom: run it also where the memory is full. As a script it is refused then at its first
            command that takes memory, if nothing was written before; as a function at once.

    Attributes:
        source: Lua. sha: its SHA-1 in hexadecimal, under which Redis caches the script.
        function: name of the function; another source has another one. library: defines it.
    """

    def __init__(self, source: str, name: str = "script", allow_oom: bool = True) -> None:
        self.source = source.encode()
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()
        function = f"disque_trio_{name}_{self.sha[:12].decode()}"
        flags = "'allow-oom'" if allow_oom else ""
        self.function = function.encode()
        self.library = (
            f"#!lua name={function}\n"
            f"redis.register_function{{function_name='{function}', flags={{{flags}}}, "
            f"callback=function(KEYS, ARGV)\n{source}\nend}}\n"
        ).encode()
