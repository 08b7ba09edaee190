"""Dates as they are written in English, German, Spanish, French and Dutch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_engine.language.dates import Day, Table, all_names, full_names, named_days
from memory_engine.language.text import fold_case

LANGUAGES = ("en", "de", "es", "fr", "nl")
MAY_7 = Day(2023, 5, 7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on 7th May", Day(0, 5, 7)),
        ("on 7 May 2023", MAY_7),
        ("on May 7th, 2023", MAY_7),
        ("on 5 Dec. 2023", Day(2023, 12, 5)),
        ("7 may 2023", MAY_7),
        ("am 7. Mai 2023", MAY_7),
        ("am 7. MAI 2023", MAY_7),
        ("am 7.Mai", Day(0, 5, 7)),
        ("am 3. Ma\u0308rz", Day(0, 3, 3)),
        ("am 14. Jänner 2024", Day(2024, 1, 14)),
        ("am 7. Okt. 2023", Day(2023, 10, 7)),
        ("im Mai 2023", Day(2023, 5)),
        ("el 7 de mayo de 2023", MAY_7),
        ("el 7 de mayo del 2023", MAY_7),
        ("el 1º de mayo", Day(0, 5, 1)),
        ("7 ago. 2023", Day(2023, 8, 7)),
        ("en mayo de 2023", Day(2023, 5)),
        ("le 1er mai 2023", Day(2023, 5, 1)),
        ("le 7 août", Day(0, 8, 7)),
        ("le 7 AOUT 2023", Day(2023, 8, 7)),
        ("le 7 déc. 2022", Day(2022, 12, 7)),
        ("en mars 2023", Day(2023, 3)),
        ("le 7 Mars 2023", Day(2023, 3, 7)),
        ("op 7 mei 2023", MAY_7),
        ("de 7e mei", Day(0, 5, 7)),
        ("op 1ste mrt. 2023", Day(2023, 3, 1)),
        ("in mei 2023", Day(2023, 5)),
        ("\uff17 Mai \uff12\uff10\uff12\uff13", MAY_7),
        ("2023-05-07", MAY_7),
        ("el viernes", Day(weekday=5)),
        ("montags", Day(weekday=1)),
    ],
)
def test_a_written_date_is_read_as_a_whole(text: str, expected: Day) -> None:
    """With full and short names, ordinals, and with or without accents and a year."""
    assert (expected,) == named_days(f"{text}, ok?")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Was war im Mai?", ()),
        ("¿qué pasó en mayo?", ()),
        ("may I, and 3 may come", ()),
        ("5 years ago 2019", (Day(2019),)),
        ("Marco 2023, 1 marco", (Day(2023),)),
        ("the Mars 2020 rover", (Day(2020),)),
        ("Mardi Gras in Santo Domingo", ()),
        ("I set 5 alarms", ()),
        ("room 3. May I come in?", (Day(month=5),)),
        ("07.05.2023", (Day(2023),)),
        ("am 32. Mai 2023", ()),
    ],
)
def test_a_word_that_may_be_another_is_not_taken_for_a_date(text: str, expected: tuple[Day, ...]) -> None:
    """A month alone is a date in English only; elsewhere it needs a day or a year beside it."""
    assert expected == named_days(text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_name_of_the_lists_is_read(language: str) -> None:
    """Each short form belongs to a month of its language, in any case."""
    full = full_names("months", language)
    assert 12 == len(full)
    for number, name in enumerate(full, 1):
        assert {Day(2023, number, 7)} == {*named_days(f"7 {name} 2023"), *named_days(f"7 {name.upper()} 2023")}
    months = {day.month for name in all_names("months", language) for day in named_days(f"7 {name} 2023")}
    assert {*range(1, 13)} == months
    days = [named_days(name) for name in full_names("weekdays", language)]
    assert [(Day(weekday=n),) for n in range(1, 8)] == days


@pytest.mark.parametrize("table", ["months", "weekdays"])
def test_no_name_has_two_numbers(table: Table) -> None:
    """What is one month in a language is no other in the next."""
    size = 12 if table == "months" else 7
    numbers: dict[str, set[int]] = {}
    for n, name in enumerate(full_names(table)):
        numbers.setdefault(fold_case(name), set()).add(n % size)
    assert {1} == set(map(len, numbers.values()))


@pytest.mark.parametrize(
    "odd", ["7" * 10_000, "7. " * 5_000, "\u0667 Mai", "7\u00a0Mai 2023 \U0001d7da", "\ufdfa" * 500]
)
def test_odd_signs_hide_no_date(odd: str) -> None:
    """Nor does a number of ten thousand digits fail."""
    assert MAY_7 in named_days(f"{odd} am 7. Mai 2023")


@given(st.text(max_size=40), st.sampled_from(all_names("months")), st.text(max_size=40))
def test_whatever_stands_around_a_month_is_read(before: str, month: str, after: str) -> None:
    """Every day read is one that a calendar could have."""
    for day in named_days(f"{before}7 {month} {after}"):
        assert isinstance(day, Day)
        assert day.month <= 12
        assert day.day <= 31
