"""Dates and relative times as they are written in English, German, Spanish and Chinese; dates in some others too."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_engine.language.dates import Day, Stretch, Table, all_names, full_names, rows
from memory_engine.language.dates_relative import named_days, read_dates, relative_days
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
        ("Mai oder Juni?", ()),
        ("mayo, sal y pan", ()),
        ("may I, and 3 may come", ()),
        ("5 years ago 2019", (Day(2019),)),
        ("Marco 2023, 1 marco", (Day(2023),)),
        ("the Mars 2020 rover", (Day(2020),)),
        ("Mardi Gras in Santo Domingo", ()),
        ("I set 5 alarms", ()),
        ("room 3. May I come in?", ()),
        ("07.05.2023", (Day(2023),)),
        ("am 32. Mai 2023", ()),
    ],
)
def test_a_word_that_may_be_another_is_not_taken_for_a_date(text: str, expected: tuple[Day, ...]) -> None:
    """A month alone is a date in English only; elsewhere it needs a preposition, a day or a year beside it."""
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


TODAY = date(2024, 6, 12)  # a Wednesday
ORDINARY = {
    "march": [
        "We {} on",
        "they {} to the sea every week",
        "a {} of ten miles",
        "{} on, then turn left",
        "the {} past us",
    ],
    "may": [
        "What {} I eat?",
        "{} I come in?",
        "it {} rain, and 3 {} come",
        "this {} hurt",
        "too early {} be bad, he said",
    ],
    "mar": ["What did the scratches {}?", "Costa del {} is far", "no {} that finish"],
    "august": ["an {} body of men", "the most {} of us all"],
    "jan": ["What did {} say?", "{} called, and {} wrote"],
    "sun": ["the {} is up", "in the {}", "5 {} hats"],
    "sat": ["she {} there", "where we last {}, on 3 chairs"],
    "second": ["wait a {}", "the {} of them", "{} to none"],
    "spring": ["a {} of water", "in the {} of life"],
    "fall": ["Did he {} down?", "we {} behind"],
    "mai": ["je n'ai {} ri"],
    "mär": ["eine {} von früher"],
    "mayo": ["pan con {}", "{} y sal", "la {} que sobra"],
    "ago": ["long {} in a house"],
    "周一": ["一{}次", "每{}次会"],
    "周日": ["一{}程", "每{}志"],
    "前天": ["目{}气很好"],
    "一月": ["十个{}饼".replace("{}", "月")],
}


@pytest.mark.parametrize(("word", "said"), [(word, said) for word, all_said in ORDINARY.items() for said in all_said])
def test_an_ordinary_word_never_becomes_a_date(word: str, said: str) -> None:
    """In lower case, and as the first word of a sentence."""
    texts = [said.format(*[word] * 3), f"Well then. {said.format(*[word] * 3)}"]
    if said.startswith("{}") and word.isascii():
        texts += [text.replace(word, word.capitalize(), 1) for text in texts]
    for text in texts:
        assert ((), ()) == read_dates(text, TODAY), text


IN_CONTEXT = {
    "en": ["in {}", "since {}", "until {}", "what came of {}?", "next {}", "before {} we left"],
    "de": ["im {}", "seit {}", "bis {}", "vom {} an", "nächsten {}"],
    "es": ["en {}", "desde {}", "hasta {}", "la factura de {}", "cada {}"],
    "fr": ["en {}", "depuis {}"],
    "nl": ["in {}", "sinds {}"],
}


@pytest.mark.parametrize(
    ("language", "said"), [(one, said) for one, all_said in IN_CONTEXT.items() for said in all_said]
)
def test_a_month_after_a_preposition_is_a_date(language: str, said: str) -> None:
    """All twelve, in lower case and in upper case, wherever the text begins and ends."""
    for number, name in enumerate(full_names("months", language), 1):
        cases = [name, name.capitalize()] if name != "mars" else [name]
        for text in (said.format(one) for one in cases):
            assert (Day(month=number),) == named_days(text), text
            assert (Day(month=number),) == named_days(f"Tell me, {text}, ok"), text


@pytest.mark.parametrize("month", ["march", "may", "mar", "aug", "jan"])
@pytest.mark.parametrize(
    "said",
    ["on 5 {}", "the 5th of {}", "5th {}", "{} 5?", "{} 5th", "on {} 5 we left", "what was on the 5th of {} there"],
)
def test_a_day_beside_a_word_makes_a_month_of_it(month: str, said: str) -> None:
    """In lower case, where only the number says it, and in upper case."""
    for name in (month, month.capitalize()):
        (day,) = named_days(said.format(name))
        assert isinstance(day, Day)
        assert (5, ["jan", "", "mar", "", "may", "", "", "aug"].index(month[:3]) + 1) == (day.day, day.month)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("last march", (date(2024, 3, 1), date(2024, 3, 31))),
        ("last December", (date(2023, 12, 1), date(2023, 12, 31))),
        ("last June", (date(2023, 6, 1), date(2023, 6, 30))),
        ("last weekend", (date(2024, 6, 8), date(2024, 6, 9))),
        ("this weekend", (date(2024, 6, 15), date(2024, 6, 16))),
        ("two weekends ago", (date(2024, 6, 1), date(2024, 6, 2))),
        ("the day before yesterday", (date(2024, 6, 10),) * 2),
        ("Tuesday last week", (date(2024, 6, 4),) * 2),
        ("Friday of last week", (date(2024, 6, 7),) * 2),
        ("last week's Monday", (date(2024, 6, 3),) * 2),
        ("last Wednesday", (date(2024, 6, 5),) * 2),
        ("this Monday", (date(2024, 6, 10),) * 2),
        ("last summer", (date(2023, 6, 1), date(2023, 8, 31))),
        ("last winter", (date(2023, 12, 1), date(2024, 2, 29))),
        ("a couple of days ago", (date(2024, 6, 10),) * 2),
        ("vorgestern", (date(2024, 6, 10),) * 2),
        ("gestern", (date(2024, 6, 11),) * 2),
        ("vor 12 Tagen", (date(2024, 5, 31),) * 2),
        ("vor zwei Wochen", (date(2024, 5, 26), date(2024, 6, 1))),
        ("vor einem Monat", (date(2024, 4, 28), date(2024, 5, 28))),
        ("letztes Wochenende", (date(2024, 6, 8), date(2024, 6, 9))),
        ("letzte Woche", (date(2024, 6, 3), date(2024, 6, 9))),
        ("diesen Monat", (date(2024, 6, 1), TODAY)),
        ("am Dienstag letzter Woche", (date(2024, 6, 4),) * 2),
        ("letzten Freitag", (date(2024, 6, 7),) * 2),
        ("letzten März", (date(2024, 3, 1), date(2024, 3, 31))),
        ("anteayer", (date(2024, 6, 10),) * 2),
        ("antes de ayer", (date(2024, 6, 10),) * 2),
        ("hace tres días", (date(2024, 6, 9),) * 2),
        ("hace 2 semanas", (date(2024, 5, 26), date(2024, 6, 1))),
        ("el fin de semana pasado", (date(2024, 6, 8), date(2024, 6, 9))),
        ("este fin de semana", (date(2024, 6, 15), date(2024, 6, 16))),
        ("el martes de la semana pasada", (date(2024, 6, 4),) * 2),
        ("el año pasado", (date(2023, 1, 1), date(2023, 12, 31))),
        ("昨天", (date(2024, 6, 11),) * 2),
        ("前天", (date(2024, 6, 10),) * 2),
        ("三天前", (date(2024, 6, 9),) * 2),
        ("十二天前", (date(2024, 5, 31),) * 2),
        ("两周前", (date(2024, 5, 26), date(2024, 6, 1))),
        ("一个月前", (date(2024, 4, 28), date(2024, 5, 28))),
        ("上周末", (date(2024, 6, 8), date(2024, 6, 9))),
        ("这个周末", (date(2024, 6, 15), date(2024, 6, 16))),
        ("上周二", (date(2024, 6, 4),) * 2),
        ("上个月", (date(2024, 5, 1), date(2024, 5, 31))),
        ("去年", (date(2023, 1, 1), date(2023, 12, 31))),
    ],
)
def test_a_relative_time_is_resolved_once(text: str, expected: tuple[date, date]) -> None:
    """As wide as it is vague, and no weekday or month in it is read a second time."""
    for said in (text, text.upper(), f"({text})"):
        assert ((), (expected,)) == read_dates(said, TODAY)
    assert () == read_dates(text)[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("early May", Stretch(month=5, first=1, last=10)),
        ("in mid-may", Stretch(month=5, first=11, last=20)),
        ("in late march", Stretch(month=3, first=21, last=31)),
        ("the week of 5 May", Stretch(month=5, day=5, unit="week")),
        ("Anfang Mai", Stretch(month=5, first=1, last=10)),
        ("Mitte Mai 2023", Stretch(month=5, year=2023, first=11, last=20)),
        ("Ende Mai", Stretch(month=5, first=21, last=31)),
        ("in der Woche vom 5. Mai", Stretch(month=5, day=5, unit="week")),
        ("a principios de mayo", Stretch(month=5, first=1, last=10)),
        ("a mediados de mayo de 2023", Stretch(month=5, year=2023, first=11, last=20)),
        ("a finales de mayo", Stretch(month=5, first=21, last=31)),
        ("la semana del 5 de mayo", Stretch(month=5, day=5, unit="week")),
        ("五月初", Stretch(month=5, first=1, last=10)),
        ("2023年五月中旬", Stretch(month=5, year=2023, first=11, last=20)),
        ("五月底", Stretch(month=5, first=21, last=31)),
        ("5月5日那周", Stretch(month=5, day=5, unit="week")),
        ("spring 2024", Stretch(month=3, year=2024, months=3)),
        ("im Frühling 2024", Stretch(month=3, year=2024, months=3)),
        ("el verano de 2023", Stretch(month=6, year=2023, months=3)),
        ("2024年秋天", Stretch(month=9, year=2024, months=3)),
        ("2023年5月7日", MAY_7),
        ("五月七号", Day(0, 5, 7)),
        ("十二月二十三日", Day(0, 12, 23)),
        ("2023年", Day(2023)),
        ("每周一", Day(weekday=1)),
    ],
)
def test_parts_of_months_weeks_and_seasons_are_read_in_each_language(text: str, expected: Day | Stretch) -> None:
    """And nothing else in the same words."""
    assert ((expected,), ()) == read_dates(text, TODAY)


def test_a_season_has_three_months_and_a_winter_two_years() -> None:
    """Both winters that a year has a part in are meant."""
    (spring,) = named_days("spring 2024")
    assert (date(2024, 3, 1), date(2024, 5, 31)) == spring.stretch(2000)
    winters = [one.stretch(2000) for one in named_days("winter 2024")]
    assert [(date(2023, 12, 1), date(2024, 2, 29)), (date(2024, 12, 1), date(2025, 2, 28))] == winters


@given(
    st.dates(date(1, 1, 1), date.max), st.integers(0, 999), st.sampled_from(["day", "week", "weekend", "month", "year"])
)
def test_every_relative_time_has_days_that_a_calendar_has(today: date, count: int, unit: str) -> None:
    """Or none; it ends before it is asked about, and does not end before it begins."""
    text = f"{count} {unit}s ago, last {unit}, last Sunday, last winter, last May, 去年, 上周末, vorgestern"
    for first, last in relative_days(text, today):
        assert first <= last <= today + timedelta(days=183)


def test_a_language_of_relative_days_has_weekdays_and_months() -> None:
    """One with "yesterday" alone would make every question with that word raise: the same pattern reads all three."""
    spaced = rows("near").keys() - {"zh"}
    assert spaced <= rows("weekdays").keys()
    assert spaced <= rows("months").keys()
