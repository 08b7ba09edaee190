"""Speech as drafts: the statements of an entry, each word for word, weighed by what they say.

The weights of statements were read off annotated conversations and hold for any
language: questions and exclamations carry next to nothing, the answer after a
question much, very short sentences little, first mentions more.
"""

from memory_engine.compactors.extractive.agenda import DONE_BOX
from memory_engine.compactors.extractive.coverage import LineDraft, LinePiece, Place, Terms
from memory_engine.compactors.extractive.entries import Entry, EntryKind, Section
from memory_engine.compactors.extractive.phrases import is_courteous
from memory_engine.compactors.extractive.sentences import Statement, clean, statements, without_opening, words
from memory_engine.compactors.extractive.usage import FIRST_MENTION_BONUS, InputReading
from memory_engine.compactors.extractive.words import terms_of
from memory_engine.core.lazy import regex
from memory_engine.core.text import is_unspaced

ANNOTATION = regex(r"\[\w{1,20}: ")
ISO_DAY = regex(r"\d{4}-\d{2}-\d{2}")
DAY_CHARS_MAX = 32
QUESTION_FACTOR = 0.15
CRY_FACTOR = 0.75
ANSWER_FACTOR = 1.6
ANNOTATION_FACTOR = 0.5
REPETITION_FACTOR = 0.1
NAME_FACTOR = 2.0
COURTESY_FACTOR = 0.25
LAST_EXCHANGE_FACTOR = 2.0
FULL_SENTENCE_WORDS = 8
SHORTNESS_EXPONENT = 0.5
FEW_WORDS = 3
FEW_WORDS_FACTOR = 0.2
SHORT_ANSWER_WORDS = 6
QUESTION_CHARS_MAX = 200
KIND_FACTORS: dict[EntryKind, float] = {
    "user": 1.8,
    "task": 2.0,
    "todo": 5.0,
    "question": 1.5,
    "assistant": 0.4,
    "thinking": 0.5,
    "system": 0.4,
}
SPEAKERS: dict[EntryKind, str] = {
    "user": "User",
    "assistant": "Assistant",
    "thinking": "Thought",
    "task": "Task",
    "question": "Question",
    "system": "System",
}
LISTS: frozenset[EntryKind] = frozenset(("todo", "summary"))
"""Entries whose statements are items: each stands in a line of its own."""


def speech_drafts(reading: InputReading, index: int) -> list[LineDraft]:
    """The lines that entry `index` could become: one draft for each section."""
    entry = reading.entries[index]
    asked_at, is_short = _question_before(reading, index)
    told: dict[Section, list[LinePiece]] = {}
    for number, statement in enumerate(statements(entry.text)):
        factor = _factor(reading, index, statement)
        if asked_at != (-1, -1):
            factor *= ANSWER_FACTOR
        elif statement.words < FEW_WORDS:
            factor *= FEW_WORDS_FACTOR
        text = without_opening(statement.text, reading.names) if number == 0 else statement.text
        terms = speech_terms(reading, index, text, factor)
        if not terms or not reading.agenda.is_current(index, statement):
            continue
        needs = (index, statement.head) if statement.head >= 0 else asked_at if is_short else (-1, -1)
        before = None if entry.kind in LISTS else statement.before
        section = _section(reading, *asked_at) if is_short else _section(reading, index, number)
        told.setdefault(section, []).append(LinePiece(text, terms, -1, (index, number), before, needs))
    speaker = clean(entry.speaker) or SPEAKERS.get(entry.kind, "")
    prefix = f"{speaker}: " if speaker else ""
    day = day_of(entry)
    return [LineDraft(section, (entry.id,), tuple(pieces), day, prefix) for section, pieces in told.items()]


def day_of(entry: Entry) -> str:
    """The day of an ISO time, or the date text as it is."""
    at = clean(entry.at[:DAY_CHARS_MAX])
    return at[:10] if ISO_DAY.match(at) else at


def speech_terms(reading: InputReading, index: int, text: str, factor: float) -> Terms:
    """The terms of a text said at `index`, each with the worth of covering it."""
    weights: dict[str, float] = {}
    for place, match in enumerate(words(text)):
        word = match.group()
        named = place > 0 and word[0].isupper()
        for term in terms_of(word):
            weight = factor * reading.usage.word_weight(word if not is_unspaced(word) else term, term)
            if named:
                weight *= NAME_FACTOR
            if is_courteous(term if is_unspaced(word) else word):
                weight *= COURTESY_FACTOR
            if reading.usage.is_first(term, index):
                weight *= FIRST_MENTION_BONUS
            if weight > weights.get(term, 0.0):
                weights[term] = weight
    return tuple(weights.items())


def _question_before(reading: InputReading, index: int) -> tuple[Place, bool]:
    """The question that the entry follows, and whether the entry is so short that it means nothing without it."""
    nowhere = (-1, -1)
    entry = reading.entries[index]
    if index == 0 or entry.kind not in ("user", "assistant", "other"):
        return nowhere, False
    before = reading.entries[index - 1]
    same_voice = (before.kind, before.speaker) == (entry.kind, entry.speaker)
    if same_voice or before.kind not in ("user", "assistant", "question", "other"):
        return nowhere, False
    asked = [(number, said) for number, said in enumerate(statements(before.text)) if said.asks]
    if not asked:
        return nowhere, False
    number, question = asked[-1]
    is_short = sum(said.words for said in statements(entry.text)) <= SHORT_ANSWER_WORDS
    return (index - 1, number), is_short and len(question.text) <= QUESTION_CHARS_MAX


def _factor(reading: InputReading, index: int, statement: Statement) -> float:
    """The weight of a statement of this kind, as a multiple of the worth of its terms."""
    entry = reading.entries[index]
    factor: float = min(1.0, statement.words / FULL_SENTENCE_WORDS) ** SHORTNESS_EXPONENT
    if statement.asks and not reading.agenda.is_open(index):
        factor *= QUESTION_FACTOR
    if statement.exclaims:
        factor *= CRY_FACTOR
    if ANNOTATION.match(statement.text):
        factor *= ANNOTATION_FACTOR
    if statement.text in reading.seen:
        factor *= REPETITION_FACTOR
    reading.seen.add(statement.text)
    if reading.has_agent:
        factor *= KIND_FACTORS.get(entry.kind, 1.0)
        if index in reading.closing:
            factor *= LAST_EXCHANGE_FACTOR
    if entry.kind == "todo" and index != reading.last_todo:
        factor *= REPETITION_FACTOR
    return factor


def _section(reading: InputReading, index: int, number: int) -> Section:
    """Under which heading a reader looks for a statement of the entry at `index`."""
    entry = reading.entries[index]
    statement = statements(entry.text)[number]
    if statement.text.startswith(DONE_BOX):
        return "completed_actions"
    if reading.agenda.is_next(index, statement):
        return "next_steps"
    if entry.kind == "error":
        return "attempted_approaches"
    if index in reading.closing:
        return "current_state"
    return "key_information"
