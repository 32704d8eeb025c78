"""Every setting and every command is documented, and nothing that is documented is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redrive.domain import failure, headers
from redrive.domain.globs import matching
from redrive.roles import ROLES
from redrive.server.long_reads import GIVEN_UP
from redrive.settings import load
from redrive.settings.keys import KEYS
from redrive.settings.layers import CONVENTIONAL_VARIABLES, SYSTEM_FILE
from redrive.settings.section import fields_of
from scripts.commands_page import OF_EVERY_COMMAND, all_commands, filter_options
from scripts.settings_page import ROW, lists_of_tables
from tests.services.pages import (
    BESIDE,
    PAGES,
    ROOT,
    Link,
    anchors_of,
    blocks_in,
    commands_in,
    links_in,
)

REFERENCE = ROOT / "docs" / "reference"


def linked_from(page: Path) -> set[Path]:
    """The files and folders in the repository that a page links to or shows."""
    return {link.path for link in links_in(page)}


def test_every_page_is_linked_from_the_readme_or_a_page_that_it_links() -> None:
    first = linked_from(ROOT / "README.md")
    pages = {page for page in first if page.suffix == ".md"}
    listed = {page for folder in first if folder.name == "adr" for page in folder.glob("*.md")}
    reached = pages | listed | {link for page in pages for link in linked_from(page)}
    everything = {page.resolve() for page in (ROOT / "docs").rglob("*.md")}
    assert everything - reached == set()


def test_every_how_to_is_linked_from_the_readme_itself() -> None:
    how_to = {page.resolve() for page in (ROOT / "docs" / "how-to").glob("*.md")}
    assert how_to - linked_from(ROOT / "README.md") == set()


@pytest.mark.parametrize("page", [*PAGES, *BESIDE], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_anchor_and_image_leads_somewhere(page: Path) -> None:
    assert [link.target for link in links_in(page) if not link.leads_somewhere] == []


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    there = ROOT / "docs" / "reference" / "headers.md"
    targets = {"headers.md": True, "headers.md#read": True, "#written": True}
    targets |= {"heading.md": False, "headers.md#reads": False, "#gone": False, "../x.png": False}
    assert {each: Link(there, each).leads_somewhere for each in targets} == targets
    page = tmp_path / "page.md"
    page.write_text(
        '[a](one.md#x) ![b](two.png "title") [c](https://host/)\n```\n[d](three.md)\n```\n'
        '<picture><source srcset="four.png"><img src="five.png"></picture>\n'
        "# `A` [link](b.md)!\n## a link\n"
    )
    assert [link.target for link in links_in(page)] == [
        *("one.md#x", "two.png", "four.png", "five.png", "b.md")
    ]
    assert anchors_of(page) == {"a-link", "a-link-1"}


def test_every_image_is_shown_by_a_page() -> None:
    shown = {path for page in PAGES for path in linked_from(page)}
    assert set((ROOT / "docs" / "images").iterdir()) - shown == set()


def test_every_test_that_a_page_names_is_in_the_file_that_it_links() -> None:
    named = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name, link in re.findall(r"\[`(test_\w+)`\]\(([^)\s]+)\)", text):
            named += 1
            code = (page.parent / link).read_text(encoding="utf-8")
            assert f"def {name}(" in code, f"{page.name}: {name} is not in {link}"
    assert named > 20


def test_the_roles_that_there_are_are_documented() -> None:
    text = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    section = text.split("## redrive run")[1].split("## ")[0]
    assert tuple(re.findall(r"^\| `([a-z]+)` \|", section, re.MULTILINE)) == ROLES


def documented_settings() -> dict[str, list[str]]:
    """The rows of the tables: setting → type, default, meaning."""
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    return {key: cells for key, *cells in ROW.findall(text)}


def test_every_setting_is_documented_with_its_type_default_and_meaning() -> None:
    tables = lists_of_tables()
    assert set(tables) >= {"policy", "queue"}
    expected = set(KEYS) - set(tables)
    expected |= {f"{key}[].{name}" for key in tables for name in fields_of(tables[key])}
    documented = documented_settings()
    assert set(documented) == expected


def test_every_place_that_settings_come_from_is_documented() -> None:
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    for name in (*CONVENTIONAL_VARIABLES, str(SYSTEM_FILE), "XDG_CONFIG_HOME"):
        assert name in text


def test_the_example_file_is_right(tmp_path: Path) -> None:
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "redrive.toml"
    file.write_text(example)
    loaded = load(environ={}, config=file)
    shown = {key for key, source in loaded.sources.items() if source.kind == "file"}
    assert shown >= {key for key in KEYS if not key.startswith("topology.names.")}


def settings_in(page: Path) -> list[str]:
    """What a page shows of a settings file."""
    return [text for kind, text in blocks_in(page) if kind == "toml"]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if settings_in(page)], ids=lambda p: p.stem
)
def test_the_settings_that_a_page_shows_are_right(page: Path, tmp_path: Path) -> None:
    """All of a page stand in one file: a rule names sinks that were shown before."""
    file = tmp_path / "redrive.toml"
    file.write_text("\n".join(settings_in(page)))
    loaded = load(environ={"HOME": str(tmp_path)}, config=file)
    assert "file" in {source.kind for source in loaded.sources.values()}


def test_every_block_of_settings_says_that_it_is_one_so_that_it_is_tried() -> None:
    sections = {key.partition(".")[0] for key in KEYS}
    tables = re.compile(rf"^\[\[?({'|'.join(sections)})\b", re.MULTILINE)
    blocks = [
        (page.stem, kind) for page in PAGES for kind, text in blocks_in(page) if tables.search(text)
    ]
    assert len(blocks) > 5
    assert [block for block in blocks if block[1] != "toml"] == []


def test_every_command_is_documented_and_no_other() -> None:
    text = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^## (redrive .+)$", text, re.MULTILINE)) == sorted(all_commands())


@pytest.mark.parametrize("name", all_commands())
def test_every_option_is_explained_with_its_command_and_no_other_is(name: str) -> None:
    text = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
    explained = section.split("```\n", 1)[1].replace("\n### Filters", "\0").split("\0")[0]
    options = {
        option
        for parameter in all_commands()[name].params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }
    for option in options - filter_options() - OF_EVERY_COMMAND:
        assert f"`{option}" in explained or "ptions as" in explained, option
    rows = re.findall(r"^\| (`--.+?) \| ", explained, re.MULTILINE)
    told = {option for row in rows for option in re.findall(r"`(--[a-z-]+)", row)}
    assert told <= options


def test_every_command_in_the_docs_is_understood() -> None:
    commands = all_commands()
    tried = 0
    for page in PAGES:
        for words in (line.words for line in commands_in(page)):
            if words[0].startswith("--") or words == ["demo"]:
                continue
            for length in (2, 1):
                command = commands.get(" ".join(("redrive", *words[:length])))
                if command is not None:
                    break
            assert command is not None, f"{page.name}: redrive {' '.join(words)}"
            try:
                command.make_context(words[0], words[length:])
            except Exception as error:
                raise AssertionError(f"{page.name}: redrive {' '.join(words)}: {error}") from error
            tried += 1
    assert tried > 80


def headers_named_in(section: str) -> list[str]:
    """The headers in the first column of a table of the page on headers."""
    text = (REFERENCE / "headers.md").read_text(encoding="utf-8")
    table = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_every_header_that_redrive_writes_or_takes_off_is_documented_and_no_other() -> None:
    assert sorted(headers_named_in("Written")) == sorted(headers.WRITTEN)
    text = (REFERENCE / "headers.md").read_text(encoding="utf-8")
    taken_off = text.split("## Taken off")[1]
    patterns = re.findall(r"`(x-[a-z*-]+)`", taken_off.split(":")[0])
    for name in headers.BROKERS_OWN:
        assert any(matching(pattern, [name]) for pattern in patterns), name
    for pattern in patterns:
        assert matching(pattern, headers.BROKERS_OWN), pattern


def test_every_header_of_others_that_redrive_reads_is_documented_and_no_other() -> None:
    of_others = {headers.TAGS, *failure.NAMES} - set(headers.WRITTEN)
    assert sorted(headers_named_in("Read")) == sorted(of_others)


def test_every_kind_of_problem_is_documented_with_its_status_and_no_other() -> None:
    code = "\n".join(
        file.read_text(encoding="utf-8")
        for file in (ROOT / "src" / "redrive" / "server").glob("*.py")
    )
    answered = re.findall(r"\b([45]\d\d|GIVEN_UP)[,:]\s+\"([a-z]+(?:-[a-z]+)*)\"", code)
    found = {(kind, status.replace("GIVEN_UP", str(GIVEN_UP))) for status, kind in answered}
    page = (REFERENCE / "api.md").read_text(encoding="utf-8")
    table = page[page.index("| type `urn:redrive:problem:") :].split("\n\n")[0]
    told = {
        (kind, status)
        for kinds, statuses in re.findall(r"^\| (`.+?`) \| ([\d, ]+) \|", table, re.MULTILINE)
        for kind in re.findall(r"`([\w-]+)`", kinds)
        for status in statuses.split(", ")
    }
    assert found - told == set()
    assert {kind for kind, _ in told} == {kind for kind, _ in found}


def test_every_check_of_the_doctor_is_documented_and_no_other() -> None:
    text = (ROOT / "docs" / "how-to" / "doctor.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)
    modules = (ROOT / "src" / "redrive" / "broker" / "doctor").glob("*.py")
    code = "".join(module.read_text(encoding="utf-8") for module in modules)
    made = set(re.findall(r'check="([a-z-]+)"', code))
    made |= set(re.findall(r'check, then = "([a-z-]+)"', code))
    assert sorted(documented) == sorted(made)
