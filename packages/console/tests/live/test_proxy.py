"""The console behind nginx as in docs/console.md, over a Unix socket, and with HTTP/2."""

import json
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from packages.console.tests.live.conftest import PASSWORD
from packages.console.tests.support.browser import Browser
from packages.console.tests.support.console import ConsoleProcess, UnixConnection, console, quoted
from tests.support.documented import commands
from tests.support.harness import HANG_SECONDS, LiveNode, free_port, wait_until
from tests.support.live_helpers import add_job
from tests.support.tls_front import Certificates

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
CURL = shutil.which("curl")
CONFIGURATION = """\
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
{server}
}}
"""


@contextmanager
def nginx(directory: Path, certificates: Certificates, target: str) -> Iterator[str]:
    """nginx as documented, in front of a console at ``target``; yields the address for browsers."""
    if NGINX is None:
        pytest.skip("nginx is not installed: tools/setup.sh test does that")
    directory.mkdir()
    port = free_port()
    server = commands("console.md", "Behind a proxy")
    server = server[server.index("server {") : server.index("\n}") + 2]
    for there, here in {
        "listen 443": f"listen 127.0.0.1:{port}",
        "/etc/ssl/console.pem": certificates.cert("good"),
        "/etc/ssl/console.key": certificates.key("good"),
        "http://127.0.0.1:8711": target,
    }.items():
        assert server.count(there) == 1
        server = server.replace(there, here)
    path = directory / "nginx.conf"
    path.write_text(CONFIGURATION.format(directory=directory, server=server))
    process = subprocess.Popen([NGINX, "-p", str(directory), "-c", str(path)])
    base = f"https://127.0.0.1:{port}"
    try:
        wait_until(lambda: curl(base + "/", certificates.ca)[0] != "000")
        yield base
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)


def curl(url: str, ca: str = "", *options: str) -> tuple[str, str, str]:
    """The status, HTTP version and body of the response."""
    if CURL is None:
        pytest.skip("curl is not installed")
    command = [CURL, "--silent", "--max-time", "30", *options, "--write-out"]
    command += ["\n%{http_code} %{http_version}", url]
    if ca:
        command += ["--cacert", ca]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    body, _, last = done.stdout.rpartition("\n")
    status, version = last.split()
    return status, version, body


def events(url: str, ca: str, node: LiveNode, queue: str, *options: str) -> None:
    """Follow a page until it shows a job that is added meanwhile, well before the stream ends."""
    assert CURL is not None
    command = [CURL, "--silent", "--no-buffer", "--max-time", str(HANG_SECONDS)]
    command += ["--cacert", ca, *options]
    command += ["--header", "Accept: text/event-stream", url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        seen = 0
        for line in process.stdout:
            if not line.startswith(b"data: "):
                continue
            seen += 1
            if seen == 1:
                add_job(node.wire(), queue)
            elif "On the nodes" in json.loads(line[6:])["html"]:
                break
        else:
            pytest.fail("the stream ended")
        assert seen > 1
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def log_in(base: str, ca: str, jar: Path) -> None:
    form = ["--data-urlencode", "user=operator", "--data-urlencode", f"password={PASSWORD}"]
    status, _, _ = curl(f"{base}/disque/login", ca, "--cookie-jar", str(jar), *form)
    assert status == "303"


@pytest.fixture(scope="module")
def proxied(directory: Path, guarded: ConsoleProcess, certificates: Certificates) -> Iterator[str]:
    """The address of nginx in front of the console with a login."""
    with nginx(directory / "nginx", certificates, guarded.base) as base:
        yield base


def test_the_documented_nginx_serves_https_and_http_2_under_the_prefix(
    proxied: str, certificates: Certificates, tmp_path: Path
) -> None:
    ca = certificates.ca
    status, version, _ = curl(f"{proxied}/disque/queues", ca)
    assert (status, version) == ("303", "2")
    jar = tmp_path / "jar"
    log_in(proxied, ca, jar)
    assert "TRUE\t/disque/" in jar.read_text().replace("\tFALSE\t/", "\tTRUE\t/")
    line = next(line for line in jar.read_text().splitlines() if "disque_console\t" in line)
    assert line.split("\t")[2:4] == ["/disque/", "TRUE"]  # the path, and for HTTPS only
    status, _, page = curl(f"{proxied}/disque/queues", ca, "--cookie", str(jar))
    assert status == "200"
    assert 'href="/disque/jobs"' in page
    assert curl(f"{proxied}/queues", ca, "--cookie", str(jar))[0] == "404"


def test_nginx_passes_events_on_at_once(
    proxied: str, certificates: Certificates, node: LiveNode, tmp_path: Path
) -> None:
    log_in(proxied, certificates.ca, tmp_path / "jar")
    url = f"{proxied}/disque/queue?name=by-nginx"
    events(url, certificates.ca, node, "by-nginx", "--cookie", str(tmp_path / "jar"))


def test_visitors_cannot_forge_their_address_behind_nginx(
    proxied: str, certificates: Certificates, directory: Path
) -> None:
    form = ["--data", "user=spoofed&password=x", "--header", "X-Forwarded-For: 6.6.6.6"]
    assert curl(f"{proxied}/disque/login", certificates.ca, *form)[0] == "403"
    lines = [json.loads(line) for line in (directory / "audit.log").read_text().splitlines()]
    [address] = {line["address"] for line in lines if line.get("user") == "spoofed"}
    assert address == "127.0.0.1"


def test_a_browser_acts_through_nginx_and_sees_what_changes(
    proxied: str, chrome: Browser, node: LiveNode
) -> None:
    chrome.driver.execute_cdp_cmd("Security.setIgnoreCertificateErrors", {"ignore": True})
    wire = node.wire()
    add_job(wire, "proxied")
    chrome.look()
    chrome.open(f"{proxied}/disque/queue?name=proxied")
    chrome.type("input[name=user]", "operator")
    chrome.type("input[name=password]", PASSWORD)
    chrome.press("button.main")
    wait_until(lambda: "Queued\n1" in chrome.text("#live .tiles"))
    script = "return performance.getEntriesByType('navigation')[0].nextHopProtocol"
    assert chrome.run(script) == "h2"
    add_job(wire, "proxied")
    wait_until(lambda: "Queued\n2" in chrome.text("#live .tiles"))
    chrome.press("form[action$='/do/purge'] button")
    chrome.press(".confirm button")
    wait_until(lambda: "Cancelled 2 jobs in proxied." in chrome.text())
    assert chrome.complaints() == []


def test_a_unix_socket_serves_curl_and_nginx(
    node: LiveNode, users: Path, directory: Path, certificates: Certificates, tmp_path: Path
) -> None:
    path = directory / "console.sock"
    audit = tmp_path / "audit"
    options = ["--users", str(users), "--prefix", "/disque", "--trusted-proxy", "unix"]
    options += ["--audit-log", str(audit)]
    with console(directory, [node.port], *options, unix=path) as found:
        status, _, _ = curl("http://localhost/disque/", "", "--unix-socket", str(path))
        assert status == "303"
        with nginx(tmp_path / "nginx", certificates, f"http://unix:{path}") as base:
            jar = tmp_path / "jar"
            log_in(base, certificates.ca, jar)
            answer = curl(f"{base}/disque/queues", certificates.ca, "--cookie", str(jar))
            assert answer[0] == "200"
            [line] = audit.read_text().splitlines()
            assert json.loads(line)["address"] == "127.0.0.1"
        connection = UnixConnection(path)
        connection.request("GET", "/disque/login")
        assert connection.getresponse().status == 200
        connection.close()
        assert found.stop() == 0


def test_a_form_refused_while_it_arrives_affects_no_other_connection(
    guarded: ConsoleProcess, tmp_path: Path
) -> None:
    (tmp_path / "form").write_text("x" * 300_000)
    sent = ["--data", f"@{tmp_path / 'form'}", "--http2-prior-knowledge"]
    for path in ("/disque/do/add", "/disque/login", "/nothing"):
        curl(guarded.base + path, "", *sent)
        assert guarded.visitor().get("/disque/health").status == 200
    assert guarded.process.poll() is None


def test_with_a_certificate_there_is_http_2(
    node: LiveNode, users: Path, tmp_path: Path, certificates: Certificates, chrome: Browser
) -> None:
    options = ["--certificate", certificates.cert("good")]
    options += ["--certificate-key", certificates.key("good")]
    context = ssl.create_default_context(cafile=certificates.ca)
    with console(tmp_path, [node.port], *options, tls=context) as found:
        base = f"https://127.0.0.1:{found.port}"
        status, version, _ = curl(f"{base}/queues", certificates.ca)
        assert (status, version) == ("200", "2")
        assert curl(f"{base}/queues", certificates.ca, "--http1.1")[:2] == ("200", "1.1")
        token = re.search(
            r'name="token" value="([0-9a-f]+)"', curl(f"{base}/queue?name=h2", certificates.ca)[2]
        )
        assert token
        form = f"token={token[1]}&queue={quoted('by h2')}&body={'x' * 300_000}"
        (tmp_path / "form").write_text(form)
        sent = ["--data", f"@{tmp_path / 'form'}"]
        assert curl(f"{base}/do/add", certificates.ca, *sent)[:2] == ("303", "2")
        assert node.ask("QLEN", "by h2") == 1
        sent += ["--header", "Origin: https://evil.example"]
        # Refused before all of it was sent, which curl may notice first.
        assert curl(f"{base}/do/add", certificates.ca, *sent)[0] in ("403", "000")
        assert node.ask("QLEN", "by h2") == 1
        events(f"{base}/queue?name=streamed", certificates.ca, node, "streamed")
        chrome.driver.execute_cdp_cmd("Security.setIgnoreCertificateErrors", {"ignore": True})
        chrome.open(f"{base}/queue?name=streamed")
        chrome.press("form[action$='/do/purge'] button")
        chrome.press(".confirm button")
        wait_until(lambda: "Cancelled 1 job in streamed." in chrome.text())
        chrome.open("about:blank")
        assert found.stop() == 0
