"""Sizes that may be given as a share of maxmemory."""

from pathlib import Path

import pytest

from disque_bananaq.settings import TABLE as BANANAQ
from disque_trio.config import TABLE, Config, load_settings, rewrite
from disque_trio.config.errors import BadValue
from disque_trio.config.memory_limit import MemoryLimit

MB = 1024 * 1024


@pytest.mark.parametrize(
    ("text", "shown", "of_a_gigabyte"),
    [
        ("0", "0", 0),
        ("100mb", "104857600", 100 * MB),
        ("5%", "5%", 1024 * MB // 20),
        ("100%", "100%", 1024 * MB),
        ("1%", "1%", 1024 * MB // 100),
    ],
)
def test_bytes_and_percents_are_taken_and_shown(text: str, shown: str, of_a_gigabyte: int) -> None:
    for param in (TABLE["maxmemory-clients"], BANANAQ["maxmemory-clients"], TABLE["maxmemory-bus"]):
        value = param.parse_text(text)
        assert param.type.show(value) == shown
        assert value.of(1024 * MB) == of_a_gigabyte
        assert param.parse(param.type.words(value)) == value


@pytest.mark.parametrize("text", ["", "%", "101%", "-1%", "-1", "5 %", "5.5%", "05%", "5%%", "x%"])
def test_anything_but_bytes_or_percents_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        TABLE["maxmemory-clients"].parse_text(text)


def test_a_part_of_no_limit_is_no_limit() -> None:
    assert MemoryLimit(percent=5).of(0) == 0
    assert MemoryLimit(percent=0) == TABLE["maxmemory-clients"].parse_text("0%")


def test_a_part_of_little_is_enough_for_one_client() -> None:
    assert MemoryLimit(percent=100).of(1) == 32 * MB
    assert MemoryLimit(percent=50).of(MB) == 16 * MB
    assert MemoryLimit(3).of(MB) == 3


def test_by_default_clients_and_half_packets_have_the_limit_of_the_jobs() -> None:
    config = Config()
    assert config.maxmemory_clients.of(config.maxmemory) == config.maxmemory
    assert config.maxmemory_bus.of(config.maxmemory) == config.maxmemory


@pytest.mark.parametrize("name", ["disque.conf", "disque.yaml"])
def test_both_kinds_of_file_keep_a_percentage(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("maxmemory-clients: 10%\n" if name.endswith("yaml") else "port 7711\n")
    config = load_settings(Config, str(path))
    config.config_set([(b"maxmemory-clients", b"7%"), (b"maxmemory-bus", b"3mb")])
    rewrite(config)
    assert "7%" in path.read_text()
    again = load_settings(Config, str(path))
    assert again.maxmemory_clients == MemoryLimit(percent=7)
    assert again.maxmemory_bus == MemoryLimit(3 * MB)
