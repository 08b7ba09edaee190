"""Lists of words: one form for all data files."""

import pytest

from memory_engine.language.lists import content_of, data_file, entries, lists_of, word_lists


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
