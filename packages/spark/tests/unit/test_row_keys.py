"""The keys of rows: repeated rows get the same ones."""

import random

from disque_spark.sink.keys import RowKeys

ROWS = [(f"body {n % 70}", (n % 3,)) for n in range(100)]


def keys(rows: list[tuple[str, tuple[int, ...]]], write: str = "w", partition: int = 0) -> set[str]:
    made = RowKeys(write, partition)
    return {made.key(body, others) for body, others in rows}


def test_each_row_has_a_key_of_its_own_also_where_rows_are_alike() -> None:
    assert len(keys(ROWS)) == len(keys([("x", ())] * 100)) == 100


def test_a_repeat_has_the_same_keys_in_whatever_order() -> None:
    assert keys(random.Random(1).sample(ROWS, len(ROWS))) == keys(ROWS)


def test_another_write_or_partition_has_others() -> None:
    assert not keys(ROWS) & keys(ROWS, "other")
    assert not keys(ROWS) & keys(ROWS, partition=1)


def test_text_and_bytes_are_the_same_and_a_body_is_not_taken_for_a_column() -> None:
    assert RowKeys("w", 0).key("é", ()) == RowKeys("w", 0).key("é".encode(), ())
    assert RowKeys("w", 0).key("(1,)", ()) != RowKeys("w", 0).key("", (1,))


def test_a_key_says_of_what_write_and_partition_it_is() -> None:
    made = RowKeys("query/7", 3)
    first, second = made.key(b"x", ()), made.key(b"x", ())
    assert first.rpartition("/")[0] == "query/7/3"
    assert second == f"{first}/1"
