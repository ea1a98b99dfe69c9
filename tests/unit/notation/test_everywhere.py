"""One table of notations, through each option and each setting that takes one: all read the same.

Options of command lines are found by what their help calls the value, so a new one is tested, too.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from disque_bananaq import options as bananaq
from disque_console.command import listening
from disque_integrations.celery.options import cluster_of
from disque_pressure.urls import Url
from disque_spark import options as spark
from disque_spark.cli.checks import UsageError, addresses
from disque_trio.cli.options import UsageError as CliUsageError
from disque_trio.cli.options import parse_options
from disque_trio.client.nodes import parse_address
from disque_trio.client.urls import Cluster
from disque_trio.config import TABLE, Config, ConfigErrors, load_settings, load_settings_text
from disque_trio.config.errors import BadValue
from disque_trio.config.load import parse_arguments
from disque_trio.node.core.shared.cron_times import Times
from disque_trio.node.core.shared.policies import Policy
from disque_trio.node.core.shared.policy_words import set_options
from disque_trio.node.core.shared.versions import SharedError
from disque_trio.notation.addresses import Address
from disque_trio.notation.rates import read_rate
from disque_trio.respserver.acl.budget import Budget
from disque_trio.respserver.acl.permissions import RuleError
from tools.manuals.described import parser_of
from tools.workspace import distributions

SIZES = {
    "64": 64,
    "64b": 64,
    "1k": 1000,
    "1K": 1000,
    "1kb": 1024,
    "1KiB": 1024,
    "2m": 2 * 1000**2,
    "2MB": 2 << 20,
    "2Mi": 2 << 20,
    "1g": 1000**3,
    "1gb": 1 << 30,
    "1GiB": 1 << 30,
    **dict.fromkeys(("", "k", "-1", "1.5k", "010", "3 GB", "1t", "much", "1kbb")),
}
PERIODS: dict[str, float | None] = {
    "600": 600,
    "900s": 900,
    "15m": 900,
    "1h30m": 5400,
    "7d": 604_800,
    **dict.fromkeys(("", "-1", "nan", "1e9", "5S", "1M", "1.5h", "1h30", "soon")),
}
RATES = {
    "50": (50, 1),
    "50/s": (50, 1),
    "30/m": (30, 60),
    "5/H": (5, 3600),
    **dict.fromkeys(("-1", "0.5", "nan", "5/d", "5/", "5s", "010")),
}
PLACES = {
    "h:1": ("h", 1),
    "10.0.0.1:65535": ("10.0.0.1", 65_535),
    "[::1]:7711": ("::1", 7711),
    **dict.fromkeys(("h:", "h:x", "h:65536", "[::1", "[h]:1", "::1:7711", "a:b:1", "[::1]x")),
}
"""With host and port."""
HOSTS = {"h": "h", "[::1]": "::1", "::1": "::1", "2001:db8::a": "2001:db8::a"}
"""A host alone, for a reader that has a default port; an error for others."""
PORTS = {"9100": 9100, ":9100": 9100}
"""A port alone, for a reader that has a default host; an error for others."""
BOTH = "::1:7711: write [::1:7711] for the host, or [::1]:7711 for host and port"

Reader = Callable[[str], Any]
REFUSALS = (ValueError, BadValue, RuleError, ConfigErrors, UsageError, CliUsageError, SharedError)


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All options of a command and of its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in dict.fromkeys(action.choices.values()):
                yield from actions(below)


COMMANDS = {
    name: parser_of(name, entry)
    for house in distributions()
    for name, entry in house.scripts.items()
    if name not in ("disque", "disque-server", "bananaq")
}
OPTIONS = {
    f"{name} {action.option_strings[-1]}": action
    for name, parser in COMMANDS.items()
    for action in actions(parser)
    if action.option_strings and action.nargs != 0
}


def options_of(metavar: str) -> dict[str, Reader]:
    """The types of the options that call their value ``metavar``."""
    found: dict[str, Reader] = {}
    for name, action in OPTIONS.items():
        if action.metavar == metavar and callable(action.type):
            found[name] = action.type
    return found


def read(reader: Reader, text: str) -> Any:
    """What ``reader`` reads; None: it refuses."""
    try:
        return reader(text)
    except (*REFUSALS, argparse.ArgumentTypeError):
        return None
    except SystemExit:
        return None


def refusal(reader: Reader, text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What ``reader`` says when it refuses."""
    try:
        reader(text)
    except SystemExit:
        return capsys.readouterr().err
    except (*REFUSALS, argparse.ArgumentTypeError) as refused:
        return str(refused) or getattr(refused, "reason", "")
    raise AssertionError(f"{text} is accepted")


def banana(name: str, text: str) -> Any:
    return bananaq.parse([f"--{name}={text}"], {}).get(name)


def banana_variable(name: str, text: str) -> Any:
    return bananaq.parse([], {f"BANANAQ_{name.upper().replace('-', '_')}": text}).get(name)


def in_file(kind: str, name: str, text: str, directory: Path) -> Any:
    file = directory / f"settings.{kind}"
    file.write_text(f'{name} "{text}"\n' if kind == "conf" else f'{name}: "{text}"\n')
    return load_settings(Config, str(file)).get(name)


@pytest.fixture
def size_readers(tmp_path: Path) -> dict[str, Reader]:
    return {
        **options_of("SIZE"),
        "CONFIG SET": TABLE["maxmemory"].parse_text,
        "standard input": lambda text: (
            load_settings_text(Config, f'maxmemory "{text}"\n').maxmemory
        ),
        "disque.conf": lambda text: in_file("conf", "maxmemory", text, tmp_path),
        "disque.yaml": lambda text: in_file("yaml", "maxmemory", text, tmp_path),
        "disque-server": lambda text: (
            load_settings(Config, None, parse_arguments(TABLE, ["--maxmemory", text])).maxmemory
        ),
        "or percent": lambda text: TABLE["maxmemory-clients"].parse_text(text).size,
        "of output": lambda text: (
            TABLE["client-output-buffer-limit"].parse_text(f'normal "{text}" 0 0').hard
        ),
        "bananaq": partial(banana, "maxmemory"),
        "bananaq's environment": partial(banana_variable, "maxmemory"),
        "ACL": lambda text: user_limit("maxoutput", text),
        "Spark": lambda text: spark.size({"partitionBytes": text}, "partitionBytes", 1),
    }


def test_a_size_is_read_alike_everywhere(size_readers: dict[str, Reader]) -> None:
    for name, reader in size_readers.items():
        assert {text: read(reader, text) for text in SIZES} == SIZES, name
    commands = {"disque-worker", "disque-pipeline", "pressure"}
    assert commands <= {name.partition(" ")[0] for name in size_readers}


def test_a_period_is_read_alike_everywhere() -> None:
    readers: dict[str, Reader] = {
        **options_of("TIME"),
        "disque -i": lambda text: parse_options(["-i", text], {}).interval,
        "Spark": lambda text: spark.seconds({"timeout": text}, "timeout", 1),
    }
    assert len(readers) > 15
    for name, reader in readers.items():
        assert {text: read(reader, text) for text in PERIODS} == PERIODS, name


@pytest.mark.parametrize("text", PERIODS)
def test_a_schedule_reads_the_same_periods_but_no_bare_numbers(text: str) -> None:
    found = read(lambda text: Times(f"@every {text}".encode(), b"").next(0) / 1000, text)
    assert found == (None if text.isdigit() else PERIODS[text])


def policy_rate(text: str) -> tuple[int, int]:
    policy = Policy(b"q")
    set_options(policy, [b"RATE", text.encode()])
    return policy.rate, policy.period


def user_limit(rule: str, text: str) -> int:
    budget = Budget().with_rule(f"%{rule}={text}".encode(), False)
    return sum(budget.limits().values()) if budget else 0


def test_a_rate_is_read_alike_everywhere() -> None:
    for text, rate in RATES.items():
        assert read_rate(text) == read(policy_rate, text) == rate
        a_second = rate and rate[0] / rate[1]
        assert {read(reader, text) for reader in options_of("RATE").values()} == {a_second}
        assert read(partial(user_limit, "rate"), text) == (
            rate[0] if rate and rate[1] == 1 else None
        )  # of commands a second


def of_pipeline(text: str) -> tuple[str, int]:
    [node] = addresses(
        COMMANDS["disque-pipeline"].parse_args(
            ["archive", "--queue", "q", "--output", "o", "--nodes", text]
        )
    )
    return split(node)


def of_address(found: Address) -> tuple[str, int]:
    return found.host, found.port


def split(node: str) -> tuple[str, int]:
    return of_address(parse_address(node))


def of_cluster(cluster: Cluster) -> tuple[str, int]:
    [node] = cluster.nodes
    return split(node)


def of_cli(text: str) -> tuple[str, int]:
    options = parse_options(["-u", f"disque://{text}"], {})
    return options.host, options.port


def of_redis(text: str) -> tuple[str, int]:
    url = Url.parse(f"redis://{text}")
    return url.server or "", url.port or 0


NODES: dict[str, Reader] = {
    "connect": split,
    "Cluster.of": lambda text: of_cluster(Cluster.of(text)),
    "disque://": lambda text: of_cluster(Cluster.parse(f"disque://{text}")),
    "Celery": lambda text: of_cluster(cluster_of([f"disques://user:secret@{text}"])),
    "disque -u": of_cli,
    "Spark": lambda text: split(spark.nodes_of({"nodes": text})[0]),
    "disque-pipeline --nodes": of_pipeline,
    "pressure --url": of_redis,
    "bananaq --redis-addr": lambda text: of_address(banana("redis-addr", text)[0]),
    "bananaq's environment": lambda text: of_address(banana_variable("redis-addr", text)[0]),
}
SENTINEL = "pressure --sentinel"
LISTENERS: dict[str, Reader] = {
    **options_of("[HOST:]PORT"),
    "bananaq --listen-addr": lambda text: of_address(banana("listen-addr", text)),
    "disque-console --listen": lambda text: split(listening(text)[0]),
}
READERS = {
    **NODES,
    **LISTENERS,
    SENTINEL: lambda text: options_of("HOST:PORT[,...]")[SENTINEL](text)[0],
}


@pytest.mark.parametrize("name", READERS)
def test_an_address_is_read_alike_everywhere(name: str) -> None:
    assert {text: read(READERS[name], text) for text in PLACES} == PLACES
    hosts = {text: read(READERS[name], text) for text in HOSTS}
    ports = {text: read(READERS[name], text) for text in PORTS}
    if name in NODES:
        assert {text: found and found[0] for text, found in hosts.items()} == HOSTS
    else:
        assert set(hosts.values()) == {None}
    if name in LISTENERS:
        assert {text: found and found[1] for text, found in ports.items()} == PORTS
    elif name != "pressure --url":  # REDIS_SERVER may name the host
        assert set(ports.values()) == {None}


@pytest.mark.parametrize("name", READERS)
def test_an_address_that_can_be_read_in_two_ways_is_an_error_that_shows_both(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert BOTH in refusal(READERS[name], "::1:7711", capsys)


def test_no_option_has_a_notation_of_its_own() -> None:
    """A value in SECONDS or BYTES would be a number that does not take units."""
    ours = re.compile(r"seconds|bytes|size|time|period|rate|s", re.IGNORECASE)
    known = ("SIZE", "TIME", "RATE")
    for name, action in OPTIONS.items():
        called = action.metavar if isinstance(action.metavar, str) else action.dest
        assert called in known or not ours.fullmatch(called), name
