"""The statement of speech that another leans on and that a reader must see with it, or none that could be shown.

A statement that leans takes along the one before it in its text, or at the beginning of its text the question or the
last words of the other voice, as whole quotations. Where these lean too, they take along what they lean on, for a few
steps; a statement that leads to nothing is left out in favour of one that can be read alone.
"""

from memory_engine.compactors.extractive.agenda import TALK, Remark
from memory_engine.compactors.extractive.coverage import Place
from memory_engine.compactors.extractive.entries import Entry
from memory_engine.compactors.extractive.usage import InputReading
from memory_engine.language.leaning import brings_in, is_incomplete
from memory_engine.language.phrases import says_something

NOWHERE: Place = (-1, -1)
STEPS_MAX = 3
"""Maximum number of statements that one statement takes along."""
INCOMPLETE_WORDS_MAX = 12
"""Maximum words of the bare content of an answer; more words say what they are about."""


def remark_at(reading: InputReading, place: Place) -> Remark:
    """Return the statement at a place."""
    return reading.heard[place[0]].text.remarks[place[1]]


def leans_at(reading: InputReading, place: Place) -> bool:
    """Return True if the statement at a place cannot be read alone."""
    statement = remark_at(reading, place)
    if statement.head >= 0:
        return False  # it is shown with the words that announce it
    index, number = place
    leans = reading.heard[index].text.leaning[number]
    return leans or (number == 0 and _is_bare_answer(reading, place, statement))


def support_of(reading: InputReading, place: Place, steps: int = STEPS_MAX) -> Place | None:
    """Return the statement that the one at a place needs: `NOWHERE` if it is complete, `None` if nothing helps it."""
    if not leans_at(reading, place):
        return NOWHERE
    before = place
    for _ in range(steps):
        before = before_it(reading, before)
        if before == NOWHERE:
            return None
        found = remark_at(reading, before)
        if brings_in(found.text, reading.names) or found.asks:
            return before if support_of(reading, before, steps - 1) is not None else None
        if not leans_at(reading, before):
            return before
    return None


def before_it(reading: InputReading, place: Place) -> Place:
    """Return the place of the statement before, in the same text or else the last words of the entry before it."""
    index, number = place
    before = _last_telling(reading, index, number)
    if before != NOWHERE or index == 0 or reading.entries[index].kind not in TALK:
        return before
    asked = question_before(reading, index)
    if asked != NOWHERE and says_something(remark_at(reading, asked).said, reading.names):
        return asked
    if reading.entries[index - 1].kind not in TALK:
        return NOWHERE
    return _last_telling(reading, index - 1, len(reading.heard[index - 1].text.remarks))


def _last_telling(reading: InputReading, index: int, end: int) -> Place:
    remarks = reading.heard[index].text.remarks
    telling = (n for n in range(end - 1, -1, -1) if says_something(remarks[n].said, reading.names))
    return next(((index, number) for number in telling), NOWHERE)


def question_before(reading: InputReading, index: int) -> Place:
    """Return the place of the previous entry's last question, if another voice asked it."""
    entry = reading.entries[index]
    if index == 0 or entry.kind not in ("user", "assistant", "other"):
        return NOWHERE
    before = reading.entries[index - 1]
    if _voice(before) == _voice(entry) or before.kind not in TALK:
        return NOWHERE
    asked = [number for number, said in enumerate(reading.heard[index - 1].text.remarks) if said.asks]
    return (index - 1, asked[-1]) if asked else NOWHERE


def _voice(entry: Entry) -> tuple[str, str]:
    return entry.kind, entry.speaker


def _is_bare_answer(reading: InputReading, place: Place, statement: Remark) -> bool:
    """Return True for the bare content of an answer: a name, a time, a fragment."""
    if statement.asks or statement.words > INCOMPLETE_WORDS_MAX or question_before(reading, place[0]) == NOWHERE:
        return False
    return is_incomplete(statement.text)
