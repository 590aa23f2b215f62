"""The object store of the tests answers as moto does, which others have compared with Amazon's."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from hashlib import md5
from typing import Any
from xml.etree import ElementTree

import pytest

from support.stores.http_server import Application
from support.stores.s3_objects import S3Objects

pytestmark = [pytest.mark.server, pytest.mark.slow]

HEADERS = ("content-length", "content-range", "etag", "x-amz-meta-a")
LISTED = ("Code", "ETag", "IsTruncated", "Key", "KeyCount", "MaxKeys", "Name", "Prefix", "Size")
LARGE, SMALL = b"a" * (5 << 20), b"b" * 10
TAG, OTHER = f'"{md5(SMALL).hexdigest()}"', f'"{md5(b"other").hexdigest()}"'


class Client:
    """Asks a store, and keeps what clients look at in its answers."""

    def __init__(self, store: Application) -> None:
        self._store = store
        self.answers: list[tuple[str, int, dict[str, str], object]] = []

    def __call__(self, method: str, target: str = "", body: bytes = b"", **headers: str) -> str:
        """Ask for something in the bucket; the body of the answer."""
        path, _, query = f"/compared{target}".partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": query,
            "SERVER_NAME": "127.0.0.1", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "127.0.0.1",
            "HTTP_AUTHORIZATION": "AWS4-HMAC-SHA256 Credential=key/x/us-east-1/s3/aws4_request",
            "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(), "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
            "CONTENT_LENGTH": str(len(body)), **{f"HTTP_{name}": value for name, value in headers.items()},
        }  # fmt: skip
        heads: list[tuple[str, list[tuple[str, str]]]] = []
        data = b"".join(self._store(environ, lambda status, fields, _=None: heads.append((status, fields))))
        ((text, fields),) = heads
        kept = {name.lower(): value for name, value in fields if name.lower() in HEADERS}
        found: object = data
        if data.startswith(b"<"):
            parts = [(each.tag.rpartition("}")[2], each.text) for each in ElementTree.fromstring(data).iter()]
            # The texts of errors, and the order of parts, are each store's own.
            wanted = LISTED if text < "3" else ("Code",)
            found, kept = sorted((name, value or "") for name, value in parts if name in wanted), {}
        status = int(text.split()[0])
        self.answers.append((f"{method} {target} {headers}", status, kept if status < 300 else {}, found))
        return data.decode("latin-1")


def objects_and_ranges(ask: Client) -> None:
    ask("PUT", "/a", SMALL, X_AMZ_META_A="kept")
    ask("PUT", "/empty")
    for path in ("/a", "/empty", "/missing"):
        for method in ("GET", "HEAD"):
            ask(method, path)
    for range_ in ("0-3", "3-", "-4", "-40", "5-100", "9-9", "10-", "10-12", "0-2,4-5", "x-2"):
        ask("GET", "/a", RANGE=f"bytes={range_}")
    ask("GET", "/empty", RANGE="bytes=0-3")
    ask("DELETE", "/a")
    ask("DELETE", "/a")
    ask("GET", "/a")


def conditions(ask: Client) -> None:
    for path in ("/new", "/new"):
        ask("PUT", path, SMALL, IF_NONE_MATCH="*")
    ask("PUT", "/missing", SMALL, IF_MATCH=TAG)
    for tag in (TAG, OTHER, TAG.strip('"')):
        ask("PUT", "/new", SMALL, IF_MATCH=tag)
        ask("GET", "/new", IF_MATCH=tag)
        ask("GET", "/new", IF_NONE_MATCH=tag)
    for tag in (TAG, OTHER):
        ask("HEAD", "/new", IF_MATCH=tag)
    ask("GET", "/new")


def listings(ask: Client) -> None:
    for name in ("a", "b/1", "b/2", "b/c/3", "b/c/4", "b0", "d/5", "é & <e>"):
        ask("PUT", f"/{name}".encode().decode("latin-1"), SMALL)
    for query in (
        "", "&prefix=b", "&prefix=b/", "&prefix=none/", "&delimiter=/", "&prefix=b/&delimiter=/",
        "&delimiter=/&max-keys=4", "&start-after=b/2", "&prefix=b/&start-after=b/1", "&max-keys=1000",
    ):  # fmt: skip
        ask("GET", f"?list-type=2{query}")
    for query in ("", "&delimiter=/", "&prefix=b/"):
        token = ""
        while (page := re.search("<NextContinuationToken>(.*)</Next", body := _page(ask, query, token))) is not None:
            assert "<IsTruncated>true" in body
            token = page[1]
    names = "".join(f"<Object><Key>{name}</Key></Object>" for name in ("b/1", "b/c/3", "missing"))
    ask("POST", "?delete", f"<Delete>{names}</Delete>".encode())
    ask("GET", "?list-type=2")


def _page(ask: Client, query: str, token: str) -> str:
    return ask("GET", f"?list-type=2&max-keys=2{query}" + (f"&continuation-token={token}" if token else ""))


def copies(ask: Client) -> None:
    ask("PUT", "/from", SMALL, X_AMZ_META_A="kept")
    for source in ("/compared/from", "compared/from", "/compared/missing"):
        ask("PUT", "/to", X_AMZ_COPY_SOURCE=source)
    ask("GET", "/to")


def uploads(ask: Client) -> None:
    for name, parts, headers in (
        ("whole", [LARGE, SMALL], {}),
        ("one", [SMALL], {}),
        ("cut", [SMALL, SMALL], {}),
        ("one", [SMALL], {"IF_NONE_MATCH": "*"}),
        ("new", [SMALL], {"IF_NONE_MATCH": "*"}),
    ):
        target = f"/{name}?uploadId={_started(ask, name)}"
        for number, part in enumerate(parts, start=1):
            ask("PUT", target.replace("?", f"?partNumber={number}&"), part)
        ask("GET", f"/{name}")
        tags = [f"<ETag>{md5(part).hexdigest()}</ETag>" for part in parts]
        listed = [f"<Part>{tag}<PartNumber>{number}</PartNumber></Part>" for number, tag in enumerate(tags, start=1)]
        ask("POST", target, f"<CompleteMultipartUpload>{''.join(listed)}</CompleteMultipartUpload>".encode(), **headers)
        ask("HEAD", f"/{name}")
    ask("DELETE", f"/gone?uploadId={_started(ask, 'gone')}")


def _started(ask: Client, name: str) -> str:
    found = re.search("<UploadId>(.*)</UploadId>", ask("POST", f"/{name}?uploads"))
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def moto() -> Iterator[Application]:
    """The other store."""
    from moto.s3.models import s3_backends
    from moto.server import create_backend_app

    yield create_backend_app("s3")
    s3_backends.reset()


@pytest.mark.parametrize("life", [objects_and_ranges, conditions, listings, copies, uploads])
def test_both_stores_answer_alike(moto: Application, life: Callable[[Client], None]) -> None:
    from moto.s3.models import s3_backends

    s3_backends.reset()
    clients = Client(S3Objects()), Client(moto)
    for ask in clients:
        ask("GET", "?list-type=2")
        ask("PUT")
        life(ask)
    for ours, theirs in zip(*(client.answers for client in clients), strict=True):
        asked = re.sub("(uploadId|continuation-token)=[^&' ]*", r"\1", ours[0])
        assert (asked, *ours[1:]) == (re.sub("(uploadId|continuation-token)=[^&' ]*", r"\1", theirs[0]), *theirs[1:])
