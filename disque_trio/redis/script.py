"""A Lua script that runs in Redis."""

import hashlib


class Script:
    """A script, also available as a function for servers that support functions.

    Args:
        source: the Lua source; uses KEYS and ARGV.
        name: its name in FUNCTION LIST.
        allow_oom: whether to run it even if memory is full. Otherwise, a script is refused at its
            first command that needs memory, if it has written nothing before; a function is
            refused at once.

    Attributes:
        source: the Lua source.
        sha: its SHA-1 in hexadecimal, under which Redis caches the script.
        function: the name of the function, which depends on the source.
        library: the code that defines the function.
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
