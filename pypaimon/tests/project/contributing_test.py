"""What contributors are told: commands that exist, a workflow for every supported Python, a changelog without twins."""

from __future__ import annotations

import re
from typing import Any

import yaml

from support.repository import ROOT, read_toml

PROJECT: dict[str, Any] = read_toml(ROOT / "pyproject.toml")["project"]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_commands_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", text("Makefile"), re.MULTILINE))
    for name in ("CONTRIBUTING.md", "docs/development.md"):
        commands = set(re.findall(r"(?:^|`)make ([a-z][\w-]*)", text(name), re.MULTILINE))
        assert {"check", "test", "test-feeds"} <= commands <= targets, name
    listed = set(re.findall(r"^\| `make ([\w-]+)`", text("docs/development.md"), re.MULTILINE))
    assert listed == targets - {"help"}


def test_files_that_contributors_are_sent_to_are_there() -> None:
    paths = re.findall(r"`((?:streaming|spark)/[\w/]+(?:\.py)?)`", text("CONTRIBUTING.md"))
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / "pypaimon" / path).exists()] == []


def test_a_change_passes_lint_and_both_sets_of_tests_and_a_check_on_every_supported_python() -> None:
    assert re.findall(r"^make (\S+)", text(".ci/run"), re.MULTILINE) == [
        ".venv/ready",
        "lint",
        "test",
        "test-feeds",
    ]
    jobs = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"]
    supported = [found for each in PROJECT["classifiers"] if (found := each.rpartition(" :: ")[2]).startswith("3.")]
    assert supported and jobs["check"]["strategy"]["matrix"]["python"] == supported
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert commands == {"style": ["make lint"], "check": ["make check"], "test": [".ci/run"]}


def test_the_changelog_says_nothing_twice() -> None:
    items = re.findall(r"^- (.+?)(?=^- |^\w|^#|\Z)", text("CHANGELOG.md"), re.DOTALL | re.MULTILINE)
    beginnings = [" ".join(re.findall(r"\w+", item)[:4]) for item in items]
    assert len(items) > 20
    assert sorted(beginnings) == sorted(set(beginnings))


def test_a_release_is_read_in_five_minutes() -> None:
    """And says first what to do."""
    sections = text("CHANGELOG.md").split("\n## [")[1:]
    assert [section.splitlines()[0] for section in sections if len(section.split()) > 1000] == []
    assert [re.findall(r"^### (\w+)", section, re.MULTILINE)[0] for section in sections] == ["Upgrade"] * len(sections)


def test_only_a_variable_of_the_repository_publishes() -> None:
    jobs = yaml.safe_load(text(".github/workflows/release.yml"))["jobs"]
    publishing = [name for name, job in jobs.items() if any("publish" in step.get("uses", "") for step in job["steps"])]
    assert [(name, jobs[name]["if"]) for name in publishing] == [("publish", "vars.PUBLISH == 'true'")]
    assert not re.search(r"twine upload|twine\", \"upload", text("Makefile") + text(".ci/release.py"))


def test_links_of_the_package_are_those_of_the_readme() -> None:
    assert PROJECT["urls"]
    assert [url for url in PROJECT["urls"].values() if url not in text("README.md")] == []
