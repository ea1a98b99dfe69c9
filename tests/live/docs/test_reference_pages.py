"""Commands on the pages that list options and settings, run as written."""

import io
import re
import sys
from pathlib import Path

import pytest

from disque_trio.cli.options import parse_options
from disque_trio.cli.repl import Repl
from disque_trio.cli.runner import Runner
from tests.support import ROOT
from tests.support.doc_blocks import block, blocks
from tests.support.documented import ID, IN_PLACE, Type, Typist, section, shape, until
from tests.support.harness import LiveNode, free_port

pytestmark = pytest.mark.live

NODE = (
    "  .venv/bin/disque-server --port 7711 --bind 127.0.0.1 --dir /tmp/disque --appendonly yes"
    " --daemonize yes --pidfile /tmp/disque/pid"
)
SHUTDOWN = "  redis-cli -p 7711 SHUTDOWN\n" + until("[ ! -e /tmp/disque/pid ]")


def written(name: str, text: str) -> str:
    """Return a command that writes a file."""
    return f"  cat > {name} <<'END'\n{text}END\n"


@pytest.fixture
def at_node(shared_node: LiveNode, tmp_path: Path) -> Typist:
    """Types with a running node, which commands that look for one on port 7711 find."""
    port, console = str(shared_node.port), str(free_port())
    words = ("<", "--stat", "--top", "getjob", "queues", "jobs")
    others = {f"disque {word}": f"disque -p {port} {word}" for word in words}
    others |= {
        "--to-disque results": f"--to-disque results --node 127.0.0.1:{port}",
        "disque-outbox ": f"disque-outbox --nodes 127.0.0.1:{port} ",
        "disque-console --nodes": f"disque-console --listen 127.0.0.1:{console} --nodes",
        "10.0.0.1:7711": f"127.0.0.1:{port}",
        "7711": port,
        "8711": console,
        "--replicate 2": "--replicate 1",
        "/tmp/disque": str(tmp_path / "disque"),
        "/run/disque": str(tmp_path),
    }
    return Typist(tmp_path, others)


def test_errors_in_the_settings_of_a_node_are_reported(type_in: Type) -> None:
    [(check, [said])] = block("docs/configuration.md", "$ disque-server").typed()
    text = "#\n" * 11 + "hz: abc\n"
    printed = type_in(
        "configuration.md",
        IN_PLACE + "  mkdir config\n" + written("config/disque.yaml", text) + f"  ! {check}\n",
    )
    assert printed == f"{said}\n"


def test_an_address_that_can_be_read_in_two_ways_is_reported(type_in: Type) -> None:
    [(ask, said)] = block("docs/configuration.md", "$ disque -u").typed()
    printed = type_in("configuration.md", IN_PLACE + f"  {ask} || echo status $?\n")
    assert printed.splitlines() == [*said, "status 1"]


def test_errors_in_the_settings_of_bananaq_are_reported(type_in: Type) -> None:
    page = "packages/bananaq/docs/bananaq-configuration.md"
    [(start, said)] = block(page, "$ bananaq").typed()
    text = "#\n#\nlisten-add: 127.0.0.1:1\n"
    typed = f"  {start} || echo status $?\n"
    printed = type_in(page, IN_PLACE + written("bananaq.conf", text) + typed)
    assert printed.splitlines() == [*said, "status 2"]


def test_nodes_are_started_with_the_shipped_settings(type_in: Type) -> None:
    page = "docs/operations.md"
    check, *starts = sorted(
        block(page, "disque-server config/disque.yaml\n").lines()
        + block(page, "disque-server config/disque.yaml --processes").lines()
        + block("docs/configuration.md", "disque-server config/disque.yaml").lines()
    )
    [limit] = block(page, "redis-cli -p 7711 CONFIG SET maxmemory-clients").lines()
    script = IN_PLACE + f"  cp -r {ROOT}/config .\n  {check}\n"
    script += "  sed -i 's/^port: .*/port: 7711/' config/disque.yaml\n"
    for start in starts:
        port = "7712" if "--port 7712" in start else "7711"
        ask = f"redis-cli -p {port}"
        script += f"  {start} > log &\n" + until(f"{ask} PING 2>&1 | grep -q PONG")
        script += f"  {ask} CONFIG GET maxmemory\n  {limit.replace('7711', port)}\n"
        script += "  kill $!\n  wait $! || true\n"
    printed = type_in("operations.md", script)
    assert len(starts) == 4
    limits = re.findall(r"maxmemory\n(\d+)\nOK\n", printed)
    assert sorted(limits) == ["1073741824"] * 3 + ["2147483648"]


def test_what_fits_is_asked_for(type_in: Type) -> None:
    page = "docs/sizing.md"
    [start] = block(page, "disque-server --appendonly").lines()
    asked = block(page, "redis-cli -p 7711 INFO jobs").lines()
    asked += block(page, "redis-cli -p 7711 INFO cpu").lines()
    start = start.replace("disque-server", "disque-server --port 7711 --bind 127.0.0.1")
    printed = type_in(
        "sizing.md",
        IN_PLACE + f"  {start} > log &\n" + until("redis-cli -p 7711 PING 2>&1 | grep -q PONG"),
        "  redis-cli -p 7711 ADDJOB mail hello 0\n",
        "".join([f"  {line}\n" for line in asked]) + "  kill $!\n",
    )
    parts = ["paging_jobs:0", "paging_bytes_disk:0", "used_memory:", "jobs-paged", "\tpages"]
    for part in (*parts, "used_cpu_user:", "total_jobs_acked:0", "acks/s"):
        assert part in printed


def test_the_log_of_events_is_read(type_in: Type) -> None:
    start, switch, read = block("docs/eventlog.md", "$ disque-server").lines()
    assert start.startswith("disque-server ")
    start = start.replace("disque-server", "disque-server --port 7711 --bind 127.0.0.1")
    printed = type_in(
        "eventlog.md",
        IN_PLACE + f"  {start} > log &\n" + until("redis-cli -p 7711 PING 2>&1 | grep -q PONG"),
        f"  {switch}\n  redis-cli -p 7711 ADDJOB orders body 0 TTL 1\n",
        until("ls events/events-*.jsonl* > log 2>&1"),
        until(f"[ $({read} | wc -l) -ge 1 ]") + f"  {read}\n  kill $!\n",
    )
    assert re.fullmatch(rf"OK\n({ID})\n\1\n", printed)


def test_metrics_are_served_in_both_formats(type_in: Type) -> None:
    plain, openmetrics = block("docs/monitoring.md", "curl -s http").lines()
    start = f"{NODE} --metrics-port 9711\n"
    printed = type_in(
        "monitoring.md",
        f"  mkdir /tmp/disque\n{start}  {plain}\n  echo ---\n  {openmetrics}\n{SHUTDOWN}",
    )
    first, second = printed.split("---\n")
    assert "\ndisque_" in first
    assert "# EOF" not in first
    assert "\n# EOF\n" in second


def test_trailers_of_jobs_are_listed(type_in: Type) -> None:
    [(command, said)] = block("docs/check-aof.md", "$ disque-check-aof --trailers").typed()
    headers = "HEADERS 2 content-type text/plain traceparent 00-1-1-00"
    printed = type_in(
        "check-aof.md",
        f"  mkdir /tmp/disque\n{NODE}\n",
        "  redis-cli -p 7711 QSET mail ATTEMPTS 3 DEAD dead\n"
        "  redis-cli -p 7711 ADDJOB mail body 0\n"
        "  for n in 1 2 3; do id=$(redis-cli -p 7711 GETJOB FROM mail | sed -n 2p)\n"
        "  redis-cli -p 7711 NACK $id REASON 'no such address'; done\n"
        f"  redis-cli -p 7711 ADDJOB mail body 0 {headers}\n",
        SHUTDOWN + IN_PLACE + f"  {command}\n",
    )
    assert len(said) == 4
    assert {shape(line) for line in said[:3]} <= set(shape(printed).splitlines())


def test_commands_are_read_from_a_file(at_node: Typist) -> None:
    [line] = block("docs/cli.md", "$ disque < commands.txt").lines()
    text = "addjob greetings 'hello world' 0\nqlen greetings\nping\n"
    printed = at_node.type(IN_PLACE + written("commands.txt", text) + line)
    assert re.fullmatch(rf"{ID}\n1\nPONG\n", printed)


def test_the_prompt_answers_as_shown(shared_node: LiveNode) -> None:
    prompt = f"127.0.0.1:{shared_node.port}> "
    told = block("docs/cli.md", "127.0.0.1:7711> addjob").text.replace("127.0.0.1:7711> ", prompt)
    typed = iter(re.findall(f"^{prompt}(.*)", told, re.MULTILINE))
    out = io.BytesIO()

    def read_line(prompt: str) -> str:
        line = next(typed, "quit")
        out.write(f"{prompt}{line}\n".encode())
        return line

    options = parse_options(["-p", str(shared_node.port), "--no-raw"], {})
    runner = Runner(options, out, interactive=True)
    Repl(runner).run_prompt(read_line)
    runner.disconnect()
    *lines, _ = out.getvalue().decode().splitlines()
    for here, line in zip(lines, told.splitlines(), strict=True):
        assert re.fullmatch(ID, here) if line.endswith("...") else here == line


def test_rates_and_queues_are_shown(at_node: Typist) -> None:
    [(stat, said)] = block("docs/cli.md", "$ disque --stat").typed()
    [(once, top)] = block("docs/cli.md", "$ disque --top\n3 nodes").typed()
    sorted_, logged = block("docs/cli.md", "$ disque --top | sort").lines()
    printed = at_node.type(
        IN_PLACE
        + "  redis-cli -p 7711 ADDJOB sms body 0 > /dev/null\n"
        + f"  {logged} &\n  {sorted_} > sorted &\n  {stat} > stat &\n  stat=$!\n"
        + f"  {once}\n  echo ---\n"
        + until("[ -s queues.log -a -s sorted ] && [ $(wc -l < stat) -ge 2 ]")
        + "  kill $stat; grep -c sms queues.log sorted; cat stat\n"
    )
    shown, rates = printed.split("---\n")
    [head] = [line.split() for line in top if "queued added/s" in line]
    assert head in [line.split() for line in shown.splitlines()]
    assert re.search(r"^ +1 .* sms$", shown, re.MULTILINE)
    assert "queues.log:1\nsorted:1\n" in rates
    assert said[0].split() in [line.split() for line in rates.splitlines()]


def test_a_cluster_is_asked_how_it_is(at_node: Typist) -> None:
    [ask] = block("docs/conditions.md", "redis-cli -p 7711 INFO").lines()
    [(check, [shown])] = block("docs/cli.md", "$ disque -p 7711 check").typed()
    typed = at_node.type(IN_PLACE + f"  {ask}\n  echo ---\n  {check}\n")
    alarms, _, said = typed.partition("---\n")
    assert "alarms:0" in alarms.split()
    assert said.startswith("DISQUE OK - 1 of 1 nodes are well | ")
    figures = [word.partition("=")[0] for word in said.partition("|")[2].split()]
    assert figures == [word.partition("=")[0] for word in shown.partition("|")[2].split()]


def test_subcommands_print_tables_and_json(at_node: Typist) -> None:
    (queues, said), (jobs, _) = block("docs/cli.md", "$ disque queues").typed()
    printed = at_node.type(
        IN_PLACE
        + "  redis-cli -p 7711 ADDJOB mail body 0 > /dev/null\n"
        + "  redis-cli -p 7711 ADDJOB mail body 0 DELAY 100 > id\n"
        + f"  {queues}\n  echo ---\n  {jobs}\n  cat id\n"
    )
    table, ids = printed.split("---\n")
    assert said[0].split() in [line.split() for line in table.splitlines()]
    assert re.search(r"^mail +1 ", table, re.MULTILINE)
    found, added = ids.splitlines()[-2:]
    assert found == added


def test_consoles_are_started(at_node: Typist) -> None:
    page = "packages/console/docs/console.md"
    first = block(page, "pip install").lines()[1]
    [(make_hash, [said])] = block(page, "$ echo").typed()
    behind, with_socket = (
        line
        for one in blocks(page)
        for line in one.lines()
        if line.startswith("disque-console --nodes 10.0.0.1:7711 --prefix")
    )
    text = " ".join(section("console.md", "Behind a proxy").split())
    [ask] = re.findall(r"`(curl --unix-socket .*?)`", text)
    script = IN_PLACE + f'  hash=$({make_hash})\n  echo "$hash"\n  echo ann:viewer:$hash > users\n'
    for start, look in (
        (first, "curl -sf http://127.0.0.1:8711/health"),
        (behind, "curl -sf http://127.0.0.1:8711/disque/health"),
        (with_socket, f"{ask}health -sf"),
    ):
        script += f"  {start} > log 2>&1 &\n" + until(look) + f"  {look}\n  kill $!\n  wait $!\n"
    hashed, *answers = at_node.type(script).split()
    assert hashed.startswith(said.removesuffix("..."))
    assert answers == ["ok"] * 6


def test_orders_come_out_of_the_database(at_node: Typist) -> None:
    page = "packages/integrations/docs/outbox.md"
    first, too_many, check, forward, get = block(page, "python examples/outbox").lines()
    script = IN_PLACE + f"  cp -r {ROOT}/examples .\n  {first}\n  ! {too_many} 2> /dev/null\n"
    printed = at_node.type(f"{script}  {check}\n  {forward}\n  {get}\n")
    assert re.search(r"\b1\b", printed)
    assert re.search(rf"orders\n{ID}\n3 apples\n\Z", printed)


def test_jobs_go_to_pressure_and_back(at_node: Typist, redis_port: str) -> None:
    there, back = block("packages/pressure/docs/pressure.md", "$ pressure pipe").lines()
    script = "  pressure create orders\n  pressure create results\n"
    script += "  redis-cli -p 7711 ADDJOB orders 'order 1' 0\n"
    script += f"  {there} &\n" + until("pressure length orders | grep -q 1")
    script += "  kill %1\n  pressure get orders -n 1 | pressure put results --close\n"
    script += f"  {back}\n  redis-cli -p 7711 GETJOB FROM results\n"
    printed = at_node.type(f"  export REDIS_PORT={redis_port}\n{IN_PLACE}{script}")
    assert re.search(rf"results\n{ID}\norder 1\n\Z", printed)


def test_the_doctor_frees_a_role(redis_port: str, tmp_path: Path) -> None:
    page = "packages/pressure/docs/pressure.md"
    (look, said), (free, freed) = block(page, "$ pressure doctor lines").typed()
    script = "  pressure create lines --bound 1000\n  seq 17 | pressure put lines 2> log\n"
    for words in ("RPOP {}producer_free", "RPOP {}not_full", "SET {}producer web3_pid811"):
        script += f"  redis-cli -p $REDIS_PORT {words.format('__pressure__:lines:')} > log\n"
    last = said[2].rpartition(" ")[2]
    script += f"  redis-cli -p $REDIS_PORT SET __pressure__:lines:consumer {last} > log\n"
    script += f"  {look} || true\n  echo ---\n  {free}\n"
    typist = Typist(tmp_path, {"/tmp/disque": str(tmp_path / "disque")})
    first, second = typist.type(f"  export REDIS_PORT={redis_port}\n{IN_PLACE}{script}").split(
        "---\n"
    )
    assert first.splitlines() == said
    assert second.splitlines()[0] == freed[0]


def test_help_and_versions_are_printed(tmp_path: Path) -> None:
    pages = ("docs/performance.md", "docs/performance-details.md")
    found = [line for page in pages for one in blocks(page) for line in one.lines()]
    asked = [line for line in found if re.search(" --(help|version)( |$)", line)]
    assert len(asked) == 8
    printed = Typist(tmp_path, {"python ": f"{sys.executable} "}).type(
        "PATH=$PWD/.venv/bin:$PATH\n" + "\n".join(asked)
    )
    assert len(re.findall("usage: python -m (?:tools.bench|benchmarks)", printed)) == 6
    assert len(re.findall(r"^(?:bananaq of )?disque-trio [\d.]+", printed, re.MULTILINE)) == 2
