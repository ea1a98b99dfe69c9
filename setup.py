"""Compiles the state machine, the protocol, the commands and the engine with mypyc, if told to.

Whether it is told to is decided by the build backend (tools/packaging/disque_build.py): where a C
compiler and Python's headers are there, unless ``DISQUE_TRIO_COMPILE=0`` forbids it. The same
sources run uncompiled as well: about 2.5 times slower in the state machine, the same in every other
way. All else about the distribution is in pyproject.toml.
"""

import os
from pathlib import Path

from setuptools import setup

PACKAGES = ("core", "protocol", "commands", "bananaq/core", "bananaq/commands")
MORE = (
    "disque_trio/aof/format.py",
    "disque_trio/aof/loader.py",
    "disque_trio/bananaq/redis_keys.py",
    "disque_trio/bananaq/redis_wire.py",
    "disque_trio/server/clients.py",
    "disque_trio/server/connection.py",
    "disque_trio/server/engine.py",
    "disque_trio/server/stats.py",
)
# What surrounds the state machine derives from these, which a compiled class does not allow.
PURE = {
    "disque_trio/core/native.py",  # what the compiler has names for, and Python has not
    "disque_trio/core/host.py",
    "disque_trio/core/peers.py",
    "disque_trio/bananaq/core/store.py",
}


def modules() -> list[str]:
    """The files to compile, as mypyc wants them named."""
    found = [
        path.as_posix()
        for package in PACKAGES
        for path in sorted(Path("disque_trio", package).glob("*.py"))
    ]
    return [path for path in [*found, *MORE] if path not in PURE]


if os.environ.get("DISQUE_TRIO_COMPILE") == "1":
    # Not the cache of who works on the sources: what they ask mypy for is something else.
    os.environ.setdefault("MYPY_CACHE_DIR", "build/mypy-cache")
    from mypyc.build import mypycify

    setup(ext_modules=mypycify(modules(), opt_level="3"))
else:
    setup()
