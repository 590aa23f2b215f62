"""Bytes out of many files: whatever lies where, in whatever order, each row gets its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.table.row.blob import BlobDescriptor

from pypaimon.streaming import CorruptTableError
from pypaimon.streaming.files.blob_files import References, cells_of, references_of
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.reading import blob
from pypaimon.streaming.reading.blob import BlobFetcher
from support.stores.counting_file_io import CountingFileIO
from support.stores.fault_file_io import SCHEME

pytestmark = pytest.mark.slow

SIZE = 3000
FILES = 3
NOISE = np.random.default_rng(5).bytes(SIZE * FILES)

SPANS = st.lists(
    st.one_of(
        st.none(),
        st.tuples(st.integers(0, FILES - 1), st.integers(0, SIZE), st.integers(0, 60)),
        # Side by side, as in a blob file.
        st.integers(0, 40).map(lambda number: (number % 2, number // 2 * 36 + 4, 20)),
    ),
    max_size=60,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    for number in range(FILES):
        (made / str(number)).write_bytes(NOISE[number * SIZE : (number + 1) * SIZE])
    return made


@pytest.mark.parametrize("small", [0, 1 << 20], ids=["one by one", "together"])
@pytest.mark.parametrize("remote", [False, True], ids=["local", "store"])
@given(spans=SPANS, block=st.sampled_from([40, 4 << 20]))
@settings(max_examples=60, deadline=None)
def test_each_row_gets_its_own_bytes(
    directory: Path, small: int, remote: bool, spans: list[tuple[int, int, int] | None], block: int
) -> None:
    spans = [each and (each[0], each[1], min(each[2], SIZE - each[1])) for each in spans]
    prefix = SCHEME if remote else ""
    cells = [
        None if each is None else BlobDescriptor(f"{prefix}{directory}/{each[0]}", each[1], each[2]).serialize()
        for each in spans
    ]
    fetcher = BlobFetcher(Store(CountingFileIO() if remote else LocalFileIO()), None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blob, "_SMALL", small)
        patch.setattr(blob, "_BLOCK", block)
        found = fetcher.fetch(fetcher.references(pa.array(cells, pa.large_binary()), "here"))
    fetcher.close()
    found.validate(full=True)
    assert found.to_pylist() == [
        None if each is None else NOISE[each[0] * SIZE + each[1] :][: each[2]] for each in spans
    ]


@given(spans=SPANS, names=st.lists(st.text(max_size=4), min_size=FILES, max_size=FILES, unique=True))
@settings(max_examples=60, deadline=None)
def test_cells_are_pypaimon_s_descriptors_and_are_understood(
    spans: list[tuple[int, int, int] | None], names: list[str]
) -> None:
    """Of as many places as there may be."""
    plain = [None if each is None else BlobDescriptor(names[each[0]], *each[1:]).serialize() for each in spans]
    place = np.array([-1 if each is None else each[0] for each in spans], np.int64)
    offsets, lengths = (np.array([0 if each is None else each[index] for each in spans], np.int64) for index in (1, 2))
    cells = cells_of(References(tuple(names), place, offsets, lengths))
    assert cells.to_pylist() == plain

    padded = pa.concat_arrays([pa.array([b"other"], pa.large_binary()), cells]).slice(1)
    found = references_of(padded)
    assert [None if index < 0 else found.places[index] for index in found.place] == [
        None if each is None else names[each[0]] for each in spans
    ]
    assert found.offsets.tolist() == offsets.tolist() and found.lengths.tolist() == lengths.tolist()


def test_cells_of_more_files_than_one_request_names_are_understood() -> None:
    descriptors = [BlobDescriptor(f"/{number % 70:03d}", number, 1) for number in range(500)]
    found = references_of(pa.array([each.serialize() for each in descriptors], pa.large_binary()))
    assert [found.places[index] for index in found.place] == [each.uri for each in descriptors]
    assert found.offsets.tolist() == list(range(500))


def test_a_file_of_the_table_may_have_expired_and_what_a_descriptor_names_is_damage(tmp_path: Path) -> None:
    own, other = f"{tmp_path}/own.blob", f"{tmp_path}/other"
    fetcher = BlobFetcher(Store(LocalFileIO()), None, {own})
    with pytest.raises(FileNotFoundError) as missing:
        fetcher.part(own, 0, 1)
    assert missing.value.filename == own
    with pytest.raises(CorruptTableError, match="no such file") as damaged:
        fetcher.part(other, 0, 1)
    assert damaged.value.path == other
