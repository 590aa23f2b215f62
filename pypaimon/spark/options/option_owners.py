"""Whose an option is: the source's or the sink's own, the table's or the catalog's. An unknown one is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.arguments import did_you_mean, nearest
from pypaimon.streaming.options.option_key import TEXT, OptionKey

_CATALOG_FAMILIES = (
    "s3.", "fs.", "token", "dlf.", "gcs.", "hdfs.", "hadoop.", "header.", "jdbc.", "security.", "fuse.", "file-io.",
)  # fmt: skip
_CATALOG_WORDS = ("user", "password", "name", "prefix")
_TABLE_FAMILIES = ("fields.", "parquet.", "orc.", "avro.", "file-index.")


TABLE, PATH = OptionKey("table", TEXT, None), OptionKey("path", TEXT, None)


@dataclass(frozen=True, slots=True)
class OptionSchema:
    """Options other than those of tables and catalogs.

    Attributes:
        keys: The names of the source's or the sink's own options.
        hints: Words of other systems, in lower case, and what has that name here; their values may differ.
        aliases: Words of other systems, in lower case, that are taken for what has that name here.
        table_families: Further prefixes of table options.
        ignored: Options in lower case that Spark hands on and that are not for us.
    """

    keys: tuple[str, ...]
    hints: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    table_families: tuple[str, ...] = ()
    ignored: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class ClassifiedOptions:
    """Options by whose they are, with the case of their keys given back. Holds secrets, so it is never shown."""

    own: dict[str, str] = field(default_factory=dict, repr=False)
    table: dict[str, str] = field(default_factory=dict, repr=False)
    catalog: dict[str, str] = field(default_factory=dict, repr=False)


def classify_options(options: Mapping[str, str], schema: OptionSchema) -> ClassifiedOptions:
    """Sort options, whose keys Spark has lower-cased.

    Options of the source or the sink may be spelled in Spark's way or in Paimon's: `mergeSchema` or `merge-schema`.

    Raises:
        StreamConfigError: One is unknown, in which case the nearest known one is named, or is set twice.
    """
    # The process that only hands out readers imports nothing of pypaimon.
    from pypaimon.streaming.options.known_options import accepted_names

    found = ClassifiedOptions()
    known: dict[str, tuple[str, dict[str, str]]] = {}
    for keys, target in (
        (accepted_names(), found.table),
        ((*_catalog_keys(), *_CATALOG_WORDS), found.catalog),
        (schema.keys, found.own),
    ):
        known.update({key.lower(): (key, target) for key in keys})
    spellings = {_letters(key): key for key in schema.keys} | dict(schema.aliases)
    for given, value in options.items():
        key = given.lower()
        own = spellings.get(key) or spellings.get(_letters(key))
        if key in known and (own is None or key == own.lower()):
            name, target = known[key]
            _set(target, name, value)
        elif own is not None:
            _set(found.own, own, value)
        elif key.startswith(_CATALOG_FAMILIES):
            found.catalog[key] = value
        elif key.startswith((*_TABLE_FAMILIES, *schema.table_families)):
            found.table[key] = value
        elif key not in schema.ignored:
            raise _unknown(key, {each: name for each, (name, _) in known.items()}, schema)
    return found


def _letters(key: str) -> str:
    # Without what separates its words: `mergeSchema` and `merge-schema` are one.
    return key.lower().replace("-", "").replace(".", "")


def _set(options: dict[str, str], name: str, value: str) -> None:
    if options.setdefault(name, value) != value:
        raise StreamConfigError(f"Option '{name}' is set twice, in two spellings. Give it once.")


def require_table_location(own: Mapping[str, str], catalog: Mapping[str, str], by_path: str, of_catalog: str) -> None:
    """Check that a table is named, in one way.

    Args:
        own: The source's or the sink's own options.
        catalog: Those of the catalog.
        by_path: How a directory is named instead.
        of_catalog: What to do about a table of Spark's catalog.

    Raises:
        StreamConfigError: It is not.
    """
    table, path = TABLE.of(own), PATH.of(own)
    if table is not None and path is not None:
        raise StreamConfigError(f"Options 'table' and 'path' (or {by_path}) are both set; give one of them.")
    if table is None and path is None:
        raise StreamConfigError(
            "Option 'table' is missing: set 'warehouse' (or 'metastore' and 'uri') and 'table' = 'db.name', "
            f"or {by_path}. {of_catalog}"
        )
    if table is not None:
        if "." not in table:
            raise StreamConfigError(f"Option 'table' = '{table}': give the database too, 'db.name'.")
        if "warehouse" not in catalog and "uri" not in catalog:
            raise StreamConfigError("Option 'warehouse' is missing: set it to the directory of the catalog.")


def separated_names(own: Mapping[str, str], key: OptionKey[str, None]) -> tuple[str, ...] | None:
    """Names, of columns or directories, with commas between; None if the option is not set.

    Raises:
        StreamConfigError: One is empty, or given twice.
    """
    text = key.of(own)
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise StreamConfigError(f"Option '{key}' = '{text}': give names with commas between, each once.")
    return names


def _unknown(key: str, known: Mapping[str, str], schema: OptionSchema) -> StreamConfigError:
    meant = schema.hints.get(key) or nearest(key, known)
    hint = did_you_mean(None if meant is None else known[meant.lower()])
    return StreamConfigError(
        f"Unknown option '{key}'.{hint} Correct its name or remove it. Known are: {', '.join(sorted(schema.keys))}; "
        "Paimon's table options; the catalog's 'warehouse', 'metastore', 'uri', 'token*', 's3.*', 'fs.*'."
    )


def _catalog_keys() -> Iterable[str]:
    from pypaimon.streaming.paimon.internals import ConfigOption, catalog_options

    families = [each for name, each in vars(catalog_options).items() if name.endswith("Options")]
    return [each.key() for family in families for each in vars(family).values() if isinstance(each, ConfigOption)]
