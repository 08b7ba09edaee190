"""Nothing that was said changes: each line of the embedded compactor is a part of one source, word for word."""

# ruff: noqa: RUF001 - texts of several languages carry their own punctuation

import re
import tomllib
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_engine.compaction.base import CompactionContext
from memory_engine.compactors import EmbeddedCompactor
from memory_engine.compactors.extractive import Entry, extract
from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.language.phrases import phrase_list
from memory_engine.language.sentences import clean, statements, without_opening

AT_RISK = Path(__file__).with_name("meanings_at_risk.toml")
SPEAKERS = ("Mira", "Jonas")
BUDGETS = (30, 60, 120, 250, 500, 1_000)
CHATTER = {
    "en": "Wow, that sounds great!",
    "de": "Oh, das klingt toll!",
    "es": "¡Qué bien, me alegro!",
    "fr": "Super, c'est génial !",
    "it": "Bello, che piacere!",
    "pt": "Que bom, parabéns!",
    "zh": "哈哈，太好了！",
    "ja": "わあ、すごいですね！",
    "ru": "Ой, как здорово!",
    "ar": "رائع جدا!",
}


class Said(NamedTuple):
    """A statement, and the words of it on which its meaning hangs."""

    text: str
    at_risk: tuple[str, ...]


def said_in(language: str) -> list[Said]:
    """The statements of a language."""
    table = tomllib.loads(AT_RISK.read_text("utf-8"))
    parts = (line.split(" | ") for line in table[language].strip().splitlines())
    return [Said(text.replace("\\n", "\n").strip(), tuple(risk.strip().split("; "))) for _, text, risk in parts]


LANGUAGES = tuple(tomllib.loads(AT_RISK.read_text("utf-8")))


def conversation(language: str) -> list[Chunk]:
    """Two people: chatter and two statements a message, then two messages that are chatter alone."""
    said, chatter = said_in(language), CHATTER[language]
    glue = "" if language in ("zh", "ja") else " "
    texts = [
        f"{chatter}{glue}{first.text}{glue}{second.text}" for first, second in zip(said[::2], said[1::2], strict=False)
    ]
    texts += [said[-1].text, chatter, chatter]
    return [
        Chunk(id=f"{n}.0", type=ChunkType.USER_MESSAGE, content=text, label=speaker)
        for n, (text, speaker) in enumerate(zip(texts, cycle(SPEAKERS), strict=False), start=1)
    ]


async def told(chunks: list[Chunk], budget: int) -> list[tuple[str, Chunk]]:
    """What the lines of a summary say, without who said it, each with its source."""
    by_id = {chunk.id: chunk for chunk in chunks}
    result = await EmbeddedCompactor().compact(chunks, CompactionContext(thread_id="t", budget_tokens=budget))
    found = []
    for line in result.lines:
        (source,) = (by_id[source] for source in line.sources)
        assert line.text.startswith(f"{source.label}: ")
        found.append((line.text.removeprefix(f"{source.label}: "), source))
    return found


def test_two_hundred_meanings_are_at_risk_in_eight_languages() -> None:
    """The set is as large as it says, and every word at risk stands in its statement."""
    assert 200 <= sum(len(said_in(language)) for language in LANGUAGES)
    assert 8 <= len(LANGUAGES)
    assert [] == [
        (said, risk) for lang in LANGUAGES for said in said_in(lang) for risk in said.at_risk if risk not in said.text
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_meaning_at_risk_is_parted(language: str) -> None:
    """What hangs together is one statement, be it a sentence or several."""
    assert [] == [said.text for said in said_in(language) if len(statements(said.text)) != 1]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("language", LANGUAGES)
async def test_what_is_kept_says_what_was_said(language: str, budget: int) -> None:
    """Under any budget a line is a run of whole statements, and no word at risk of theirs is missing."""
    known = [clean(said.text) for said in said_in(language)]
    risks = dict(zip(known, (said.at_risk for said in said_in(language)), strict=True))
    for text, source in await told(conversation(language), budget):
        assert text in clean(source.text)
        rest = text
        for chatter in (CHATTER[language], re.split(r"[,、\uff0c]\s*", CHATTER[language])[-1]):
            rest = rest.replace(chatter, "")
        kept = [statement for statement in known if statement in rest]
        for statement in kept:
            assert all(clean(risk) in text for risk in risks[statement])
            rest = rest.replace(statement, "", 1)
        assert "" == rest.strip()


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_wide_budget_keeps_every_meaning(language: str) -> None:
    """What fits is kept: no statement at risk is lost where there is room for all."""
    kept = "\n".join(text for text, _ in await told(conversation(language), 10_000))
    assert [] == [said.text for said in said_in(language) if clean(said.text) not in kept]


PIECES = st.one_of(
    st.sampled_from([said.text for language in LANGUAGES for said in said_in(language)]),
    st.sampled_from(
        [*CHATTER.values(), "\n", "\n\n", "- item 7\n", "1. first\n", "**bold** `x__y__z`", "> quoted\n", "!?", "…"]
    ),
    st.sampled_from(["Hey Mira, look", "Thanks, Jonas!", "Dr. Li", '"yes', "a: b", "Hi! ", "# Head\n", "2. Mai"]),
    st.text(st.characters(), max_size=40),
)
MESSAGES = st.lists(PIECES, max_size=8).map(" ".join)


def is_part(text: str, source: str) -> bool:
    """Whether a line's text is a part of its source; an excerpt may say at its ends that it is one."""
    return text in source or text.removeprefix("… ").removesuffix(" …") in source


@given(st.lists(st.tuples(st.sampled_from(SPEAKERS), MESSAGES), max_size=6), st.floats(0, 300))
@settings(max_examples=150, deadline=None)
def test_every_line_is_a_part_of_its_source(said: list[tuple[str, str]], budget: float) -> None:
    """Any text at all: behind the speaker stands a part of the source without a gap, white space apart."""
    entries = [Entry(id=str(n), kind="user", speaker=who, text=text) for n, (who, text) in enumerate(said)]
    for line in extract(entries, budget):
        (source,) = line.sources
        who, text = said[int(source)]
        assert line.text.startswith(f"{who}: ")
        assert is_part(line.text.removeprefix(f"{who}: "), clean(text))


@given(MESSAGES)
@settings(max_examples=100, deadline=None)
def test_only_a_greeting_or_filler_at_the_beginning_is_left_out(text: str) -> None:
    """What goes missing of a statement is its beginning, made of entries of the closed list and of names called."""
    names = frozenset(name.casefold() for name in SPEAKERS)
    allowed = {
        word for name in ("openings", "openings_unspaced") for entry in phrase_list(name) for word in entry.split()
    }
    for statement in statements(text):
        rest = without_opening(statement.text, names)
        assert statement.text.endswith(rest)
        left_out = re.findall(r"\w+", statement.text.removesuffix(rest))
        assert {word.casefold() for word in left_out} <= allowed | names


@given(st.text(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_statements_lose_nothing_of_a_text(text: str, lines: bool) -> None:
    """Statements in order are the whole text, but for white space and the signs that open an item."""
    kept = "".join(statement.text for statement in statements(text, lines=lines))
    assert re.sub(r"[\s\-*•#]", "", clean(text)) == re.sub(r"[\s\-*•#]", "", kept)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hey Mira, the code is 4482.", "the code is 4482."),
        ("Thanks, Jonas! I moved to Bern.", "I moved to Bern."),
        ("By the way, I moved to Bern.", "I moved to Bern."),
        ("Hey, Jude is my favourite song.", "Hey, Jude is my favourite song."),
        ("Yes, I paid.", "Yes, I paid."),
        ("No, thanks.", "No, thanks."),
        ("Well, I never signed it.", "I never signed it."),
        ("Thanks!", "Thanks!"),
        ("Hi Peter, it is done.", "Hi Peter, it is done."),
        ("对了，密码是4482。", "密码是4482。"),
    ],
)
def test_a_greeting_goes_and_an_answer_stays(text: str, expected: str) -> None:
    """Greetings, fillers and the names of speakers go, and only before a comma or an exclamation mark."""
    assert expected == without_opening(text, frozenset({"mira", "jonas"}))
