"""What an archive's directory says about its table, and the command that maintains it."""

import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from disque_spark import pipeline
from disque_spark.cli.arguments import parser
from disque_spark.cli.checks import UsageError, table_settings
from disque_spark.files import location
from disque_spark.lakehouse.formats import table_of
from disque_spark.lakehouse.parquet import ParquetFiles
from disque_spark.lakehouse.reading import more_columns
from disque_spark.lakehouse.settings import (
    FILE,
    TableError,
    TableFailedError,
    TableSettings,
    table_failures,
)
from disque_spark.lakehouse.table import Upkeep
from packages.spark.tests.support.jobs_files import add


def test_later_runs_find_what_the_first_has_said(tmp_path: Path) -> None:
    assert TableSettings.read(location(tmp_path)) is None
    catalog = {"uri": "https://catalog", "token": "secret", "s3.secret-access-key": "secret"}
    settings = TableSettings("iceberg", "json:a INT", True, catalog, "shop.orders")
    settings.keep(location(tmp_path))
    assert "secret" not in (tmp_path / FILE).read_text().replace("secret-access-key", "")
    assert TableSettings.read(location(tmp_path)) == TableSettings(
        "iceberg", "json:a INT", True, {"uri": "https://catalog"}, "shop.orders"
    )
    settings.keep(location(tmp_path))


@pytest.mark.parametrize(
    "other",
    [
        TableSettings("parquet", "text"),
        TableSettings("delta", "json:a INT"),
    ],
)
def test_a_table_is_written_in_one_way(tmp_path: Path, other: TableSettings) -> None:
    TableSettings("delta", "text").keep(location(tmp_path))
    with pytest.raises(TableError):
        other.keep(location(tmp_path))


def test_a_run_may_leave_bodies_as_they_are(tmp_path: Path) -> None:
    for settings in (TableSettings(body="text"), TableSettings(), TableSettings(body="text")):
        settings.keep(location(tmp_path))
        found = TableSettings.read(location(tmp_path))
        assert found is not None
        assert found.body == "text"


def test_an_old_archive_is_one_of_parquet_files(tmp_path: Path) -> None:
    """Its bodies may be decoded from now on."""
    add(ParquetFiles(tmp_path), tmp_path, 0, ["1"])
    with pytest.raises(TableError, match="parquet, not delta"):
        TableSettings("delta").keep(location(tmp_path))
    TableSettings(body="text").keep(location(tmp_path))
    with pytest.raises(TableError, match="use another table"):
        TableSettings(body="json:a INT").keep(location(tmp_path))


def test_columns_of_the_source_stay_known(tmp_path: Path) -> None:
    """Even if later runs do not ask for them."""
    for columns in ({"headers": "array<binary>"}, {}, {"size": "int"}):
        TableSettings(columns=columns).keep(location(tmp_path))
    found = TableSettings.read(location(tmp_path))
    assert found is not None
    assert found.columns == {"headers": "array<binary>", "size": "int"}


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_a_column_keeps_its_type(tmp_path: Path, format: str) -> None:
    TableSettings(format, columns={"headers": "array<binary>"}).keep(location(tmp_path))
    with pytest.raises(TableError, match="column headers has type array<binary>, not string"):
        TableSettings(format, columns={"headers": "string"}).keep(location(tmp_path))


def test_more_columns_are_those_that_not_all_archives_have() -> None:
    schema = StructType(
        [
            *(StructField(name, StringType()) for name in ("id", "body", "queue", "day", "value")),
            StructField("headers", ArrayType(StructType([StructField("key", StringType())]))),
        ]
    )
    assert more_columns(schema) == {"headers": "array<struct<key:string>>"}


def test_days_begin_in_utc_and_all_of_them_may_be_kept() -> None:
    midnight = datetime(2026, 11, 24, tzinfo=UTC).timestamp()
    # What was archived at the end of the 23rd is a day old at the end of the 24th.
    assert Upkeep(days=1).first_day(midnight) == date(2026, 11, 23)
    assert Upkeep(days=1).first_day(midnight - 0.001) == date(2026, 11, 22)
    assert Upkeep(days=2).first_day(midnight) == date(2026, 11, 22)
    assert Upkeep(days=2_000_000_000).first_day(midnight) == date.min
    assert Upkeep().first_day(midnight) is None


def test_periods_that_clocks_do_not_have_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        pipeline.main(["compact", "/nowhere", "--keep-history", "36501d"])
    assert ended.value.code == 2


@pytest.mark.parametrize("kind", [OSError, KeyError, RuntimeError])
def test_errors_of_a_library_name_the_table(
    kind: type[Exception],
) -> None:
    with (
        pytest.raises(TableFailedError, match=f"^/x: {kind.__name__}: .*late"),
        table_failures("/x"),
    ):
        raise kind("late\nand more")
    for known in (TableError, ValueError):
        with pytest.raises(known, match="it"), table_failures("/x"):
            raise known("it")


@pytest.mark.parametrize("text", ["", "[]", '{"what": 1}', "{"])
def test_damaged_settings_are_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(TableError, match=FILE):
        TableSettings.read(location(tmp_path))


def settings_of(*words: str) -> TableSettings:
    return table_settings(
        parser().parse_args(["archive", "--queue", "q", "--output", "/nowhere", *words])
    )


def test_the_arguments_of_an_archive_say_its_table() -> None:
    assert settings_of() == TableSettings()
    words = ("--format", "iceberg", "--iceberg-catalog", "uri=a=b", "--iceberg-table", "a.b")
    assert settings_of(*words, "--body", "text") == TableSettings(
        "iceberg", "text", False, {"uri": "a=b"}, "a.b"
    )


SCHEMA = StructType(
    [
        StructField("a `b`", DecimalType(10, 2), metadata={"comment": "it is"}),
        StructField(
            "m", MapType(StringType(), ArrayType(StructType([StructField("x-y", DateType())])))
        ),
    ]
)


def test_a_schema_may_be_in_a_file_and_in_each_way_that_spark_has(tmp_path: Path) -> None:
    sql = "`a ``b```: DECIMAL(10,2), `m`: MAP<STRING, ARRAY<STRUCT<`x-y`: DATE>>>"
    file = tmp_path / "schema"
    for text in (sql, f" struct<{sql}>\n", SCHEMA.json(), sql.replace(", ", ",\n", 1)):
        file.write_text("\ufeff" + text)
        for body in (f"json:@{file}", f"json:{text}"):
            found = settings_of("--body", body).body
            assert found is not None
            assert found.replace(", ", ",") == f"json:{sql}".replace(", ", ",")
    with pytest.raises(FileNotFoundError):
        settings_of("--body", f"json:@{tmp_path / 'another'}")
    for wrong in (b"\xff\xfe", b"", b"{}", b'{"type": "map"}', b"STRUCT<>"):
        file.write_bytes(wrong)
        with pytest.raises(UsageError):
            settings_of("--body", f"json:@{file}")


@pytest.mark.parametrize(
    "words",
    [
        ("--body", "xml"),
        ("--body", "json:"),
        ("--drop-body",),
        ("--iceberg-table", "a.b"),
        ("--format", "delta", "--iceberg-catalog", "a=b"),
        ("--format", "iceberg", "--iceberg-table", "a"),
    ],
)
def test_conflicting_arguments_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        settings_of(*words)


def compact(*words: str | Path) -> int:
    return pipeline.main(["compact", *map(str, words)])


def test_the_command_says_that_plain_files_are_not_merged_and_drops_old_days(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(5):
        add(ParquetFiles(tmp_path), tmp_path, number, ["1", "2"])
    assert compact(tmp_path) == 1
    assert "plain Parquet files are not merged; write" in capsys.readouterr().err
    assert len(list(tmp_path.rglob("*.parquet"))) == 5
    assert compact(tmp_path, "--keep-days", "1", "--dry-run") == 0
    assert (
        capsys.readouterr().out
        == "0 files would be merged into 0\nq, 2026-11-24 would be removed\n"
    )
    assert compact(tmp_path, "--keep-days", "1") == 0
    assert capsys.readouterr().out.endswith("q, 2026-11-24 removed\n5 files removed\n")
    assert not list(tmp_path.rglob("*.parquet"))
    # It stays an archive even if its last day is gone.
    assert compact(tmp_path, "--keep-days", "1") == 0


def test_the_command_reports_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compact(tmp_path) == 1
    assert capsys.readouterr().err == f"disque-pipeline: no archive at {tmp_path}\n"
    TableSettings("delta").keep(location(tmp_path))
    assert compact(tmp_path) == 1
    for wrong in (
        ("--iceberg-catalog", "x"),
        ("--target-size", "0"),
        ("--target-size", "5X"),
        ("--keep-history", "1y"),
        ("--deduplicate",),
    ):
        with pytest.raises(SystemExit):
            compact(tmp_path, *wrong)


@pytest.mark.parametrize(("name", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_a_format_whose_extra_is_missing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    for module in [one for one in sys.modules if one.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"disque_spark.lakehouse.{name}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TableError, match=rf"needs {package}.*: .* install .*\[{name}\]"):
        table_of(location(tmp_path), TableSettings(name))
