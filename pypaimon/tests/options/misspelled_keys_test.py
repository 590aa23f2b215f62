"""No option that means something here is ignored because it is misspelled, and no option of anybody else is refused."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.common.options.config_option import ConfigOption
from pypaimon.common.options.core_options import CoreOptions

from pypaimon.streaming import StreamConfigError, compact, stream_read_builder, stream_write_builder
from pypaimon.streaming.options.known_options import Spellings
from pypaimon.streaming.options.option_key import Use
from pypaimon.streaming.options.option_keys import TIME_ZONE, known_names
from support.samples import seeded
from support.tables.handles import catalog_with_database, create_table

OF_PAIMON = set((Path(__file__).parent / "paimon_option_keys.txt").read_text(encoding="utf-8").split())
"""Keys of tables of Java 2.1, its connectors for Flink, Spark, Hive and Iceberg, older releases, and pypaimon 2.1."""
OF_PYPAIMON = {each.key() for each in vars(CoreOptions).values() if isinstance(each, ConfigOption)}
OF_OTHERS = """
    comment owner provider external location EXTERNAL transient_lastDdlTime numFiles numRows rawDataSize totalSize
    storage_handler bucketing_version table_type COLUMN_STATS_ACCURATE discover.partitions last_modified_by
    last_modified_time serialization.format spark.sql.sources.provider spark.sql.create.version
    spark.sql.statistics.numRows connector format sink.buffer-flush.interval sink.buffer-flush.max-rows
    lookup.cache.max-rows lookup.cache.ttl lookup.cache.type table.exec.state.ttl debezium.snapshot.mode hostname port
    username password database-name table-name server-id server-time-zone topic properties.bootstrap.servers
    properties.group.id key.format key.fields value.format write.format.default write.metadata.compression-codec
    write.target-file-size-bytes read.split.target-size commit.retry.num-retries history.expire.max-snapshot-age-ms
    format-version table.format-version metadata_location previous_metadata_location iceberg.catalog
    engine.hive.enabled delta.appendOnly delta.minReaderVersion hoodie.table.type write.tasks compaction.tasks
    compaction.async.enabled read.streaming.enabled read.start-commit self-optimizing.enabled table-expire.enabled
    table.datalake.format lake.cache.enabled team data-owner retention domain pii classification sla cost-center
    created-by created_at dbt.model buckets bucket_count partitions partition-by partition.fields merge-mode
    merge.strategy changelog.enabled changelog-topic consumer consumer.group consumer.group.id snapshots.retained tags
    file.size file.type compression compression.codec compression.level sequence.number read.mode read.version
    write.mode write.parallelism target.size target-file-size-mb upsert.enabled deletion-policy commit.user
    commit.interval compaction.enabled compaction.trigger pypaimon.copied-from paths branches
"""
HEEDED_KEYS = known_names() - {TIME_ZONE.name}
SPELLINGS = Spellings(HEEDED_KEYS)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(key: str) -> list[str]:
    return re.split("[-._]", key)


COMPARED = sorted(key for key in HEEDED_KEYS if len(re.sub("[^a-z0-9]", "", key.lower())) >= 8)


def test_no_option_of_paimon_or_of_anybody_else_is_taken_for_a_misspelled_one() -> None:
    assert OF_PYPAIMON <= OF_PAIMON
    for key in {*OF_PAIMON, *OF_OTHERS.split(), *HEEDED_KEYS}:
        assert SPELLINGS.meant_by(key) is None, key


@pytest.mark.parametrize("key", sorted(HEEDED_KEYS))
def test_a_key_of_a_newer_release_is_not_taken_for_one_of_an_older_one(key: str) -> None:
    """Each key as it looks to a release that has all others."""
    assert Spellings(HEEDED_KEYS - {key}).meant_by(key) is None


def with_typo(key: str, chance: random.Random) -> str:
    """A key of which a letter is added, lost, another one, or in the place of the next one."""
    places = [index for index, letter in enumerate(key) if letter.isalpha()]
    at = chance.choice(places)
    kind = chance.choice(["added", "lost", "other", "swapped"])
    if kind == "added":
        return key[:at] + chance.choice(LETTERS) + key[at:]
    if kind == "lost":
        return key[:at] + key[at + 1 :]
    if kind == "other":
        return key[:at] + chance.choice(LETTERS) + key[at + 1 :]
    return key[:at] + key[at : at + 2][::-1] + key[at + 2 :]


def test_a_letter_that_is_wrong_is_found_in_every_key() -> None:
    chance = seeded("typos")
    known_words = {word for key in HEEDED_KEYS for word in words(key)}
    for key in COMPARED * 5:
        typo = with_typo(key, chance)
        if len(words(typo)) == len(words(key)) and typo not in HEEDED_KEYS:
            new = {word for word, known in zip(words(typo), words(key), strict=True) if word != known}
            assert (SPELLINGS.meant_by(typo) is None) <= bool(new & {"", *known_words}), (key, typo)


def test_a_separator_or_a_case_that_is_wrong_is_found_in_every_key() -> None:
    chance = seeded("separators")
    for key in COMPARED:
        for found in (
            re.sub("[-._]", lambda _: chance.choice(["-", ".", "_", ""]), key),
            "".join(word.capitalize() if index else word for index, word in enumerate(words(key))),
            key.upper(),
        ):
            plain = found if "." in found or not key.startswith("fields.") else key
            if plain not in HEEDED_KEYS and not key.startswith("fields."):
                assert SPELLINGS.meant_by(plain) == key, (key, plain)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("consumer.id", "consumer-id"),
        ("consumer-idd", "consumer-id"),
        ("continuous.discovery-intervall", "continuous.discovery-interval"),
        ("streaming-reed-overwrite", "streaming-read-overwrite"),
        ("Merge-Engine", "merge-engine"),
        ("sequenceField", "sequence.field"),
        ("fields.a.b.agregate-function", "fields.a.b.aggregate-function"),
        ("fields.v.sequence-groups", "fields.v.sequence-group"),
        ("fields.default-agregate-function", "fields.default-aggregate-function"),
    ],
)
def test_readers_writers_and_compactions_name_the_key_that_is_meant(tmp_path: Path, given: str, meant: str) -> None:
    table = table_with(tmp_path, given)
    message = re.escape(f"Unknown option '{given}'. Did you mean '{meant}'? Remove it or correct its name.")
    for ask in (
        lambda: stream_read_builder(table).new_streaming_scan(),
        lambda: stream_write_builder(table).open_sync().__enter__(),
        lambda: compact(table),
    ):
        with pytest.raises(StreamConfigError, match=message):
            ask()


def test_a_reader_does_not_mind_what_means_something_to_writers_alone(tmp_path: Path) -> None:
    table = table_with(tmp_path, "target-file-sizze")
    with stream_read_builder(table).with_end(latest=True).open_sync() as stream:
        assert list(stream) == []
    with pytest.raises(StreamConfigError, match="Did you mean 'target-file-size'"):
        stream_write_builder(table).open_sync().__enter__()


def table_with(warehouse: Path, option: str) -> Any:
    catalog = catalog_with_database(warehouse)
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    return create_table(catalog, "t", columns, primary_keys=["k"], options={"bucket": "1", option: "1"})


def test_an_option_of_another_system_that_looks_like_the_time_zone_is_accepted(tmp_path: Path) -> None:
    with stream_read_builder(table_with(tmp_path, "timezone")).with_end(latest=True).open_sync() as stream:
        assert list(stream) == []


def test_a_reader_minds_what_writers_use_too(tmp_path: Path) -> None:
    with pytest.raises(StreamConfigError, match=r"Did you mean 'changelog.time-retained'"):
        stream_read_builder(table_with(tmp_path, "changelog.time-retaind")).new_streaming_scan()
    assert known_names(Use.READ) < known_names()
