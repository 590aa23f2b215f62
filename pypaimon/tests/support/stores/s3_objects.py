"""The answers of an object store to the requests of S3 that the tests make, for objects in memory.

`s3_objects_test.py` compares them with those of moto, which takes ten times as long.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from hashlib import md5
from io import BytesIO
from itertools import count
from typing import Any
from urllib.parse import parse_qs, quote, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from support.stores.http_server import unchunked

_MOST_LISTED = _MOST_DELETED = 1000
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_STATUSES = {
    200: "OK",
    204: "No Content",
    206: "Partial Content",
    304: "Not Modified",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    412: "Precondition Failed",
    416: "Range Not Satisfiable",
}
_KEPT = ("CONTENT_TYPE", "HTTP_CACHE_CONTROL", "HTTP_CONTENT_DISPOSITION", "HTTP_CONTENT_LANGUAGE")


@dataclass(frozen=True)
class _Object:
    """Data, with the headers that they were stored with."""

    data: bytes
    headers: Mapping[str, str]
    tag: str
    modified: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


@dataclass
class _Upload:
    key: str
    headers: Mapping[str, str]
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class _RefusedError(Exception):
    """An answer that reports an error."""

    def __init__(self, status: int, code: str, message: str, **more: str) -> None:
        super().__init__(code)
        parts = {"Code": code, "Message": message, **more, "RequestID": "request"}
        self.answer = _xml("Error", "".join(f"<{name}>{escape(text)}</{name}>" for name, text in parts.items()), status)


class S3Objects:
    """A WSGI application: buckets of objects, each request carried out as a whole before the next one.

    Attributes:
        undeletable: Codes of the errors for objects that cannot be deleted, by key.
    """

    def __init__(self) -> None:
        self.undeletable: dict[str, str] = {}
        self._buckets: dict[str, dict[str, _Object]] = {}
        self._uploads: dict[str, _Upload] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read()
        if environ.get("HTTP_X_AMZ_CONTENT_SHA256", "").startswith("STREAMING-"):
            body = unchunked(BytesIO(body))
        request = _Request(environ, body)
        with self._lock:
            try:
                answer = self._answer(request)
            except _RefusedError as refused:
                answer = refused.answer
        length = {} if answer.status == 204 else {"Content-Length": str(len(answer.body))}
        headers = {**length, "x-amz-request-id": "request", **answer.headers}
        start_response(f"{answer.status} {_STATUSES[answer.status]}", [*headers.items()])
        return [b"" if request.method == "HEAD" else answer.body]

    def _answer(self, request: _Request) -> _Answer:
        if not request.key:
            return self._answer_of_bucket(request)
        if request.bucket not in self._buckets:
            raise _RefusedError(404, "NoSuchBucket", "The specified bucket does not exist", BucketName=request.bucket)
        objects = self._buckets[request.bucket]
        if "uploads" in request.query or "uploadId" in request.query:
            return self._answer_of_upload(request, objects)
        if request.method in ("GET", "HEAD"):
            return _read(request, _found(objects, request.key))
        if request.method == "PUT" and "HTTP_X_AMZ_COPY_SOURCE" in request.environ:
            return self._copy(request, objects)
        if request.method == "PUT":
            return _stored(objects, request, request.body, request.headers_to_keep(), _tag(request.body))
        if request.method == "DELETE":
            if request.key in self.undeletable:
                raise _RefusedError(403, self.undeletable[request.key], "It stays.")
            objects.pop(request.key, None)
            return _Answer(204)
        raise _RefusedError(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")

    def fill(self, bucket: str, keys: Iterable[str], data: bytes) -> None:
        """Store the same data under several keys, without a request."""
        self._buckets[bucket].update({key: _Object(data, {}, _tag(data)) for key in keys})

    def age(self, part: str, seconds: float, but: str = "") -> None:
        """Make the objects with a part in their key older, except one."""
        for objects in self._buckets.values():
            for key, each in objects.items():
                if part in key and key != but:
                    objects[key] = replace(each, modified=each.modified - timedelta(seconds=seconds))

    # ---- buckets ----

    def _answer_of_bucket(self, request: _Request) -> _Answer:
        if request.method == "PUT":
            if request.bucket in self._buckets:
                raise _RefusedError(409, "BucketAlreadyOwnedByYou", "It exists.", BucketName=request.bucket)
            self._buckets[request.bucket] = {}
            return _Answer(200, {"Location": f"/{request.bucket}"})
        objects = self._buckets.get(request.bucket)
        if objects is None:
            raise _RefusedError(404, "NoSuchBucket", "The specified bucket does not exist", BucketName=request.bucket)
        if request.method == "HEAD":
            return _Answer(200, {"x-amz-bucket-region": "us-east-1"})
        if request.method == "POST" and "delete" in request.query:
            keys = [each.text or "" for each in ElementTree.fromstring(request.body).iter() if _name(each) == "Key"]
            if len(keys) > _MOST_DELETED:
                raise _RefusedError(400, "MalformedXML", "At most 1,000 objects can be deleted in one request.")
            return _xml("DeleteResult", "".join(self._deleted(objects, key) for key in keys))
        if request.method == "GET" and request.query.get("list-type") == "2":
            return _listed(request, objects)
        raise _RefusedError(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")

    def _deleted(self, objects: dict[str, _Object], key: str) -> str:
        code = self.undeletable.get(key)
        if code is not None:
            return f"<Error><Key>{escape(key)}</Key><Code>{code}</Code><Message>It stays.</Message></Error>"
        objects.pop(key, None)
        return f"<Deleted><Key>{escape(key)}</Key></Deleted>"

    # ---- objects ----

    def _copy(self, request: _Request, objects: dict[str, _Object]) -> _Answer:
        source = unquote(request.environ["HTTP_X_AMZ_COPY_SOURCE"]).removeprefix("/")
        bucket, _, key = source.partition("/")
        found = _found(self._buckets.get(bucket, {}), key)
        _stored(objects, request, found.data, found.headers, found.tag)
        stored = objects[request.key]
        return _xml("CopyObjectResult", f"<ETag>{stored.tag}</ETag><LastModified>{_iso(stored)}</LastModified>")

    def _answer_of_upload(self, request: _Request, objects: dict[str, _Object]) -> _Answer:
        names = f"<Bucket>{request.bucket}</Bucket><Key>{escape(request.key)}</Key>"
        if "uploads" in request.query:
            number = f"upload-{next(self._numbers)}"
            self._uploads[number] = _Upload(request.key, request.headers_to_keep())
            return _xml("InitiateMultipartUploadResult", f"{names}<UploadId>{number}</UploadId>")
        number = request.query["uploadId"]
        upload = self._uploads.get(number)
        if upload is None or upload.key != request.key:
            raise _RefusedError(404, "NoSuchUpload", "The specified upload does not exist.", UploadId=number)
        if request.method == "PUT":
            upload.parts[int(request.query["partNumber"])] = request.body
            return _Answer(200, {"ETag": _tag(request.body)})
        if request.method == "DELETE":
            del self._uploads[number]
            return _Answer(204)
        root = ElementTree.fromstring(request.body)
        wanted = [int(each.text or "0") for each in root.iter() if _name(each) == "PartNumber"]
        if not wanted or not all(part in upload.parts for part in wanted):
            raise _RefusedError(400, "InvalidPart", "One or more of the specified parts could not be found.")
        parts = [upload.parts[part] for part in wanted]
        if any(len(part) < 5 << 20 for part in parts[:-1]):
            raise _RefusedError(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed.")
        tag = f'"{md5(b"".join(md5(part).digest() for part in parts)).hexdigest()}-{len(parts)}"'
        _stored(objects, request, b"".join(parts), upload.headers, tag)
        del self._uploads[number]
        return _xml("CompleteMultipartUploadResult", f"{names}<ETag>{tag}</ETag>")


class _Request:
    def __init__(self, environ: dict[str, Any], body: bytes) -> None:
        self.environ = environ
        self.method: str = environ["REQUEST_METHOD"]
        path = environ["PATH_INFO"].encode("latin-1").decode()
        self.bucket, _, self.key = path.removeprefix("/").partition("/")
        given = parse_qs(environ["QUERY_STRING"], keep_blank_values=True) if environ["QUERY_STRING"] else {}
        self.query = {name: values[0] for name, values in given.items()}
        self.body = body

    def headers_to_keep(self) -> dict[str, str]:
        """Headers that an object is stored with, by the names in answers."""
        kept = [name for name in self.environ if name in _KEPT or name.startswith("HTTP_X_AMZ_META_")]
        return {name.removeprefix("HTTP_").replace("_", "-").lower(): self.environ[name] for name in kept}


def _found(objects: Mapping[str, _Object], key: str) -> _Object:
    try:
        return objects[key]
    except KeyError:
        raise _RefusedError(404, "NoSuchKey", "The specified key does not exist.", Key=key) from None


def _stored(
    objects: dict[str, _Object], request: _Request, data: bytes, headers: Mapping[str, str], tag: str
) -> _Answer:
    """Store an object, if what is there is as the request wants it."""
    there, wanted = objects.get(request.key), request.environ.get("HTTP_IF_MATCH")
    if wanted is not None:
        if there is None:
            raise _RefusedError(404, "NoSuchKey", "The specified key does not exist.", Key=request.key)
        if wanted.strip('"') != there.tag.strip('"'):
            raise _failed("If-Match")
    if request.environ.get("HTTP_IF_NONE_MATCH") == "*" and there is not None:
        raise _failed("If-None-Match")
    objects[request.key] = _Object(data, headers, tag)
    return _Answer(200, {"ETag": tag})


def _failed(condition: str) -> _RefusedError:
    message = "At least one of the pre-conditions you specified did not hold"
    return _RefusedError(412, "PreconditionFailed", message, Condition=condition)


def _read(request: _Request, found: _Object) -> _Answer:
    wanted, other = (request.environ.get(f"HTTP_{name}") for name in ("IF_MATCH", "IF_NONE_MATCH"))
    if wanted is not None and found.tag not in (wanted, f'"{wanted}"'):
        raise _failed("If-Match")
    headers = {
        "content-type": "binary/octet-stream",
        **found.headers,
        "ETag": found.tag,
        "Last-Modified": format_datetime(found.modified, usegmt=True),
        "Accept-Ranges": "bytes",
    }
    if other is not None and found.tag in (other, f'"{other}"'):
        return _Answer(304, headers)
    bounds, size = _RANGE.fullmatch(request.environ.get("HTTP_RANGE", "")), len(found.data)
    if bounds is None or bounds[0] == "bytes=-":
        return _Answer(200, {**headers, "Content-Length": str(size)}, found.data)
    first = int(bounds[1]) if bounds[1] else max(size - int(bounds[2]), 0)
    last = min(int(bounds[2]), size - 1) if bounds[1] and bounds[2] else size - 1
    if first >= size or bounds[0] == "bytes=-0":
        raise _RefusedError(416, "InvalidRange", "The requested range is not satisfiable", ActualObjectSize=str(size))
    if first > last:
        return _Answer(200, {**headers, "Content-Length": str(size)}, found.data)
    part = found.data[first : last + 1]
    headers |= {"Content-Range": f"bytes {first}-{last}/{size}", "Content-Length": str(len(part))}
    return _Answer(206, headers, part)


def _listed(request: _Request, objects: Mapping[str, _Object]) -> _Answer:
    """One page of the objects and common prefixes below a prefix."""
    prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
    most = min(int(request.query.get("max-keys", _MOST_LISTED)), _MOST_LISTED)
    token, start = request.query.get("continuation-token"), request.query.get("start-after", "")
    before = "" if token is None else unquote(token)
    found: dict[str, _Object | None] = {}
    is_cut = False
    for key in sorted(key for key in objects if key.startswith(prefix) and key > start):
        end = key.find(delimiter, len(prefix)) if delimiter else -1
        name = key if end < 0 else key[: end + len(delimiter)]
        if name <= before or name in found:
            continue
        if len(found) == most:
            is_cut = True
            break
        found[name] = objects[key] if end < 0 else None
    encode = quote if request.query.get("encoding-type") == "url" else escape
    parts = [
        f"<Name>{request.bucket}</Name><Prefix>{encode(prefix)}</Prefix><MaxKeys>{most}</MaxKeys>",
        f"<KeyCount>{len(found)}</KeyCount><IsTruncated>{str(is_cut).lower()}</IsTruncated>",
    ]
    if delimiter:
        parts.append(f"<Delimiter>{encode(delimiter)}</Delimiter>")
    if token is not None:
        parts.append(f"<ContinuationToken>{escape(token)}</ContinuationToken>")
    if is_cut:
        parts.append(f"<NextContinuationToken>{quote(list(found)[-1], safe='')}</NextContinuationToken>")
    for name, each in found.items():
        if each is None:
            parts.append(f"<CommonPrefixes><Prefix>{encode(name)}</Prefix></CommonPrefixes>")
        else:
            parts.append(
                f"<Contents><Key>{encode(name)}</Key><LastModified>{_iso(each)}</LastModified><ETag>{each.tag}</ETag>"
                f"<Size>{len(each.data)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            )
    return _xml("ListBucketResult", "".join(parts))


def _tag(data: bytes) -> str:
    return f'"{md5(data).hexdigest()}"'


def _iso(found: _Object) -> str:
    return found.modified.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _xml(name: str, parts: str, status: int = 200) -> _Answer:
    namespace = "" if name == "Error" else ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    text = f'<?xml version="1.0" encoding="UTF-8"?><{name}{namespace}>{parts}</{name}>'
    return _Answer(status, {"Content-Type": "application/xml"}, text.encode())
