"""What the sources import: declared packages, those of an extra where it is wanted, pypaimon through few modules."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.docs.public_face import PACKAGES
from support.repository import ROOT, TESTS, read_toml

pytestmark = pytest.mark.slow

SOURCES = sorted(path for folder in ("streaming", "spark") for path in (ROOT / "pypaimon" / folder).rglob("*.py"))
ADAPTERS = {
    *("catalogs.py", "internals.py", "filter_internals.py", "read_internals.py", "write_internals.py"),
    *("demo.py", "example_tables.py", "small_table.py"),
}
"""Modules that may import from pypaimon itself: those of `paimon`, and the last three, which use its public face."""
STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""What an import can stand in."""


@dataclass(frozen=True)
class Import:
    """One imported name, and whether it is not imported with its module."""

    path: Path
    module: str
    late: bool

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}: {self.module}"


def is_late(node: ast.AST) -> bool:
    """Is what stands in here run by a call, or by type checkers alone?"""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def imports_of(path: Path) -> Iterator[Import]:
    def visit(node: ast.AST, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(path, alias.name, late) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.module is not None, f"{path}: a relative import"
                yield from (Import(path, f"{child.module}.{alias.name}", late) for alias in child.names)
            elif isinstance(child, STATEMENTS):
                yield from visit(child, late or is_late(child))

    return visit(ast.parse(path.read_text(encoding="utf-8")), late=False)


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    found = [each for path in SOURCES for each in imports_of(path) if each.package not in sys.stdlib_module_names]
    assert found
    return found


def packages_of(*extras: str) -> set[str]:
    """The names under which one imports what the distribution, and these extras of it, declare, and its own modules."""
    settings = read_toml(ROOT / "pyproject.toml")
    project = settings["project"]
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    declared = {canonicalize_name(Requirement(text).name) for text in texts}
    # `packages_distributions()` of Python 3.10 knows only what old build tools wrote down.
    files = (file for each in declared for file in _files(each))
    own = settings["tool"]["setuptools"]["py-modules"]
    return declared | {*own} | {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}


def _files(distribution: str) -> list[metadata.PackagePath]:
    """The files of a distribution, if it is installed."""
    try:
        return metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return []


def test_every_imported_package_is_declared(imports: list[Import]) -> None:
    extras = ("cli", "delta", "duckdb", "fast", "iceberg", "otel", "postgres", "ray", "spark", "sqlite", "torch")
    # The last two are imported under another name, and are not installed here.
    declared = packages_of(*extras, "bytewax", "dagster", "dlt", "airflow", "quix") | {"airflow", "quixstreams"}
    assert [str(each) for each in imports if each.package not in declared] == []


def test_what_an_extra_brings_is_imported_late_or_in_its_own_folder(imports: list[Import]) -> None:
    base, own = packages_of(), {extra: packages_of(extra) for extra in ("cli", "ray", "spark", "torch")}
    own |= {extra: {extra} for extra in ("airflow", "bytewax", "dagster", "dlt")} | {"quix": {"quixstreams"}}
    early = [each for each in imports if not each.late and each.package not in base]
    homes = {extra: {extra, f"{extra}_feed.py", f"{extra}.py"} for extra in own}
    homes["torch"] |= {"mixed_feed.py", "ranks.py"}
    at_home = [
        each
        for each in early
        if any(not homes[extra].isdisjoint(each.path.parts) and each.package in own[extra] for extra in own)
    ]
    assert [str(each) for each in early if each not in at_home] == []


def test_pypaimon_is_reached_through_one_module(imports: list[Import]) -> None:
    ours = ("pypaimon.streaming", "pypaimon.spark")
    theirs = [each for each in imports if each.package == "pypaimon" and not each.module.startswith(ours)]
    assert theirs
    assert [str(each) for each in theirs if each.path.name not in ADAPTERS] == []


def test_modules_import_modules_and_not_the_face(imports: list[Import]) -> None:
    """The package's own `__init__` gathers names for users; a module that imports it would import everything."""
    streaming = ROOT / "pypaimon" / "streaming"
    parts = {path.stem for path in streaming.iterdir() if path.name != "__init__.py"}
    faces = {"__init__.py", "demo.py"}
    inside = [each for each in imports if streaming in each.path.parents and each.path.name not in faces]
    of_ours = [(each, each.module.split(".")[2]) for each in inside if each.module.startswith("pypaimon.streaming.")]
    assert [str(each) for each, part in of_ours if part not in parts and "cli" not in each.path.parts] == []


@cache
def names_in(path: Path) -> set[str]:
    """What a module defines, imports, or lists for others."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    made = {each.name for each in nodes if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
    made |= {each.asname or each.name for each in nodes if isinstance(each, ast.alias)}
    made |= {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return made


def is_there(name: str) -> bool:
    """Whether a dotted name of this repository is a module, or a name in one."""
    path = ROOT.joinpath(*name.split("."))
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    module = path.parent / "__init__" if path.parent.is_dir() else path.parent
    files = [each for each in (module.with_suffix(".py"), module.with_suffix(".pyi")) if each.is_file()]
    return any(path.name in names_in(each) for each in files)


def test_what_benchmarks_and_examples_import_is_there() -> None:
    """They are no part of the package, and the types of what they import are not checked."""
    paths = [path for folder in ("benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 10
    ours = ("pypaimon.streaming", "pypaimon.spark", "benchmarks")
    found = [each for path in paths for each in imports_of(path) if each.module.startswith(ours)]
    assert found
    assert [str(each) for each in found if not is_there(each.module)] == []


def test_what_benchmarks_ask_of_each_other_is_there() -> None:
    """Names behind a module's, as the report has them, which is written when all has been measured."""
    folder = ROOT / "benchmarks"
    asked = []
    for path in folder.glob("*.py"):
        modules = {each.module.split(".")[1] for each in imports_of(path) if each.module.startswith("benchmarks.")}
        names = [
            node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Attribute)
        ]
        owners = [(node.value.id, node.attr) for node in names if isinstance(node.value, ast.Name)]
        asked += [(path.name, module, name) for module, name in owners if module in modules]
    assert ("__main__.py", "following", "LATENCY_MS") in asked
    assert [each for each in asked if each[2] not in names_in(folder / f"{each[1]}.py")] == []


def test_no_test_imports_from_another_one() -> None:
    """What several of them use is in `support/`, or a fixture."""
    pattern = re.compile(r"^ *(?:from|import) (\w+)", re.MULTILINE)
    found = {(path.name, name) for path in TESTS.rglob("*.py") for name in pattern.findall(path.read_text("utf-8"))}
    assert (Path(__file__).name, "support") in found
    assert [each for each in found if each[1].endswith("_test")] == []


def test_importing_the_package_imports_nothing_else() -> None:
    """What is not used costs nothing: a program that only loads tables does not pay for streams."""
    code = (
        "import sys; from pypaimon import CatalogFactory; before = set(sys.modules); import pypaimon.streaming; "
        "print(sorted(set(sys.modules) - before))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    added = set(ast.literal_eval(shown.stdout))
    assert {name for name in added if name.startswith("pypaimon.streaming")} == {
        "pypaimon.streaming",
        "pypaimon.streaming.install",
        "pypaimon.streaming.lazy_imports",
    }
    assert len(added) < 10


@pytest.mark.parametrize("early", [True, False], ids=["tables first", "tables later"])
def test_table_classes_have_the_method_whatever_is_imported_first(early: bool) -> None:
    modules = ["pypaimon.table.file_store_table", "pypaimon.streaming"]
    code = f"""
import importlib, inspect, pickle, sys
for name in {modules if early else modules[::-1]}:
    importlib.import_module(name)
    print("pypaimon.table.table" in sys.modules)
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.table.format.format_table import FormatTable
from pypaimon.table.iceberg.iceberg_table import IcebergTable
from pypaimon.table.object.object_table import ObjectTable
from pypaimon.table.system.system_table import SystemTable
from pypaimon.table.table import Table
for each in (FileStoreTable, FormatTable, IcebergTable, ObjectTable, SystemTable, Table):
    assert each.new_stream_read_builder.__module__ == "pypaimon.streaming.install", each
    assert inspect.getsource(each).startswith("class")
    assert pickle.loads(pickle.dumps(each)) is each
importlib.reload(sys.modules["pypaimon.table.table"])
assert sys.modules["pypaimon.table.table"].Table.new_stream_read_builder.__module__ == "pypaimon.streaming.install"
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == [str(early), "True"]


EXTRAS = (
    "adbc_driver_manager click deltalake duckdb obstore opentelemetry psycopg pyiceberg pyspark ray rich torch".split()
)


WITHOUT_EXTRAS = [each for each in PACKAGES if "spark" not in each and "feeds" not in each]


@pytest.fixture(scope="module")
def imported() -> dict[str, str]:
    """What a process that has no extra found in each public module: forks of one, which has pypaimon loaded."""
    code = f"""
import os, sys
sys.modules.update(dict.fromkeys({EXTRAS}))
import pypaimon.catalog.catalog_factory
for name in {WITHOUT_EXTRAS}:
    if not os.fork():
        names = {{}}
        exec(f"import {{name}} as module; from {{name}} import *", names)
        module = names["module"]
        missing = [each for each in module.__all__ if each not in names or each not in dir(module)]
        print(name, len(module.__all__), missing, flush=True)
        os._exit(0)
    os.wait()
"""
    shown = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    return {line.partition(" ")[0]: line.partition(" ")[2] for line in shown.stdout.splitlines()}


@pytest.mark.parametrize("module", WITHOUT_EXTRAS)
def test_all_names_of_a_public_module_can_be_imported_without_extras(module: str, imported: dict[str, str]) -> None:
    count, _, missing = imported[module].partition(" ")
    assert (int(count) > 0, missing.strip()) == (True, "[]")


def test_no_module_hides_a_public_name_of_its_package() -> None:
    """The import of a module puts it into its package, under its name."""
    hidden = {}
    for stub in (ROOT / "pypaimon" / "streaming").rglob("__init__.pyi"):
        names = set(re.findall(r"import (\w+) as \1$", stub.read_text(), re.M))
        hidden[stub.parent.name] = names & {each.stem for each in stub.parent.iterdir()}
    # `install` is imported by the package itself, before its name is.
    assert {package: names for package, names in hidden.items() if names} == {"streaming": {"install"}}


def test_the_package_itself_has_what_programs_are_written_with_and_a_version() -> None:
    import pypaimon.streaming

    assert len(pypaimon.streaming.__all__) <= 68
    assert pypaimon.streaming.__version__ == metadata.version("pypaimon-streaming")
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        pypaimon.streaming.Nothing  # noqa: B018
