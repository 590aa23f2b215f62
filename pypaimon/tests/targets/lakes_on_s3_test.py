"""Tables of Delta and Iceberg on an object store: exactly once, also where the answers of the store are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from pypaimon.streaming import DeltaTarget, IcebergTarget, StreamConfigError, replicate
from pypaimon.streaming.errors import TargetError
from pypaimon.streaming.targets import Target
from pypaimon.streaming.testing import SmallTable
from support.crash.killed_target import in_order
from support.samples import some
from support.stores.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Process, s3_process

pytestmark = pytest.mark.server

Rows = list[dict[str, Any]]


class DeltaOnS3:
    written = ("_delta_log/", "_paimon/", "part-")

    def __init__(self, server: S3Process, _: Path) -> None:
        self._uri = f"s3://{BUCKET}/delta"
        self._options = {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def opened(self) -> Target:
        return DeltaTarget(self._uri, (), storage_options=self._options)

    def held(self) -> Rows:
        table = DeltaTable(self._uri, storage_options=self._options)
        return list(pa.table(QueryBuilder().register("copy", table).execute("SELECT * FROM copy")).to_pylist())

    def close(self) -> None:
        """Nothing is open."""


class IcebergOnS3:
    written = ("metadata.json", ".avro", ".parquet")

    def __init__(self, server: S3Process, directory: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        self._catalog = SqlCatalog(
            "it",
            **{
                "uri": f"sqlite:///{directory}/catalog.sqlite",
                "warehouse": f"s3://{BUCKET}/iceberg",
                "s3.endpoint": server.endpoint,
                "s3.access-key-id": ACCESS_KEY,
                "s3.secret-access-key": SECRET_KEY,
                "s3.region": "us-east-1",
            },
        )
        self.close = self._catalog.close

    def opened(self) -> Target:
        return IcebergTarget(self._catalog, "db.copy")

    def held(self) -> Rows:
        return list(self._catalog.load_table("db.copy").scan().to_arrow().to_pylist())


@pytest.fixture(scope="module")
def server() -> Iterator[S3Process]:
    with s3_process() as found:
        yield found


@pytest.mark.parametrize("kind", some("lakes on S3", [DeltaOnS3, IcebergOnS3], 1))
def test_it_is_exactly_once_also_where_answers_are_lost(
    server: S3Process, tmp_path: Path, kind: Callable[[S3Process, Path], DeltaOnS3 | IcebergOnS3]
) -> None:
    """Without keys, so that a plan that came twice would be seen."""
    source = SmallTable(tmp_path / "w", keys=())
    source.commit({"id": 0})
    with closing(kind(server, tmp_path)) as place:
        replicate(source.builder(), place.opened())
        for number, part in enumerate(place.written, start=1):
            source.commit({"id": number})
            # Whether a client asks again, and finds what it has written itself, is its own matter.
            with server.losing(part), suppress(TargetError, StreamConfigError):
                replicate(source.builder(), place.opened())
            replicate(source.builder(), place.opened())
            assert in_order(place.held()) == in_order(source.rows())
