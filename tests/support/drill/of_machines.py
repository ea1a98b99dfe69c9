"""Incidents of machines: disks, memory, nodes, networks, clocks, certificates, restarts."""

import os
import shutil
import signal
import socket
import ssl
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.support import ROOT
from tests.support.certificates import NAMES, openssl
from tests.support.drill.incident import Incident, Scene, cure_of
from tests.support.drill.stage import Stage
from tests.support.drill.watch import ALERT, CHECK, CLIENT, CONSOLE, INFO, LOG, METRICS
from tests.support.harness import free_ports, wait_until
from tests.support.small_disk import small_disk

HOST = "127.0.0.1"
SYMPTOMS = "symptoms.md"
SKEW = ROOT / "tests" / "support" / "skewed_clock"
DISK = 24  # MB
MEMORY = 8  # MB
BIG = b"x" * 100_000
SOON = 12.0  # s: nodes look at themselves each second, or each five, and programs at them
NOTHING = r"\0"  # is typed
ALL = (LOG, INFO, METRICS, CHECK, CONSOLE)
_BIG = r"mail\.(big|split)|no-worker|NoWorker"  # a queue that fills something; nobody serves it


def everywhere(kind: str, alert: str, client: str = "") -> dict[str, str]:
    """The signs of a condition of this kind, with this alert; ``client``: that of programs."""
    signs = {**dict.fromkeys(ALL, kind), CHECK: "CRITICAL|WARNING", ALERT: alert}
    return {**signs, CLIENT: client} if client else signs


# ---- a full disk --------------------------------------------------------------------------------


def _small(stage: Stage) -> None:
    stage.enter(small_disk(stage.cluster[0].directory, DISK))


def _fill_disk(scene: Scene) -> None:
    ballast = scene.stage.cluster[0].directory / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))


def _add_on_full(scene: Scene) -> str:
    node = scene.stage.cluster[0]  # which has reserved some space: more than a few jobs take
    return scene.stage.refusal(node, "ADDJOB", "mail.big", BIG, 500, "REPLICATE", 1, "TTL", 600)


DISK_FULL = Incident(
    "disk full on one of three nodes",
    everywhere("disk-full|file-write", "DisqueDiskFull|DisqueAofFailing", "MISCONF"),
    SOON * 2,
    SYMPTOMS,
    "The disk fills",
    _fill_disk,
    probe=_add_on_full,
    is_cured=lambda scene: not _add_on_full(scene),
    lingers=_BIG,
    options=_small,
)


# ---- memory -------------------------------------------------------------------------------------


def _fill_memory(scene: Scene) -> None:
    for node in scene.stage.cluster:
        assert node.ask("CONFIG", "SET", "paging", "no", "maxmemory", f"{MEMORY}mb") == b"OK"
    while not _add_big(scene):
        pass


def _add_big(scene: Scene) -> str:
    node = scene.stage.cluster[0]
    return scene.stage.refusal(node, "ADDJOB", "mail.big", BIG, 1000, "TTL", 600)


MEMORY_FULL = Incident(
    "memory full on all nodes",
    everywhere("memory-(refuses|full)", "DisqueMemory(Refuses|Full)", "NOREPL|OOM"),
    SOON * 2,
    SYMPTOMS,
    "Memory is short",
    _fill_memory,
    probe=_add_big,
    is_cured=lambda scene: not _add_big(scene),
    lingers=_BIG,
)


# ---- nodes and their network --------------------------------------------------------------------


def _lose(scene: Scene) -> None:
    lost = scene.stage.cluster[2]
    lost.kill()
    shutil.rmtree(lost.directory)


def _replace(scene: Scene) -> None:
    lost = scene.stage.cluster[2]
    lost.directory.mkdir()
    lost.start()
    scene.stage.type("redis-cli -p 7713 CLUSTER MEET 127.0.0.1 7711")


def _all_meet(scene: Scene) -> bool:
    return all(node.sees(3) for node in scene.stage.cluster)


NODE_LOST = Incident(
    "a node is lost with its disk",
    everywhere("peer-lost", "DisqueNodeFailing|DisqueDown"),
    45,
    "lost-node.md",
    "Forget it",
    _lose,
    typed="id=|for port",
    finish=_replace,
    done="start an empty node in its place, CLUSTER MEET",
    is_cured=_all_meet,
    lingers="copies|Copies",
)


def _split(scene: Scene) -> None:
    scene.stage.cluster.proxy.isolate(2, stall=True)


def _add_alone(scene: Scene) -> str:
    node = scene.stage.cluster[2]
    return scene.stage.refusal(
        node, "ADDJOB", "mail.split", "{}", 1000, "REPLICATE", 2, "TTL", 60, "UNIQUE", "once"
    )


SPLIT = Incident(
    "the network splits, 2 nodes from 1",
    everywhere("split|peer-lost", "DisqueSplit|DisqueNodeFailing", "NOREPL|NOUNIQ"),
    45,
    SYMPTOMS,
    "The cluster is split",
    _split,
    typed="until",
    repair=lambda scene: scene.stage.cluster.proxy.heal(),
    done="repair the network",
    probe=_add_alone,
    lingers=_BIG,
    is_cured=_all_meet,
    proxied=True,
)


# ---- clocks -------------------------------------------------------------------------------------


def _skew(scene: Scene) -> None:
    """Start the third node again with a clock that is an hour ahead."""
    node, file = scene.stage.cluster[2], scene.stage.directory / "wrong-clock"
    file.write_text("3600000")
    node.stop()
    before = dict(os.environ)
    try:
        paths = [str(SKEW), *filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        os.environ["WRONG_CLOCK_FILE"] = str(file)
        node.program = (sys.executable, "-m", "disque_trio.server")
        node.start()
    finally:
        os.environ.clear()
        os.environ.update(before)


CLOCK = Incident(
    "the clock of a node is an hour ahead",
    everywhere("clock", "DisqueClockOff"),
    SOON * 2,
    SYMPTOMS,
    "A clock is wrong",
    _skew,
    repair=lambda scene: (scene.stage.directory / "wrong-clock").unlink(),
    done="set the clock right",
)


# ---- certificates -------------------------------------------------------------------------------

SUBJECT = ("-subj", "/CN=node", "-addext", NAMES)
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _serve_tls(stage: Stage) -> None:
    """Have the first node serve TLS, with a certificate of its own authority."""
    here = stage.cluster[0].directory
    ca = ("-subj", "/CN=ours", "-days", "90", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(here, "req", "-x509", *KEY, *ca)
    openssl(here, "req", *KEY, *SUBJECT, "-keyout", "node.key", "-out", "node.csr")
    _sign(here, 90)
    stage.tls_port = free_ports(1)[0]
    stage.cluster[0].options += [
        "--tls-port", str(stage.tls_port), "--tls-auth-clients", "no",
        "--tls-cert-file", "node.pem", "--tls-key-file", "node.key", "--tls-ca-cert-file", "ca.pem",
    ]  # fmt: skip


def _sign(here: Path, days: int) -> None:
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-copy_extensions", "copy")
    words = ("-days", str(days), "-in", "node.csr", "-out", "node.pem")
    openssl(here, "x509", "-req", *signed, *words)


def _use(scene: Scene, days: int) -> None:
    """Have the node use a certificate that ends in so many days."""
    node = scene.stage.cluster[0]
    _sign(node.directory, days)
    assert node.ask("CONFIG", "SET", "tls-cert-file", "node.pem") == b"OK"


def _shake_hands(scene: Scene) -> str:
    ours = scene.stage.cluster[0].directory / "ca.pem"
    context = ssl.create_default_context(cafile=str(ours))
    with (
        socket.create_connection((HOST, scene.stage.tls_port), timeout=5) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as wrapped,
    ):
        wrapped.sendall(b"PING\r\n")
        wrapped.recv(1)
    return ""


CERTIFICATE = Incident(
    "the certificate of a node has expired",
    everywhere("certificate-expired", "DisqueCertificateExpired", "certificate has expired"),
    SOON * 2,
    SYMPTOMS,
    "A certificate has expired",
    lambda scene: _use(scene, -1),
    probe=_shake_hands,
    is_cured=lambda scene: not _shake_hands(scene),
    options=_serve_tls,
)

CERTIFICATE_ENDS = Incident(
    "the certificate of a node ends in ten days",
    everywhere("certificate-ends", "DisqueCertificateEnds"),
    SOON * 2,
    SYMPTOMS,
    "A certificate has expired",
    lambda scene: _use(scene, 10),
    options=_serve_tls,
)


# ---- restarts -----------------------------------------------------------------------------------

ROLLING = ("upgrading.md", "Rolling to a new version")


def _restart_all(scene: Scene) -> None:
    load = scene.stage.load
    errors, added, load.longest = len(load.errors), load.added, 0.0
    lines = "".join(cure_of(*ROLLING).splitlines(True)[:3])  # one node: it, and another one
    began = time.monotonic()
    for one, other in (("7711", "7712"), ("7712", "7713"), ("7713", "7711")):
        scene.stage.type(
            lines.replace("7712", "other").replace("7711", one).replace("other", other)
        )
    seconds = time.monotonic() - began
    refused = len(load.errors) - errors
    scene.notes.append(
        f"{refused} of {load.added - added + refused} jobs refused, the longest addition took "
        f"{load.longest:.1f} s; {seconds / 3:.1f} s a node"
    )


RESTART = Incident(
    "all nodes are restarted, one after the other",
    {},
    SOON,
    *ROLLING,
    _restart_all,
    typed=NOTHING,
    done="nothing is to be done",
)


def stop_worker(scene: Scene) -> None:
    """Kill the worker and its processes."""
    worker = scene.stage.worker
    for pid in [worker.popen.pid, *worker.pids()]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    worker.ends()
    Path(worker.directory, "status").unlink(missing_ok=True)
    wait_until(lambda: not worker.pids())
