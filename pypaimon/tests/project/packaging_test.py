"""The distributions as users install them: built, and installed beside pypaimon in a clean environment.

Building and installing take time, so one environment serves all: it has the wheel, unless a test removes it meanwhile.
"""

from __future__ import annotations

import json
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

from support.repository import ROOT

pytestmark = pytest.mark.slow

IMPORT_ALL = """
import importlib, pkgutil, pypaimon.streaming as ours
names = "cli", "feeds.mixed", "feeds.ranks", "feeds.ray", "feeds.torch"
names += tuple(f"orchestrators.{each}" for each in ("airflow", "bytewax", "dagster", "dlt", "quix"))
of_extras = tuple(f"pypaimon.streaming.{name}" for name in names)
for module in pkgutil.walk_packages(ours.__path__, "pypaimon.streaming."):
    if not module.name.startswith(of_extras):
        importlib.import_module(module.name)
print(ours.__file__)
"""


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """The output of a command, which must succeed."""
    result = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.+?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheel and what that declares, and an empty directory to run in."""

    path: Path
    empty: Path
    wheel: Path

    @property
    def site_packages(self) -> Path:
        return next((self.path / "lib").glob("python*/site-packages"))

    def python(self, code: str, **env: str) -> str:
        return run(self.path / "bin" / "python", "-c", code, cwd=self.empty, env=env).strip()

    def install(self, *what: str | Path) -> None:
        self._pip("install", *what, only_pip="--no-compile")

    def uninstall(self) -> None:
        self._pip("uninstall", "pypaimon-streaming", only_pip="--yes")

    def _pip(self, command: str, *arguments: str | Path, only_pip: str) -> None:
        """By uv, in a tenth of pip's time, if it is there and its settings tell an index."""
        python = self.path / "bin" / "python"
        by_uv = (sys.executable, "-m", "uv", "pip", command, "--quiet", "--python", python, *arguments)
        if subprocess.run(by_uv, cwd=self.empty, capture_output=True, timeout=900).returncode:
            pip = (sys.executable, "-m", "pip", "--python", python)
            run(*pip, command, "--quiet", only_pip, *arguments, cwd=self.empty)

    @contextmanager
    def without_wheel(self) -> Iterator[None]:
        self.uninstall()
        yield
        self.install("--no-deps", self.wheel)

    def check_that_pypaimon_is_whole(self) -> None:
        assert not (self.site_packages / "pypaimon" / "streaming").exists()
        code = "from pypaimon import CatalogFactory; print(CatalogFactory.__module__)"
        assert self.python(code) == "pypaimon.catalog.catalog_factory"


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    return next(distributions.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    path = tmp_path_factory.mktemp("environment")
    venv.create(path, with_pip=False)
    environment = Environment(path, tmp_path_factory.mktemp("empty"), wheel)
    environment.install(wheel)
    return environment


def test_the_wheel_holds_our_packages_and_nothing_of_pypaimon(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "pypaimon/streaming/__init__.py" in names
    assert {"pypaimon/streaming/py.typed", "pypaimon/spark/py.typed"} <= set(names)
    ours = re.compile(
        r"pypaimon/(streaming|spark)/|(paimon_stream|pyspark_pypaimon)\.py$|pypaimon_streaming-[^/]+\.dist-info/"
    )
    assert [name for name in names if not ours.match(name)] == []
    assert [name for name in names if re.search(r"pypaimon/tests|_test\.py|conftest", name)] == []


def test_the_source_distribution_holds_what_the_wheel_needs(distributions: Path) -> None:
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "NOTICE", "README.md", "pyproject.toml", "pypaimon/streaming/py.typed"} <= names
    assert [name for name in names if re.match(r"(pypaimon/tests|docs|benchmarks|examples)/", name)] == []


def test_spark_finds_the_source_of_an_editable_install(distributions: Path, tmp_path: Path) -> None:
    """It looks for modules in directories, and does not see those of an import hook."""
    run("tar", "-xzf", next(distributions.glob("*.tar.gz")), "-C", tmp_path)
    (source,) = tmp_path.iterdir()
    build = "import build_backend; print(build_backend.build_editable('.'))"
    wheel = source / run(sys.executable, "-c", build, cwd=source).splitlines()[-1]
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel)
    assert [each.name for each in pkgutil.iter_modules([str(site)]) if each.name.startswith("pyspark_")] == [
        "pyspark_pypaimon"
    ]
    (record,) = site.glob("*.dist-info/RECORD")
    assert "pyspark_pypaimon.py,sha256=" in record.read_text()


def test_an_index_would_take_both(distributions: Path) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *distributions.iterdir())


def test_the_version_is_that_of_the_tag(tmp_path: Path) -> None:
    def version() -> str:
        return run(sys.executable, "-m", "setuptools_scm", cwd=tmp_path).strip()

    def git(*arguments: str) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "commit.gpgsign=false")
        run("git", *who, *arguments, cwd=tmp_path)

    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert version() == "0.2.0.dev0", "a copy without history"
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=first")
    assert re.fullmatch(r"0\.2\.0\.dev1\+g\w+", version()), "a checkout without tags"
    git("tag", "v1.2.3")
    assert version() == "1.2.3"
    git("commit", "--quiet", "--allow-empty", "--message=second")
    assert re.fullmatch(r"1\.2\.4\.dev1\+g\w+", version())


README, DATED = "Alpha, version 0.2: ...", "# Changelog\n\n## [0.2.0] - 2026-11-27\n\n## [0.1.0] - 2026-01-01\n"


@pytest.mark.parametrize(
    ("tags", "changelog", "readme", "found"),
    [
        (["v0.2.0"], DATED, README, "0.2.0"),
        ([], DATED, README, "0.2.0.dev0"),
        ([], DATED.replace(" - 2026-11-27", "", 1), README, "0.2.0.dev0"),
        (["v0.2.0"], DATED.replace(" - 2026-11-27", "", 1), README, "CHANGELOG.md: date the section [0.2.0]"),
        (["v0.2.1"], DATED, README, "the tag and CHANGELOG.md differ: this commit has v0.2.1, the changelog [0.2.0]"),
        (["v0.2.0", "v0.3.0"], DATED, README, "the tag and CHANGELOG.md differ: this commit has v0.2.0, v0.3.0"),
        ([], DATED.replace("0.2.0", "Unreleased", 1), README, "CHANGELOG.md begins with [Unreleased]"),
        (["v0.2.0"], DATED, README.replace("0.2", "0.1"), "README.md says another version than 0.2.0"),
    ],
)
def test_a_release_has_one_version(tags: list[str], changelog: str, readme: str, found: str) -> None:
    version_of = runpy.run_path(str(ROOT / ".ci" / "release.py"))["version_of"]
    if found[0].isdigit():
        assert version_of(tags, changelog, readme) == found
    else:
        with pytest.raises(SystemExit, match=re.escape(found)):
            version_of(tags, changelog, readme)


@pytest.mark.nightly
def test_a_release_is_built_and_tried(tmp_path: Path) -> None:
    """Of the last commit, in a clone with a tag: `make release` without its environment."""
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", ROOT, clone)
    run("git", "-c", "tag.gpgsign=false", "tag", "v0.2.0", cwd=clone)
    printed = run(sys.executable, ".ci/release.py", cwd=clone)
    assert "       4  +U   1  paid" in printed and "rehearsal" not in printed
    names = {path.name for path in (clone / "dist").iterdir()}
    built = {f"pypaimon_streaming-0.2.0{suffix}" for suffix in ("-py3-none-any.whl", ".tar.gz", ".cdx.json")}
    assert names == {*built, "SHA256SUMS"}


def test_the_metadata_is_valid_and_complete(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    text = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA")))
    metadata = Metadata.from_email(text, validate=True)
    assert str(metadata.requires_python) == "<3.15,>=3.10", "pip refuses another Python in a sentence"
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.license_files == ["LICENSE", "NOTICE"]
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description
    formats, targets = {"lance", "mosaic", "vortex"}, {"delta", "duckdb", "iceberg", "mysql", "postgres", "sqlite"}
    uses = {"bench", "cli", "dev", "docs", "fast", "otel", "spark", "test", "test-feeds", "torch", "ray"}
    uses |= {"airflow", "bytewax", "dagster", "dlt", "quix", "test-airflow", "test-orchestrators", "test-runner"}
    assert set(metadata.provides_extra or []) == uses | formats | targets
    assert "pypaimon" in {Requirement(str(each)).name for each in metadata.requires_dist or []}


def test_every_module_imports_with_the_declared_dependencies_alone(environment: Environment) -> None:
    where = environment.python(IMPORT_ALL)
    assert Path(where) == environment.site_packages / "pypaimon" / "streaming" / "__init__.py"


def test_the_import_contract_holds(environment: Environment) -> None:
    """import-linter wants the top-level package, and sees ours only where it is installed."""
    environment.install("import-linter>=2.1")
    command = (
        environment.path / "bin" / "lint-imports",
        "--config",
        ROOT / "pyproject.toml",
        "--no-cache",
        "--no-logo",
    )
    assert "Contracts: 3 kept, 0 broken." in run(*command, cwd=environment.empty)


def test_type_checkers_know_what_a_program_imports(environment: Environment) -> None:
    """What is right passes, in the strictest mode; a method that is not there does not, nor a wrong type.

    pypaimon has no types: mypy needs a setting for what a program imports from it, which `docs/index.md` names.
    """
    opened = 'from pypaimon.streaming import open_table\ntable = open_table("db.t", {"warehouse": "/w"})\n'
    catalog = (
        'from pypaimon import CatalogFactory\ntable = CatalogFactory.create({"warehouse": "/w"}).get_table("db.t")\n'
    )
    right = (
        "with stream_read_builder(table).with_end(latest=True).open_sync() as stream:\n"
        "    rows: int = sum(batch.num_rows for batch in stream)"
    )
    programs = {
        "opened": opened + right,
        "of_a_catalog": catalog + right,
        "misspelt": f"{opened}stream_read_builder(table).with_ends(latest=True)",
        "wrong": f'{opened}stream_read_builder(table).with_end(latest="yes")',
    }
    for name, code in programs.items():
        head = "from pypaimon.streaming import stream_read_builder\n"
        (environment.empty / f"{name}.py").write_text(f"{head}{code}\n")
    (setting,) = re.findall(r"```toml\n(.+?)```", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.DOTALL)
    (environment.empty / "pyproject.toml").write_text(setting)
    command = (sys.executable, "-m", "mypy", "--strict", "--python-executable", environment.path / "bin" / "python")
    files = [f"{name}.py" for name in programs]
    found = subprocess.run((*command, *files), cwd=environment.empty, capture_output=True, text=True)
    told = {name: line for name in programs for line in found.stdout.splitlines() if line.startswith(f"{name}.py:")}
    assert told.keys() == {"misspelt", "wrong"}, found.stdout
    assert '"with_ends"' in told["misspelt"] and '"latest"' in told["wrong"]


@pytest.mark.nightly
def test_the_first_pages_pass_pyright_in_its_strict_mode(environment: Environment, tmp_path: Path) -> None:
    """With types of pyarrow, which has none itself; a method that is misspelt, or a wrong type, is found."""
    environment.install("--no-deps", "duckdb>=1", "pyarrow-stubs")
    _, first, *others = python_blocks(ROOT / "docs" / "index.md")
    programs = dict(enumerate([*python_blocks(ROOT / "README.md"), first, "".join(others)]))
    written = {f"page_{number}.py": code for number, code in programs.items()}
    mistakes = {"with_projection(": "with_projections(", 'with_end("latest")': 'with_end(latest="yes")'}
    for right, wrong in mistakes.items():
        assert right in written["page_3.py"]
        written[f"{wrong.partition('(')[0]}_wrong.py"] = written["page_3.py"].replace(right, wrong, 1)
    for name, code in written.items():
        (tmp_path / name).write_text(code)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    pyright = (sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath")
    python = environment.path / "bin" / "python"
    found = subprocess.run((*pyright, python), cwd=tmp_path, capture_output=True, text=True, timeout=300)
    told = json.loads(found.stdout)
    assert told["summary"]["filesAnalyzed"] == len(written), found.stdout
    rules = {(Path(each["file"]).name, each["rule"]) for each in told["generalDiagnostics"]}
    assert {name for name, _ in rules} == {"with_projections_wrong.py", "with_end_wrong.py"}, found.stdout
    assert ("with_projections_wrong.py", "reportAttributeAccessIssue") in rules
    assert ("with_end_wrong.py", "reportArgumentType") in rules


@pytest.mark.nightly
def test_uninstalling_leaves_pypaimon_whole(environment: Environment, tmp_path: Path) -> None:
    """Beside another site-packages it is not found, the documented limit: both distributions must lie in one."""
    with environment.without_wheel():
        environment.check_that_pypaimon_is_whole()
        environment.install("--no-deps", "--target", tmp_path, environment.wheel)
        code = "try:\n import pypaimon.streaming\nexcept ModuleNotFoundError as error:\n print(error)"
        assert environment.python(code, PYTHONPATH=str(tmp_path)) == "No module named 'pypaimon.streaming'"


@pytest.mark.nightly
def test_an_editable_install_works_and_leaves_pypaimon_whole(environment: Environment) -> None:
    environment.install("setuptools>=77", "setuptools-scm>=8")
    with environment.without_wheel():
        environment.install("--no-deps", "--no-build-isolation", "--editable", ROOT)
        assert Path(environment.python(IMPORT_ALL)) == ROOT / "pypaimon" / "streaming" / "__init__.py"
        environment.uninstall()
        environment.check_that_pypaimon_is_whole()
