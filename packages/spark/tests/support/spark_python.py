"""The Python of Spark's workers in tests, forked from a process that has imported what they need.

Spark starts a new Python for each read, write and stream of a Python data source, which spends half
a second of CPU time on imports. ``spark_python()`` gives the path of a program for
``PYSPARK_PYTHON`` that asks a process of this module to fork. It waits there until the fork ends,
and the fork ends when the program is killed.
"""

import atexit
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from select import select
from tempfile import mkdtemp

from tests.support import ROOT
from tests.support.fork_server import MAX_REQUEST, Request, become_new, run_as_main

IMPORTED = (
    "disque_spark",
    "disque_spark.audit.run",
    "disque_spark.datasources",
    "pandas",
    "pyarrow",
    "pyspark.daemon",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.worker",
)
_PROGRAM = """\
#!{python} -ISs
import json, os, socket, sys
if sys.argv[1:2] != ["-m"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {most})
server.connect({path!r})
request = {{
    "arguments": sys.argv[2:], "directory": os.getcwd(), "environ": dict(os.environ),
    "session": False, "terminal": False,
}}
socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
for descriptor in range(3):
    os.close(descriptor)
os._exit(int(server.recv(16) or 1))
"""


@cache
def spark_python() -> str:
    """The program's path. It works until this process ends."""
    directory = Path(mkdtemp(prefix="spark-python-"))
    program = directory / "python"
    address = str(directory / "requests")
    program.write_text(_PROGRAM.format(python=sys.executable, path=address, most=MAX_REQUEST))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(128)
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listener.fileno())],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )

    def end() -> None:
        server.communicate()
        shutil.rmtree(directory)

    atexit.register(end)
    return str(program)


def _serve(listener: socket.socket) -> Request:
    """Fork for each connection. Returns the request in the process that it is for; the others end
    with it, or when standard input does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    while sys.stdin not in select([sys.stdin, listener], [], [])[0]:
        connection, _ = listener.accept()
        if not os.fork():
            listener.detach()
            return _start(connection)
        connection.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    with suppress(ChildProcessError):
        while os.wait():
            pass
    raise SystemExit


def _start(connection: socket.socket) -> Request:
    """Fork once more: the process that is asked for, where it returns, and the one that watches it
    for the program at the other end."""
    data, streams, _, _ = socket.recv_fds(connection, MAX_REQUEST, 3)
    pid = os.fork()
    if not pid:
        connection.detach()
        request = Request(**json.loads(data))
        become_new(request, streams)
        return request
    for descriptor in streams:
        os.close(descriptor)
    end = os.pidfd_open(pid)
    watched = [sys.stdin, connection, end]
    while end not in (readable := select(watched, [], [])[0]):
        if sys.stdin in readable:  # there are no tests any more
            signal.pidfd_send_signal(end, signal.SIGKILL)
            watched = [end]
        elif connection in readable:  # the program was killed
            signal.pidfd_send_signal(end, signal.SIGTERM)
            watched.remove(connection)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        connection.send(b"%d" % (os.waitstatus_to_exitcode(status) & 0xFF))
    raise SystemExit


def main() -> None:
    """Fork until the tests end, and run the modules in the children."""
    for name in IMPORTED:
        with suppress(ImportError):  # another PySpark has not all of them
            import_module(name)
    gc.freeze()  # a collection in a child would copy all pages
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        request = _serve(listener)
    name, *arguments = request.arguments
    run_as_main(name, arguments)


if __name__ == "__main__":
    main()
