"""Compiles the state machine, the protocol, the commands and the engine with mypyc, if told to.

Whether it is told to is decided by the build backend (tools/packaging/disque_build.py): where a C
compiler and Python's headers are there, unless ``DISQUE_TRIO_COMPILE=0`` forbids it. The same
sources run uncompiled as well: about 2.5 times slower in the state machine, the same in every other
way. All else about the distribution is in pyproject.toml.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

PACKAGES = (
    "resp",
    "protocol",
    "respserver",
    "respserver/commands",
    "cluster",
    "node/core",
    "node/commands",
    "bananaq/core",
    "bananaq/commands",
)
MORE = (
    "disque_trio/aof/format.py",
    "disque_trio/aof/loader.py",
    "disque_trio/bananaq/redis_store/keys.py",
    "disque_trio/bananaq/redis_store/wire.py",
    "disque_trio/histogram.py",
    "disque_trio/process/addresses.py",
    "disque_trio/process/clock.py",
    "disque_trio/respserver/io/clients.py",
    "disque_trio/respserver/io/connection.py",
    "disque_trio/respserver/io/departures.py",
    "disque_trio/respserver/io/engine.py",
    "disque_trio/respserver/io/hold.py",
    "disque_trio/respserver/io/links.py",
    "disque_trio/respserver/io/measured.py",
    "disque_trio/respserver/io/sealing.py",
    "disque_trio/respserver/io/serving.py",
    "disque_trio/respserver/io/stats.py",
    "disque_trio/respserver/io/tls_connection.py",
    "disque_trio/respserver/io/turns.py",
)
# Interpreted classes derive from these, which a compiled class does not allow; or the other way;
# or they wait for sockets, files and settings, where there is nothing to gain; or the command line
# imports them, which starts 10 ms earlier without the compiled library.
PURE = {
    "disque_trio/resp/__init__.py",
    "disque_trio/resp/command.py",
    "disque_trio/resp/plain.py",
    "disque_trio/respserver/host.py",
    "disque_trio/respserver/daemon.py",
    "disque_trio/respserver/doors.py",
    "disque_trio/respserver/process_host.py",
    "disque_trio/respserver/reload.py",
    "disque_trio/cluster/cluster.py",
    "disque_trio/cluster/halfpackets.py",
    "disque_trio/cluster/listeners.py",
    "disque_trio/cluster/names.py",
    "disque_trio/cluster/nodes_file.py",
    "disque_trio/cluster/tls.py",
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

    in_c = [
        Extension(name, [name.replace(".", "/") + ".c"], depends=["disque_trio/resp/_cut.h"])
        for name in ("disque_trio.resp._cut", "disque_trio.respserver.io._sockets")
    ]
    # With more optimization it takes twice as long to compile, and the node as much time as before.
    compiled = mypycify(modules(), opt_level="2", debug_level="0")
    for extension in compiled:
        # Functions that nobody else can replace may be inlined: 3% fewer instructions. To look for
        # what it might warn of, as Python's own flags ask for, takes gcc as long as all the rest.
        extension.extra_compile_args += ["-fvisibility=hidden", "-Wno-all"]
    setup(ext_modules=[*in_c, *compiled])
else:
    setup()
