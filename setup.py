"""Compiles the state machine, the protocol, the commands and the engine with mypyc, if asked to.

The build backend (tools/packaging/disque_build.py) asks for it if there are a C compiler and
Python's headers, unless ``DISQUE_TRIO_COMPILE=0`` forbids it. The same sources also run uncompiled:
the state machine is then about 2.5 times slower, and everything else is the same. The rest of the
distribution is described in pyproject.toml.
"""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGES = (
    "resp",
    "protocol",
    "respserver",
    "respserver/commands",
    "cluster",
    "node/core",
    "node/core/*",
    "node/commands",
)
MORE = (
    "disque_trio/aof/format.py",
    "disque_trio/aof/loader.py",
    "disque_trio/histogram.py",
    "disque_trio/process/addresses.py",
    "disque_trio/process/clock.py",
    "disque_trio/respserver/io/clients.py",
    "disque_trio/respserver/io/close_queue.py",
    "disque_trio/respserver/io/connection.py",
    "disque_trio/respserver/io/engine.py",
    "disque_trio/respserver/io/hold.py",
    "disque_trio/respserver/io/lines.py",
    "disque_trio/respserver/io/links.py",
    "disque_trio/respserver/io/measured.py",
    "disque_trio/respserver/io/movable.py",
    "disque_trio/respserver/io/sealing.py",
    "disque_trio/respserver/io/serving.py",
    "disque_trio/respserver/io/stats.py",
    "disque_trio/respserver/io/tls_connection.py",
    "disque_trio/respserver/io/turns.py",
    "disque_trio/respserver/io/unsent.py",
)
# Modules that stay interpreted: interpreted classes derive from theirs, or theirs from interpreted
# ones, which compiled classes do not allow; or they mostly wait for sockets and files; or the
# command line imports them, and starts 10 ms faster without the compiled library.
PURE = {
    "disque_trio/resp/__init__.py",
    "disque_trio/resp/command.py",
    "disque_trio/resp/plain.py",
    "disque_trio/respserver/exposure.py",
    "disque_trio/respserver/health.py",
    "disque_trio/respserver/host.py",
    "disque_trio/respserver/daemon.py",
    "disque_trio/respserver/process_host.py",
    "disque_trio/respserver/reload.py",
    "disque_trio/cluster/cluster.py",
    "disque_trio/cluster/crypto.py",
    "disque_trio/cluster/halfpackets.py",
    "disque_trio/cluster/keys_file.py",
    "disque_trio/cluster/listeners.py",
    "disque_trio/cluster/names.py",
    "disque_trio/cluster/nodes_file.py",
    "disque_trio/cluster/tls.py",
}


def modules() -> list[str]:
    """The files to compile, as mypyc names them."""
    found = [
        path.as_posix()
        for package in PACKAGES
        for path in sorted(Path("disque_trio").glob(f"{package}/*.py"))
    ]
    return [path for path in [*found, *MORE] if path not in PURE]


class BuildExtensions(build_ext):
    """Compiles what has changed, and removes what earlier builds have compiled and this one has
    not."""

    def run(self) -> None:
        super().run()
        outputs = {Path(name) for name in self.get_outputs()}
        for library in Path(self.build_lib).rglob("*.so"):
            if library not in outputs:
                library.unlink()


if os.environ.get("DISQUE_TRIO_COMPILE") == "1":
    # Do not share the developers' mypy cache: its options differ.
    os.environ.setdefault("MYPY_CACHE_DIR", "build/mypy-cache")
    from mypyc.build import mypycify

    in_c = [
        Extension(name, [name.replace(".", "/") + ".c"], depends=["disque_trio/resp/_cut.h"])
        for name in ("disque_trio.resp._cut", "disque_trio.respserver.io._sockets")
    ]
    # More optimization doubles the compile time, and the node gets no faster.
    compiled = mypycify(modules(), opt_level="2", debug_level="0")
    for extension in compiled:
        # Allow inlining of functions that cannot be interposed: 3% fewer instructions. The warnings
        # in Python's own flags would double gcc's time.
        extension.extra_compile_args += ["-fvisibility=hidden", "-Wno-all"]
    for extension in [*in_c, *compiled]:
        extension.depends += ["setup.py", "build/compiled-by", "build/compiled-for"]
    setup(ext_modules=[*in_c, *compiled], cmdclass={"build_ext": BuildExtensions})
else:
    setup()
