"""The measurement of one machine's cores: arguments, sums, the table."""

from itertools import islice

import pytest

from benchmarks import cores
from benchmarks.cores import Plan, Result, Way, gain_table, placed, split, until, ways
from tools.bench.dialects import Batched, ConstantReply
from tools.bench.load import Exchange, LoadError
from tools.bench.scripts import drain, lives

SIZE = 20
IDS = [b"D-12345678-" + letter * 24 + b"-05a1" for letter in (b"a", b"b")]
WAY = Way("batch", 2, "none", False)
FREE = (0, 1)


def jobs(*ids: bytes) -> bytes:
    """Return a reply to GETJOB."""
    each = [b"*3\r\n$5\r\nbench\r\n$40\r\n%b\r\n$20\r\n%b\r\n" % (id, b"b" * SIZE) for id in ids]
    return b"*%d\r\n" % len(ids) + b"".join(each)


def result(way: Way, nodes: int, rate: float, cpu_us: float) -> Result:
    """Return the result after two seconds at this many jobs per second."""
    count = round(2 * rate)
    return Result(way, nodes, 0, count, 2.0, count * cpu_us / 1e6, count * 4e-6)


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]


def test_a_batch_is_taken_and_ended_with_a_command_each() -> None:
    words = Batched(2, SIZE)
    add = Exchange(b"adds", ConstantReply(b""), 2)
    script = lives(words, iter([add]))
    assert next(script) is add
    taking = script.send(b"")
    words_of = taking.request.split(b"\r\n")[2::2]
    assert words_of == b"GETJOB NOHANG COUNT 2 FROM bench".split()
    reply = jobs(*IDS)
    assert taking.shape.complete(reply, 1)
    ending = script.send(reply)
    assert ending.request.split(b"\r\n")[:1] == [b"*3"]
    assert ending.request.split(b"\r\n")[2::2] == [b"ACKJOB", *IDS]
    assert ending.shape.complete(b":2\r\n", 1)
    with pytest.raises(StopIteration):
        script.send(b":2\r\n")


def test_a_reply_in_pieces_is_waited_for() -> None:
    words, reply = Batched(2, SIZE), jobs(*IDS)
    assert not any(words.taken.complete(reply[:length], 1) for length in range(1, len(reply)))
    assert not Batched(12, SIZE).acked.complete(b":1", 1)


def test_what_there_is_is_taken_until_nothing_is_left() -> None:
    words = Batched(2, SIZE)
    script = drain(words, [3])
    taking = next(script)
    assert taking.request.split(b"\r\n")[2::2] == b"GETJOB TIMEOUT 50 COUNT 2 FROM bench".split()
    taking = script.send(b"*-1\r\n")
    for ids in (IDS, IDS[:1]):
        reply = jobs(*ids)
        assert not any(taking.shape.complete(reply[:n], 1) for n in range(1, len(reply)))
        assert taking.shape.complete(reply, 1)
        ending = script.send(reply)
        assert ending.request.split(b"\r\n")[2::2] == [b"ACKJOB", *ids]
        if ids is IDS:
            taking = script.send(b":2\r\n")
    with pytest.raises(StopIteration):
        script.send(b":1\r\n")


@pytest.mark.parametrize("reply", [b"-ERR\r\n", b"*x\r\n", jobs(*IDS) + b"x"])
def test_a_reply_that_is_not_an_array_of_jobs_is_an_error(reply: bytes) -> None:
    with pytest.raises(LoadError):
        Batched(2, SIZE).waited.complete(reply, 1)


@pytest.mark.parametrize("reply", [jobs(IDS[0]), b"-ERR\r\n", jobs(*IDS) + b"x", b"*-1\r\n"])
def test_another_reply_is_an_error(reply: bytes) -> None:
    with pytest.raises(LoadError):
        Batched(2, SIZE).taken.complete(reply, 1)
    with pytest.raises(LoadError):
        Batched(2, SIZE).acked.complete(b":1\r\n", 1)


def test_the_prepared_batches_go_round_until_the_time_is_over() -> None:
    batches = [Exchange(b"%d" % n, ConstantReply(b""), n) for n in (1, 2)]
    given: list[int] = []
    assert [b.commands for b in islice(until(1e12, batches, given), 3)] == [1, 2, 1]
    assert given == [1, 2, 1]
    assert list(until(0.0, batches, given)) == []


def test_a_pinned_node_shares_its_cpu_with_its_own_generator_only() -> None:
    pinned = Way("batch", 2, "none", True)
    assert placed(pinned, 2, FREE) == [({0}, {0}), ({1}, {1})]
    assert placed(pinned, 1, FREE) == [({1}, {0})]
    assert placed(pinned, 1, (3,)) == [({3}, {3})]
    assert placed(WAY, 2, FREE) == [({0, 1}, {0, 1})] * 2


def test_one_node_gets_as_many_clients_and_generators_as_two() -> None:
    one, two = (split(WAY, ports, [{0}] * len(ports), Plan(size=SIZE)) for ports in ([1], [1, 2]))
    assert [part.port for part in one] == [1, 1]
    assert [part.port for part in two] == [1, 2]
    assert {part.clients for part in one + two} == {32}
    assert all(part.batched for part in one + two)


def test_all_ways_are_different() -> None:
    found = ways((16, 64), ("none", "everysec"))
    assert len(set(found)) == len(found)
    assert {way.step for way in found} == set(cores.STEPS)


def test_the_gain_is_that_of_the_rounds_and_of_the_cpu_time() -> None:
    results = [result(WAY, 1, rate, 10) for rate in (100_000, 50_000, 100_000)]
    results += [result(WAY, 2, rate, 12.5) for rate in (150_000, 100_000, 150_000)]
    (row,) = cells(gain_table(results))
    assert row[:6] == ["batch", "2", "none", "free", "100,000", "150,000"]
    assert row[6:] == ["**1.50**", "1.50-2.00", "10.0", "12.5", "4.0", "1.60"]
