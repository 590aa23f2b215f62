"""The client of the extra `fast`: it answers as the table's FileIO, serves only what it may, and leaks no secrets."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow.fs import AwsStandardS3RetryStrategy
from pypaimon.catalog.rest.rest_token import RESTToken
from pypaimon.catalog.rest.rest_token_file_io import RESTTokenFileIO
from pypaimon.common.identifier import Identifier
from pypaimon.common.options import Options
from pypaimon.filesystem.caching_file_io import CachingFileIO, LocalMemoryCacheManager
from pypaimon.filesystem.oss_file_io import OssFileIO
from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO
from pypaimon.filesystem.resolving_file_io import ResolvingFileIO

from pypaimon.streaming import CorruptTableError, IOTimeoutError
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.io import object_client as clients
from pypaimon.streaming.io.object_client import Bucket, ObjectClient
from pypaimon.streaming.io.object_reads import SWITCH
from pypaimon.streaming.io.remote_files import RemoteFile
from pypaimon.streaming.io.store import Store
from support.pyarrow_limits import ends_with_s3_in_flight
from support.samples import examples
from support.stores.request_time import FOR_EVER, let_pass
from support.stores.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, forget_clients, methods

pytestmark = [pytest.mark.server, pytest.mark.soak]

ROOT = f"s3://{BUCKET}/"
TOKEN = "a-token-that-nobody-may-see"
SHARED = settings(
    deadline=None,
    derandomize=True,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def untrusted() -> Iterator[None]:
    """Each test has clients of its own."""
    forget_clients()
    yield
    forget_clients()


def file_io_of(server: S3Server, kind: type[PyArrowFileIO] = PyArrowFileIO, **options: str) -> PyArrowFileIO:
    """A FileIO whose Arrow file system repeats nothing itself, which would only take long."""
    file_io = kind(ROOT, Options(server.options(**options)))
    once = AwsStandardS3RetryStrategy(max_attempts=1)
    token = options.get("session_token")
    file_io.filesystem = server.file_system(retry_strategy=once, session_token=token, request_timeout=5)
    return file_io


def store_of(file_io: Any, timeout: float = 60.0) -> Store:
    return Store(file_io, timeout, retry=Backoff(attempts=3), sleep=lambda _: None)


class Pair:
    """Two stores of the same server: one with the client, trusted, one with the FileIO alone."""

    def __init__(self, server: S3Server, monkeypatch: pytest.MonkeyPatch, timeout: float = 60.0) -> None:
        self.fast = store_of(file_io_of(server), timeout)
        monkeypatch.setenv(SWITCH, "off")
        self.plain = store_of(file_io_of(server), timeout)
        monkeypatch.delenv(SWITCH)
        assert self.fast.read(server.put("first", b"1")) == b"1"

    def __iter__(self) -> Iterator[Store]:
        return iter((self.fast, self.plain))


@pytest.fixture
def pair(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Pair:
    return Pair(server, monkeypatch)


def outcome(request: Callable[[], Any]) -> Any:
    """What a request came to: its answer, or the class of its error."""
    try:
        return request()
    except (CorruptTableError, IOTimeoutError, StoreError, FileNotFoundError) as error:
        return type(error)


# ---- the same answers ----


def test_a_read_is_one_request_and_with_the_file_io_two(server: S3Server, pair: Pair) -> None:
    path = server.put("counted", b"x")
    for store, cost in ((pair.fast, {"GET": 1}), (pair.plain, {"GET": 1, "HEAD": 1})):
        with server.asked() as asked:
            assert store.read(path) == b"x"
        assert methods(asked) == cost
    with server.asked() as asked, pytest.raises(FileNotFoundError):
        pair.fast.read(f"{path}.missing")
    assert methods(asked) == {"GET": 1}


NAMES = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="?#"), min_size=1, max_size=12),
    min_size=1,
    max_size=3,
).map("/".join)


@SHARED
@given(name=NAMES, data=st.binary(max_size=100))
def test_objects_of_any_name_are_read_alike(server: S3Server, pair: Pair, name: str, data: bytes) -> None:
    path = f"{ROOT}names/{name}"
    key = pair.plain.file_io.to_filesystem_path(path).removeprefix(f"{BUCKET}/")
    try:
        server.put(key, data)
    except OSError:
        return
    fast, plain = (outcome(lambda each=each: each.read(path)) for each in pair)
    assert fast == plain == data
    fast, plain = (outcome(lambda each=each: each.read(f"{path}~")) for each in pair)
    assert fast is plain is FileNotFoundError


@pytest.mark.parametrize("path", ["a/./b", "a/../b", "a//b", "/a", "a/", "", "a\nb"])
def test_names_that_the_client_would_change_are_left_to_the_file_io(server: S3Server, pair: Pair, path: str) -> None:
    server.put("a/b", b"a/b")
    server.put("b", b"b")
    server.put("a", b"a")
    fast, plain = (outcome(lambda each=each: each.read(ROOT + path)) for each in pair)
    assert fast == plain


READS = st.lists(st.tuples(st.integers(0, 1_300_000), st.integers(-1, 1_300_000)), max_size=5)


@SHARED
@given(size=st.sampled_from([0, 1, 70_000, 1_200_000]), reads=READS, end_first=st.booleans())
def test_parts_are_read_alike(
    server: S3Server, pair: Pair, size: int, reads: list[tuple[int, int]], end_first: bool
) -> None:
    data = np.random.default_rng(0).bytes(size)
    path = server.put(f"parts-{size}", data)
    for store in pair:
        file = RemoteFile(store, path)
        if end_first:
            assert file.seek(0, os.SEEK_END) == size
        for position, length in reads:
            file.seek(position)
            wanted = data[position:] if length < 0 else data[position : position + length]
            assert bytes(file.read(length)) == wanted
            assert file.tell() == position + len(wanted)


LASTING = [400, 401, 403, 404, 416, 429, 500, 503, "reset", "cut"]


@pytest.mark.parametrize("fault", LASTING)
def test_what_lasts_is_the_same_error(server: S3Server, pair: Pair, fault: int | str) -> None:
    path = server.put("lasting", b"content" * 100)
    with server.failing("lasting", *[fault] * 100):
        whole = [outcome(lambda each=each: each.read(path)) for each in pair]
        parts = [outcome(lambda each=each: RemoteFile(each, path).read(10)) for each in pair]
    expected = {401: CorruptTableError, 403: CorruptTableError, 404: FileNotFoundError}.get(fault, StoreError)
    assert whole == parts == [expected] * 2
    assert [each.read(path) for each in pair] == [b"content" * 100] * 2


@pytest.mark.parametrize("fault", [429, 500, 503, "reset", "cut"])
def test_what_passes_is_asked_again(server: S3Server, pair: Pair, fault: int | str) -> None:
    path = server.put("passing", b"content" * 100)
    for store in pair:
        before = store.requests.get("retried", 0)
        with server.failing("passing", fault, fault) as to_come:
            assert store.read(path) == b"content" * 100
        assert not to_come
        assert store.requests["retried"] == before + 2
        with server.failing("passing", fault, fault):
            assert bytes(RemoteFile(store, path).read(10)) == b"contentcon"


def test_what_hangs_is_given_up_and_asked_again(server: S3Server, pair: Pair) -> None:
    give_up = partial(let_pass, FOR_EVER)
    for name, store in zip(("fast", "plain"), pair, strict=True):
        once, twice = (server.put(f"hangs-{times}-{name}", b"content") for times in (1, 2))
        with server.failing(f"1-{name}", "hang", on_hang=give_up):
            assert store.read(once) == b"content"
        failing = server.failing(f"2-{name}", "hang", "hang", on_hang=give_up)
        with failing, pytest.raises(IOTimeoutError, match="hangs-2"):
            store.read(twice)
        assert store.requests["abandoned"] == 3
        assert store.read(twice) == b"content"


def test_the_client_gives_up_what_hangs_by_itself_too(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the threads of requests that were given up would stay for ever."""
    store = Pair(server, monkeypatch, timeout=2.0).fast
    path = server.put("hangs", b"content")
    with server.failing("hangs", "hang", "hang"):
        with pytest.raises(IOTimeoutError):
            store.read(path)
        deadline = time.monotonic() + 120
        while store.pool.hanging and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not store.pool.hanging


# ---- where it may stand in ----


class Traced(PyArrowFileIO):
    """A FileIO of the user's: pypaimon's, with something more."""


def test_a_file_io_of_the_users_sees_every_request(server: S3Server) -> None:
    path = server.put("custom", b"x" * 10)
    seen: list[str] = []
    replaced = file_io_of(server)
    original = replaced.new_input_stream
    replaced.new_input_stream = lambda path: seen.append(path) or original(path)  # type: ignore[method-assign, func-returns-value]
    cached = CachingFileIO(file_io_of(server), LocalMemoryCacheManager(1 << 20, 1 << 10))
    inside = ResolvingFileIO(Options(server.options()))
    inside._fileio_cache[inside._cache_key(path)] = file_io_of(server, Traced)
    for file_io in (file_io_of(server, Traced), replaced, cached, inside):
        store = store_of(file_io)
        with server.asked() as asked:
            assert store.read(path) == b"x" * 10
            assert bytes(RemoteFile(store, path).read(4)) == b"x" * 4
        assert methods(asked)["HEAD"] == 2, file_io
    assert seen == [path] * 2


@pytest.mark.parametrize("value", ["0", "off", "False", " NO "])
def test_it_can_be_turned_off(server: S3Server, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(SWITCH, value)
    path = server.put("off", b"x")
    with server.asked() as asked:
        assert store_of(file_io_of(server)).read(path) == b"x"
    assert methods(asked) == {"HEAD": 1, "GET": 1}


def test_schemes_are_resolved_as_the_file_io_does(server: S3Server, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(b"local")
    store = store_of(ResolvingFileIO(Options(server.options())))
    path = server.put("resolved", b"x")
    with server.asked() as asked:
        assert store.read(path) == store.read(path.replace("s3://", "s3a://")) == b"x"
        assert store.read(str(tmp_path / "local")) == b"local"
    assert methods(asked) == {"GET": 2}


def test_a_rest_catalogs_token_is_that_of_now(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    path = server.put("lent", b"x")
    options = {**server.options(), "uri": "http://127.0.0.1:1", "token.provider": "bear", "token": "anybody"}
    file_io = RESTTokenFileIO(Identifier.create("db", "t"), ROOT, options)
    store = store_of(file_io)
    forever = 10**15
    for number in range(3):
        key, token = f"key-{number}", f"{TOKEN}-{number}"
        lent = {"s3.access-key": key, "s3.secret-key": SECRET_KEY, "s3.session-token": token}
        file_io.token = RESTToken(lent, forever + number)
        monkeypatch.setattr(server, "keys", {key: token})
        with server.asked() as asked:
            assert [store.read(path) for _ in range(2)] == [b"x"] * 2
        assert methods(asked) == {"GET": 2}
    monkeypatch.setattr(server, "keys", {"key-3": "another"})
    with pytest.raises(CorruptTableError, match="credentials"):
        store.read(path)


BASE: dict[str, Any] = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "region": "eu-west-1"}


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("lake", {"endpoint_override": "http://127.0.0.1:9000"}, ("http://127.0.0.1:9000", False)),
        ("lake", {"endpoint_override": "minio:9000/", "scheme": "http"}, ("http://minio:9000", False)),
        ("lake", {"endpoint_override": "store.example"}, ("https://store.example", False)),
        (
            "lake",
            {"endpoint_override": "oss-cn-hangzhou.aliyuncs.com", "force_virtual_addressing": True},
            ("https://lake.oss-cn-hangzhou.aliyuncs.com", True),
        ),
        (
            "lake",
            {"endpoint_override": "http://127.0.0.1:9000", "force_virtual_addressing": True},
            ("http://127.0.0.1:9000", False),
        ),
        (
            "lake",
            {"endpoint_override": "http://[::1]:9000", "force_virtual_addressing": True},
            ("http://[::1]:9000", False),
        ),
        ("lake", {}, ("https://lake.s3.eu-west-1.amazonaws.com", True)),
        ("lake", {"region": "cn-north-1"}, ("https://lake.s3.cn-north-1.amazonaws.com.cn", True)),
        ("la.ke", {}, None),
        ("LAKE", {}, None),
        ("l", {}, None),
        ("lake", {"endpoint_override": "http://store.example/s3"}, None),
        ("lake", {"endpoint_override": "http://me:secret@store.example"}, None),
        ("lake", {"access_key": None, "secret_key": None}, None),
        ("lake", {"access_key": None, "secret_key": None, "anonymous": True}, None),
        ("lake", {"proxy_options": "http://127.0.0.1:1"}, None),
    ],
)
def test_how_a_bucket_is_reached(name: str, settings: dict[str, Any], expected: tuple[str, bool] | None) -> None:
    from pyarrow.fs import S3FileSystem

    bucket = Bucket.of(S3FileSystem(**{**BASE, **settings}), name, 7.0)
    if expected is None:
        assert bucket is None
        return
    assert bucket is not None
    region = {**BASE, **settings}["region"]
    assert bucket == Bucket(name, *expected, region, ACCESS_KEY, SECRET_KEY, None, 7.0)
    ObjectClient(bucket)


def test_oss_is_served_by_the_same_client() -> None:
    options = {"fs.oss.accessKeyId": "id", "fs.oss.accessKeySecret": "secret", "fs.oss.securityToken": TOKEN}
    where = {"fs.oss.endpoint": "oss-cn-beijing.aliyuncs.com", "fs.oss.region": "cn-beijing", "fs.oss.impl": "legacy"}
    file_io = OssFileIO(f"oss://{BUCKET}/w", Options({**options, **where}))
    client, key = store_of(file_io).objects._client(f"oss://{BUCKET}/w/db.db/t/snapshot/snapshot-1") or (None, None)
    assert client is not None
    assert key == "w/db.db/t/snapshot/snapshot-1"
    url = f"https://{BUCKET}.oss-cn-beijing.aliyuncs.com"
    assert client.bucket == Bucket(BUCKET, url, True, "cn-beijing", "id", "secret", TOKEN, 60.0)


def test_a_proxy_of_the_environment_is_left_to_clients_that_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        for name in ("HTTPS_PROXY", "all_proxy"):
            clients.unusable.cache_clear()
            monkeypatch.setenv(name, "http://127.0.0.1:1")
            assert clients.unusable() == "the environment names a proxy"
            monkeypatch.delenv(name)
    finally:
        clients.unusable.cache_clear()
    assert clients.unusable() is None


def test_the_environment_changes_nothing(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore and Arrow take settings that are not given from different environment variables."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "another",
        "AWS_SECRET_ACCESS_KEY": "another",
        "AWS_SESSION_TOKEN": "another",
        "AWS_TOKEN": "another",
        "AWS_REGION": "another",
        "AWS_ENDPOINT": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_UNSIGNED_PAYLOAD": "true",
        "AWS_REQUEST_PAYER": "true",
        "AWS_S3_EXPRESS": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
        "AWS_ALLOW_HTTP": "false",
    }.items():
        monkeypatch.setenv(name, value)
    path = server.put("environment", b"x")
    monkeypatch.setattr(server, "keys", {ACCESS_KEY: None})
    with server.asked() as asked:
        assert store_of(file_io_of(server)).read(path) == b"x"
    assert methods(asked) == {"GET": 1}


# ---- how it is trusted ----


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[int, Any]]:
    return [(each.levelno, vars(each)["paimon"]["reason"]) for each in caplog.records if "object_reads" in each.name]


def test_where_it_fails_and_the_file_io_does_not_the_file_io_serves(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = server.put("strange", b"x" * 10)
    monkeypatch.setattr(server, "agents", "object_store")
    store = store_of(file_io_of(server))
    with server.asked() as asked:
        assert [store.read(path) for _ in range(3)] == [b"x" * 10] * 3
        assert bytes(RemoteFile(store, path).read(4)) == b"x" * 4
    # The client's own two; the first read, whose bytes are kept while their tag is the same; the part.
    assert methods(asked) == {"GET": 2 + 2, "HEAD": 4}
    with server.asked() as asked:
        assert store_of(file_io_of(server)).read(path) == b"x" * 10
    assert methods(asked) == {"GET": 1, "HEAD": 1}
    assert logged(caplog) == [(logging.WARNING, "[Errno 13] HTTP status 403 (AccessDenied)")]


def test_what_the_file_io_misses_too_makes_it_trusted(server: S3Server) -> None:
    path = f"{ROOT}nowhere"
    store = store_of(file_io_of(server))
    costs = []
    for _ in range(3):
        with server.asked() as asked, pytest.raises(FileNotFoundError):
            store.read(path)
        costs.append(methods(asked))
    assert costs == [{"GET": 1, "HEAD": 1}, {"GET": 1}, {"GET": 1}]


@pytest.mark.parametrize("fault", [404, "reset", "cut"])
def test_what_fails_once_keeps_the_client(server: S3Server, fault: Any) -> None:
    """An object that appears between both requests, or a connection that ends."""
    path = server.put("late", b"x" * 10)
    store = store_of(file_io_of(server))
    costs = []
    with server.failing("late", fault):
        for _ in range(2):
            with server.asked() as asked:
                assert store.read(path) == b"x" * 10
            costs.append(methods(asked))
    assert costs == [{"GET": 3, "HEAD": 1}, {"GET": 1}]


def test_a_missing_object_whose_first_answer_was_reset_keeps_the_client(server: S3Server) -> None:
    store = store_of(file_io_of(server))
    with server.failing("nothing", "reset"), pytest.raises(FileNotFoundError):
        store.read(f"{ROOT}nothing")
    path = server.put("something", b"x")
    with server.asked() as asked:
        assert store.read(path) == b"x"
    assert methods(asked) == {"GET": 1}


def test_a_store_that_is_busy_meanwhile_decides_nothing(server: S3Server) -> None:
    """Without the client, writes would have no conditions."""
    path = server.put("busy", b"x")
    store = store_of(file_io_of(server))
    with server.failing("busy", "reset", None, 503, method="GET") as left:
        assert store.read(path) == b"x"
        assert not left
    with server.asked() as asked:
        assert store.read(path) == b"x"
    assert methods(asked) == {"GET": 1}


def test_what_fails_for_now_or_for_both_decides_nothing(server: S3Server) -> None:
    path = server.put("undecided", b"x")
    store = store_of(file_io_of(server))
    with server.failing("undecided", 503), server.asked() as asked:
        assert [store.read(path) for _ in range(2)] == [b"x"] * 2
    assert methods(asked) == {"GET": 3}
    forget_clients()
    store = store_of(file_io_of(server))
    with server.failing("undecided", *[403] * 2), pytest.raises(CorruptTableError):
        store.read(path)
    with server.asked() as asked:
        assert store.read(path) == b"x"
    assert methods(asked) == {"GET": 1}


# ---- secrets ----


@pytest.mark.parametrize("fault", [400, 403, 404, 500, "cut"])
def test_nothing_secret_is_shown(server: S3Server, caplog: pytest.LogCaptureFixture, fault: int | str) -> None:
    """The store itself quotes the token in its errors."""
    path = server.put("secret", b"x" * 10)
    store = store_of(file_io_of(server, session_token=TOKEN))
    caplog.set_level(logging.DEBUG, "pypaimon")
    assert store.read(path) == b"x" * 10
    with server.failing("secret", *[fault] * 10), pytest.raises(Exception) as raised:  # noqa: PT011
        store.read(path)
    texts = [caplog.text, "".join(traceback.format_exception(raised.value))]
    chain: BaseException | None = raised.value
    while chain is not None:
        texts += [repr(chain), str(vars(chain))]
        chain = chain.__context__
    client, _ = store.objects._client(path) or (None, None)
    assert client is not None and client.bucket.session_token == TOKEN
    texts += [repr(client), repr(client.bucket), repr(vars(client)), repr(vars(store)), repr(vars(store.objects))]
    for text in texts:
        assert SECRET_KEY not in text and TOKEN not in text


def test_a_client_never_travels(server: S3Server) -> None:
    path = server.put("pickled", b"x")
    file_io = file_io_of(server)
    store = store_of(file_io)
    store.read(path)
    assert b"obstore" not in pickle.dumps(file_io)


# ---- processes ----

PROGRAM = """
import os, sys, threading, time
from pypaimon.common.options import Options
from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO
from pypaimon.streaming.io.store import Store

def store(): return Store(PyArrowFileIO({root!r}, Options({options!r})), 20)

"""


def run(server: S3Server, code: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(root=ROOT, options=server.options()) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)


def test_reading_continues_in_a_forked_process(server: S3Server) -> None:
    """obstore's threads stay in the parent; a request of the child would hang."""
    path = server.put("forked", b"content")
    code = f"""
assert store().read({path!r}) == b"content"
sys.stdout.flush()
pid = os.fork()
if not pid:
    os._exit(0 if store().read({path!r}) == b"content" else 1)
print(os.waitpid(pid, 0)[1], flush=True)
"""
    with server.asked() as asked:
        result = run(server, code)
    assert result.stdout == "0\n", result.stderr
    assert methods(asked) == {"GET": 2, "HEAD": 1}


@ends_with_s3_in_flight
def test_a_program_ends_while_requests_are_in_flight(server: S3Server) -> None:
    path = server.put("slow", b"content")
    code = f"""
one = store()
one.read({path!r})
def follow():
    while True:
        one.read({path!r})
for _ in range(8):
    threading.Thread(target=follow, daemon=True).start()
while one.requests["read"] < 9:
    time.sleep(0.01)
print("done", flush=True)
"""
    result = run(server, code)
    assert (result.stdout, result.returncode) == ("done\n", 0), result.stderr
    with server.failing("slow", *[None], *["hang"] * 20):
        result = run(server, code)
    assert (result.stdout, result.returncode) == ("done\n", 0), result.stderr


def test_obstore_is_imported_where_it_is_used(server: S3Server, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    path = server.put("imported", b"x")
    code = f"""
from pypaimon.filesystem.local_file_io import LocalFileIO
Store(LocalFileIO()).read({str(tmp_path / "f")!r})
print("obstore" in sys.modules)
store().read({path!r})
print("obstore" in sys.modules)
"""
    assert run(server, code).stdout.split() == ["False", "True"]
