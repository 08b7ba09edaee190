"""Lists of words: one form for all data files."""

import tomllib
from pathlib import Path

import pytest

import memory_engine
from memory_engine.language.lists import content_of, data_file, entries, lists_of, plain_tables, word_lists

FILES = sorted(Path(memory_engine.__file__).parent.rglob("*.toml"))


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("\nat once\nat_once at\n", ("at", "once", "at once")),
        ("created__at sk__live__ a_*_b", ("created_at", "sk_live_", "a * b")),
        ("", ()),
    ],
)
def test_white_space_parts_entries(listed: str, expected: tuple[str, ...]) -> None:
    """An underscore in one stands for a blank, two for an underscore; each entry comes once, in order."""
    assert expected == entries(listed)


def test_a_file_is_read_as_lists_or_as_sets() -> None:
    """By the names of its lists."""
    lists = lists_of("memory_engine.language", "phrases.toml")
    assert "at least" in lists["bound"]
    assert {title: frozenset(listed) for title, listed in lists.items()} == word_lists(
        "memory_engine.language", "phrases.toml"
    )


def test_a_file_is_read_as_a_type() -> None:
    """Where it holds more than lists."""
    assert "title" in content_of("memory_engine.context", "headings.toml", dict[str, dict[str, str]])["en"]


def test_a_file_that_is_not_there_has_no_text() -> None:
    """The error names it."""
    with pytest.raises(FileNotFoundError, match=r"none\.toml"):
        data_file("memory_engine.language", "none.toml")


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_plain_file_is_read_as_a_toml_parser_reads_it(file: Path) -> None:
    """Most are plain; the parser reads the others."""
    text = file.read_text(encoding="utf-8")
    assert plain_tables(text) in (None, tomllib.loads(text))


def test_a_first_search_needs_no_toml_parser() -> None:
    """Its files are plain."""
    for package, name in (
        ("language", "words.toml"),
        ("language", "forms.toml"),
        ("language", "dates.toml"),
        ("recall", "words.toml"),
        ("recall", "lexicon.toml"),
    ):
        assert plain_tables(data_file(f"memory_engine.{package}", name))


@pytest.mark.parametrize(
    "text",
    [
        'a = "b\\n"\n',
        "a = 'b'\n",
        'a = ["b"]\n',
        "[[a]]\n",
        'a = "b"\na = "c"\n',
        'a = "b"\n[a]\n',
        "a = 1\n",
        'a = "b" # c\n',
    ],
)
def test_what_is_not_plain_is_left_to_the_parser(text: str) -> None:
    """Escapes, arrays, numbers, and mistakes."""
    assert plain_tables(text) is None
