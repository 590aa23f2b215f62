"""The documentation holds: blocks of code run and print what they say, guarantees name tests, links lead on.

A block of Python runs with those before it on its page, `await` included; commands of `paimon-stream` run too. What
stands in a `text` block behind them is what they print. The catalog is a fresh one with the tables of `orders.py`. The
pages of Spark run in `spark_docs_test.py`.
"""

from __future__ import annotations

import asyncio
import html
import importlib
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.corpus.deviations import all_deviations
from support.docs.doc_pages import DOCS, ON_SPARK, PAGES, run_page
from support.docs.public_face import PACKAGES, public_names
from support.repository import ROOT, TESTS, read_toml
from support.stores.s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from support.tables.orders import create_orders

pytestmark = pytest.mark.slow

HAVE_OWN = [*ON_SPARK, DOCS / "index.md", DOCS / "orchestrators.md"]
"""Pages with a test of their own."""
OF_THE_REPOSITORY = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]


def marked(page: Path) -> object:
    """A page with the marks of what its code imports."""
    return pytest.param(page, marks=pytest.mark.torch) if page.stem == "feeds" else page


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
@pytest.mark.parametrize("page", [marked(page) for page in PAGES if page not in HAVE_OWN], ids=lambda page: page.stem)
def test_code_runs_and_prints_what_it_says(page: Path, orders_warehouse: Path, loop: asyncio.AbstractEventLoop) -> None:
    run_page(page, orders_warehouse, loop)


@pytest.mark.server
def test_the_quick_start_runs(
    orders_warehouse: Path, loop: asyncio.AbstractEventLoop, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on S3, with keys of the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    found = server.catalog("warehouse")
    found.create_database("db", True)
    create_orders(found)
    run_page(DOCS / "index.md", orders_warehouse, loop, server.endpoint)


def test_every_guarantee_names_tests_that_exist() -> None:
    guarantees = read_toml(TESTS / "guarantees.toml")["guarantee"]
    assert len(guarantees) >= 150
    sources = {path.name: path.read_text(encoding="utf-8") for path in TESTS.rglob("*_test.py")}
    for guarantee in guarantees:
        assert guarantee["section"] and guarantee["says"] and guarantee["tests"], guarantee
        for test in guarantee["tests"]:
            module, _, name = test.partition("::")
            definition = rf"^ *(async )?def {name}\(|^{name} = "
            assert module in sources and (not name or re.search(definition, sources[module], re.MULTILINE)), test


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Files, and headings in them, that a page links to."""
    content = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"]\(([^)]+)\)", content):
        if not re.match(r"https?:", target):
            file, _, anchor = target.partition("#")
            yield (page.parent / file if file else page), anchor


@pytest.mark.parametrize("page", [*PAGES, *OF_THE_REPOSITORY], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for file, anchor in links(page):
        assert file.exists(), f"{page.name} links to {file}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {file.name}#{anchor}"


def anchors(page: Path) -> set[str]:
    """What a link may name behind `#`: the headings, as the site spells them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def texts_of_the_repository() -> Iterator[Path]:
    """What a reader of the code reads, but for this file: sources, tests, build files and pages."""
    for pattern in ("pypaimon/**/*.py", "pypaimon/tests/*.toml", "benchmarks/**/*.py", "examples/*.*", "docs/**/*.md"):
        yield from (path for path in ROOT.glob(pattern) if path != Path(__file__))
    yield from (path for name in ("*.md", "*.py", "*.toml", "Makefile", ".ci/run") for path in ROOT.glob(name))


def test_what_sources_say_of_pages_leads_to_a_heading() -> None:
    """`docs/page.md#heading` in a docstring, and the rules that `deviations.toml` names."""
    named = {(page, anchor) for path in texts_of_the_repository() for page, anchor in _page_references(path)}
    named |= {("java-semantics.md", entry.rule) for entry in all_deviations()}
    assert {"starts", "merge-engines", "batch-ranges"} <= {anchor for page, anchor in named}
    assert [name for name, _ in named if not (DOCS / name).exists()] == []
    assert [f"{name}#{anchor}" for name, anchor in named if anchor and anchor not in anchors(DOCS / name)] == []


def _page_references(path: Path) -> list[tuple[str, str]]:
    return re.findall(r"\bdocs/([\w-]+\.md)(?:#([\w-]+))?", path.read_text(encoding="utf-8"))


def test_nothing_cites_what_a_reader_cannot_open() -> None:
    """Numbered sections of documents that are not here, such as `J§2`, and pages by a name that no file has."""
    numbered = re.compile(r"§|\b[A-Z] ?§? ?\d+\.\d+\b|\bB\d{1,2}\b")
    pages = {path.name for path in texts_of_the_repository() if path.suffix == ".md"}
    for path in texts_of_the_repository():
        text = re.sub(r"# noqa: \w+", "", path.read_text(encoding="utf-8"))
        assert not numbered.search(text), f"{path.relative_to(ROOT)}: {numbered.search(text)}"
        unknown = set(re.findall(r"\b[\w-]+\.md\b", text)) - pages
        assert not unknown, f"{path.relative_to(ROOT)} names {unknown}"


def test_modules_that_the_architecture_names_are_there() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    of_streams, _, of_spark = text.partition("## On Spark")
    for package, part in (("streaming", of_streams), ("spark", of_spark)):
        named = set(re.findall(r"`([a-z_/]+(?:/|\.py))`", part))
        assert len(named) > 5
        assert [name for name in named if not (ROOT / "pypaimon" / package / name).exists()] == []
        rows = re.findall(r"^\| `([a-z_/]+)/` \| (.*) \|$", part, re.MULTILINE)
        extras = {"fast"}
        modules = {path.stem for path in (ROOT / "pypaimon" / package).rglob("*.py")}
        assert {name for _, text in rows for name in re.findall(r"`([a-z_]+)`", text)} - modules - extras == set()


def test_every_page_is_in_the_site() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    assert {page.name for page in DOCS.glob("*.md")} <= set(re.findall(r"[\w-]+\.md", navigation))


@pytest.mark.parametrize("chart", ["benchmarks-pypaimon", "benchmarks-others"])
def test_no_label_of_a_chart_is_cut(chart: str) -> None:
    """A letter of its font is at most 7 pixels wide, on average."""
    drawing = (DOCS / f"{chart}.svg").read_text(encoding="utf-8")
    (width,) = re.findall(r'viewBox="0 0 (\d+) \d+"', drawing)
    texts = re.findall(r'<text x="(-?\d+)"[^>]*?(middle)?"[^>]*>([^<]*)</text>', drawing)
    assert len(texts) > 20
    for x, centred, text in texts:
        room = 7 * len(html.unescape(text))
        left = int(x) - (room // 2 if centred else 0)
        assert left >= 0 and left + room <= int(width), text


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("https://example.org/team/streams.git", "https://example.org/team/streams"),
        ("https://token@example.org/team/streams", "https://example.org/team/streams"),
        ("git@example.org:team/streams.git", "https://example.org/team/streams"),
        ("https://example.org:8443/streams.git", "https://example.org:8443/streams"),
        ("ssh://git@example.org/team/streams.git", "https://example.org/team/streams"),
        ("/srv/streams", None),
        (None, None),
    ],
)
def test_the_site_links_to_the_repository(
    origin: str | None, address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the clone's origin, without its passwords; to the clone, if that has none."""
    hooks = runpy.run_path(str(DOCS / "hooks.py"))
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    if origin is not None:
        subprocess.run(["git", "remote", "add", "origin", origin], cwd=tmp_path, check=True)
    monkeypatch.setitem(hooks["repository"].__globals__, "ROOT", tmp_path)
    config = SimpleNamespace(repo_url=None, repo_name=None)
    hooks["on_config"](config)
    assert config.repo_url == (address or tmp_path.as_uri())
    files = f"{address}/blob/HEAD" if address else tmp_path.as_uri()
    assert (
        hooks["on_page_markdown"]("[a](../examples/a.py), [b](b.md)", config)
        == f"[a]({files}/examples/a.py), [b](b.md)"
    )


def reference_entries() -> list[tuple[str, str]]:
    """(module, name) of each entry of the reference."""
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    return re.findall(r"^::: (pypaimon\.[\w.]+)\.(\w+)$", page, re.MULTILINE)


@pytest.mark.torch
def test_the_reference_holds_what_is_exported_and_nothing_else() -> None:
    exported = {id(value): name for package in PACKAGES for name, value in public_names(package)}
    entries = [getattr(importlib.import_module(module), name) for module, name in reference_entries()]
    assert sorted(exported.get(id(value), str(value)) for value in entries) == sorted(exported.values())
    assert [value for value in entries if not value.__doc__] == []
    assert {module for module, _ in reference_entries()} - {*PACKAGES} == {"pypaimon.streaming.install"}


@pytest.mark.nightly
def test_the_site_builds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert result.returncode == 0, result.stderr
    first = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert 'title="Go to repository"' in first and '<img alt="Changes of a primary-key table' in first
    reference = (tmp_path / "site" / "reference" / "index.html").read_text(encoding="utf-8")
    shown = set(re.findall(r'id="(pypaimon\.[\w.]+)"', reference))
    assert "pypaimon.streaming.StreamReadBuilder.with_consumer_id" in shown
    assert [(module, name) for module, name in reference_entries() if f"{module}.{name}" not in shown] == []
