"""Locations: paths, URIs and their operations, on all kinds of file systems."""

import pickle
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from uuid import uuid4

import pytest

from disque_spark.files import Location, location, matches
from disque_spark.filesystems import FileSystemError, options_of
from packages.spark.tests.support.s3 import Bucket


@pytest.fixture(params=["local", "s3", "memory", "google", "azure"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty directory."""
    if request.param == "local":
        return location(tmp_path / "here")
    if request.param == "s3":
        return location(request.getfixturevalue("s3").uri) / "here"
    if request.param == "memory":
        return location(f"memory://{uuid4().hex}/here")
    there: Location = request.getfixturevalue(request.param)
    return there / "here"


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "uri", "shown"),
    [
        ("/var/log/", "file:///var/log", "/var/log"),
        ("file:///var/a%20b", "file:///var/a b", "/var/a b"),
        ("file:/var/log", "file:///var/log", "/var/log"),
        ("s3://bucket/a/b/", "s3a://bucket/a/b", "s3a://bucket/a/b"),
        ("s3a://bucket", "s3a://bucket", "s3a://bucket"),
        ("s3a://bucket/a%20b", "s3a://bucket/a%20b", "s3a://bucket/a%20b"),
        ("hdfs://host:8020/a", "hdfs://host:8020/a", "hdfs://host:8020/a"),
        ("abfss://box@me.dfs.core.windows.net/a", *["abfss://box@me.dfs.core.windows.net/a"] * 2),
    ],
)
def test_names_are_those_of_spark(text: str, uri: str, shown: str) -> None:
    found = location(text)
    assert (found.uri, str(found)) == (uri, shown)


def test_a_path_is_absolute() -> None:
    assert location("logs/a").local == Path("logs/a").absolute()
    assert location("s3a://bucket/a").local is None


def test_parts_of_a_name() -> None:
    place = location("s3a://bucket/a/b.gz?region=eu-central-1")
    assert (place.name, place.parent.uri, place.parent.parent.uri) == (
        "b.gz",
        "s3a://bucket/a",
        "s3a://bucket",
    )
    assert (place.parent / "c").uri == "s3a://bucket/a/c"
    assert (location("/") / "a").uri == "file:///a"
    assert location("/a").parent.uri == "file:///"


def test_wildcards_are_no_options() -> None:
    assert location("s3a://bucket/events-?.jsonl").name == "events-?.jsonl"


def test_a_location_travels_with_its_options_and_shows_none() -> None:
    place = location("s3a://bucket/a?secret_key=hidden&access_key=a")
    again = pickle.loads(pickle.dumps(place))
    assert again == place
    assert dict(again.options)["secret_key"] == "hidden"
    assert "hidden" not in f"{place} {place!r} {place.uri}"


# ---- options -------------------------------------------------------------------------------------


def test_the_query_comes_before_spark_and_that_before_the_environment() -> None:
    settings = {
        "spark.hadoop.fs.s3a.endpoint": "http://spark:9000",
        "fs.s3a.endpoint.region": "of-spark",
        "fs.s3a.bucket.one.endpoint.region": "of-bucket",
    }
    environment = {"AWS_ENDPOINT_URL": "https://env", "AWS_REGION": "env", "AWS_SESSION_TOKEN": "t"}

    def of(bucket: str, query: str = "") -> dict[str, str]:
        return dict(options_of("s3a", bucket, query, settings, environment))

    assert of("two") == {
        "endpoint_override": "spark:9000",
        "scheme": "http",
        "region": "of-spark",
        "session_token": "t",
    }
    assert of("one")["region"] == "of-bucket"
    assert of("one", "region=of-query")["region"] == "of-query"


def test_keys_of_one_place_are_not_mixed_with_those_of_another() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "e", "AWS_SECRET_ACCESS_KEY": "e", "AWS_SESSION_TOKEN": "e"}
    settings = {"fs.s3a.access.key": "s", "fs.s3a.secret.key": "s"}
    found = dict(options_of("s3a", "bucket", "", settings, environment))
    assert found == {"access_key": "s", "secret_key": "s"}


def test_the_key_of_an_account() -> None:
    settings = {"spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net": "key"}
    found = options_of("abfss", "box@me.dfs.core.windows.net", "", settings, {})
    assert dict(found) == {"account_key": "key"}


def test_an_option_that_is_unknown_is_refused() -> None:
    with pytest.raises(FileSystemError, match=r"s3a://bucket: .*'regoin'"):
        location("s3a://bucket/a?regoin=here").exists()


def test_an_unknown_file_system_is_reported_in_one_line() -> None:
    with pytest.raises(FileSystemError, match=r"^strange://host: "):
        location("strange://host/a").exists()


# ---- files ---------------------------------------------------------------------------------------


def test_a_file_is_written_and_read(place: Location) -> None:
    file = place / "deep" / "file.gz"
    assert not file.exists()
    file.write_bytes(b"one\ntwo\n")
    file.write_bytes(b"three\nfour\n")
    assert (file.read_bytes(), file.size()) == (b"three\nfour\n", 11)
    with file.open_input() as opened:
        assert opened.readline() == b"three\n"
        opened.seek(2)
        assert opened.read(3) == b"ree"
        assert opened.readline() == b"\n"
    with (place / "other").open_output() as out:
        out.write(b"x" * 5_000_000)
    assert (place / "other").size() == 5_000_000
    assert (file.is_file(), file.is_dir(), place.is_dir()) == (True, False, True)


def test_files_are_listed(place: Location) -> None:
    for name in ("b/2", "a", "b/1", "b/c/3"):
        (place / name).write_bytes(b"12")
    assert [file.path.removeprefix(place.path) for file in place.files()] == [
        "/a",
        "/b/1",
        "/b/2",
        "/b/c/3",
    ]
    assert [file.name for file in place.files(recursive=False)] == ["a"]
    assert [file.size() for file in place.files()] == [2] * 4


def test_patterns(place: Location) -> None:
    for name in ("1/events/x.jsonl", "1/events/.x.jsonl", "2/events/deep/y.jsonl", "2/other/z"):
        (place / name).write_bytes(b"12")

    def of(pattern: str) -> list[str]:
        return [found.path.removeprefix(place.path) for found in (place / pattern).glob()]

    assert of("*/events") == ["/1/events", "/2/events"]
    assert of("*/events/*.jsonl") == ["/1/events/x.jsonl"]
    assert of("**/*.jsonl") == ["/1/events/x.jsonl", "/2/events/deep/y.jsonl"]
    assert of("[13]/events/?.jsonl") == ["/1/events/x.jsonl"]
    assert of("1/events") == ["/1/events"]
    assert of("3/*") == of("3") == of("*/none") == []


def test_a_file_is_renamed_and_deleted(place: Location) -> None:
    one, other = place / "one", place / "other"
    one.write_bytes(b"1")
    other.write_bytes(b"2")
    one.rename(other)
    assert (one.exists(), other.read_bytes()) == (False, b"1")
    other.delete()
    other.delete()
    assert not other.exists()
    (place / "a" / "b").write_bytes(b"3")
    (place / "a").delete_tree()
    (place / "a").delete_tree()
    assert not (place / "a" / "b").exists()


def test_a_missing_file_is_an_error_that_names_it(place: Location) -> None:
    for wrong in (
        lambda: (place / "none").open_input(),
        lambda: (place / "none").size(),
        lambda: (place / "none").files(),
        lambda: (place / "none").rename(place / "other"),
    ):
        with pytest.raises(FileNotFoundError, match="none"):
            wrong()


# ---- new files -----------------------------------------------------------------------------------


def _several(put: Callable[[bytes], bool], count: int = 5) -> list[bytes]:
    """Return which of several threads created the file."""
    won: list[bytes] = []
    names = [f"{number}".encode() for number in range(count)]
    threads = [Thread(target=lambda n=name: won.append(n) if put(n) else None) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


@pytest.mark.parametrize("place", ["local", "s3"], indirect=True)
def test_one_of_several_makes_a_file(place: Location) -> None:
    place.make_directory()
    file = place / "manifest"
    won = _several(file.put_new)
    assert len(won) == 1
    assert file.read_bytes() == won[0]
    assert not file.put_new(b"later")
    assert [found.name for found in place.files()] == ["manifest"]


@pytest.mark.parametrize("place", ["memory", "google"], indirect=True)
def test_elsewhere_a_file_that_is_there_is_not_made_again(place: Location) -> None:
    assert (place / "manifest").put_new(b"first")
    assert not (place / "manifest").put_new(b"later")
    assert (place / "manifest").read_bytes() == b"first"


# ---- S3 refuses ----------------------------------------------------------------------------------


def test_a_bucket_that_is_not_there(s3: Bucket) -> None:
    place = location("s3a://no-such-bucket/a")
    for wrong in (place.files, lambda: place.write_bytes(b""), lambda: place.put_new(b"")):
        with pytest.raises(OSError, match=r"no-such-bucket.*bucket") as failure:
            wrong()
        assert "\n" not in str(failure.value)
    assert not place.exists()


def test_patterns_match_as_in_a_shell() -> None:
    assert matches(["a", "b"], ["**", "b"])
    assert matches(["b"], ["**", "b"])
    assert matches([], ["**"])
    assert not matches(["a", "b"], ["*"])
    assert not matches(["a"], ["a", "*"])
    assert not matches([".hidden"], ["*"])
    assert matches([".hidden"], [".*"])
