"""Speech as drafts: the statements of an entry, each word for word, weighed by what they say.

The weights of statements were read off annotated conversations and hold for any
language: questions and exclamations carry next to nothing, the answer after a
question much, very short sentences little, first mentions more.
"""

from memory_engine.compactors.extractive.agenda import DONE_BOX, OPEN_BOX
from memory_engine.compactors.extractive.coverage import LineDraft, LinePiece, Place, Terms
from memory_engine.compactors.extractive.entries import Entry, EntryKind, Section
from memory_engine.compactors.extractive.phrases import is_courteous, points_back, says_something, says_yes_or_no
from memory_engine.compactors.extractive.sentences import Statement, clean, statements, without_opening, words
from memory_engine.compactors.extractive.usage import FIRST_MENTION_BONUS, InputReading
from memory_engine.compactors.extractive.words import VALUE_MARK, terms_of
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
OPEN_WORTH = 6.0
"""What an open question or promise is worth as such, however often its words were said."""
TODO_WORTH = 24.0
ONLY_SAID_FACTOR = 2.0
CHOICE_SHARE = 0.5
"""A value that the user repeats is a choice: it says something that the list it was chosen from does not."""
NOWHERE: Place = (-1, -1)
FULL_SENTENCE_WORDS = 8
SHORTNESS_EXPONENT = 0.5
FEW_WORDS = 3
FEW_WORDS_FACTOR = 0.2
SHORT_ANSWER_WORDS = 10
SHORT_REPLY_WORDS = 3
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
WITHOUT_TOOLS_FACTOR = 2.0
"""Where no tool's result holds what an agent tells, its words are the only place for it."""
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
    asked_at = _question_before(reading, index)
    told: dict[Section, list[LinePiece]] = {}
    for number, statement in enumerate(statements(entry.text)):
        answers = number == 0 and _needs_its_question(reading, asked_at, statement)
        text = without_opening(statement.text, reading.names) if number == 0 else statement.text
        terms = _terms(reading, index, statement, text, asked=asked_at != NOWHERE)
        tells = answers or says_something(statement.text, reading.names)
        if not (terms and tells and reading.agenda.is_current(index, statement)):
            continue
        section = _section(reading, *asked_at) if answers else _section(reading, index, number)
        if section == "next_steps" and reading.has_agent:
            terms = (*terms, (f"next {index} {number}", TODO_WORTH if _is_todo(entry, statement) else OPEN_WORTH))
        needs = asked_at if answers else (index, _needed(reading, statement, number))
        before = None if entry.kind in LISTS else statement.before
        told.setdefault(section, []).append(LinePiece(text, terms, -1, (index, number), before, needs))
    speaker = clean(entry.speaker) or SPEAKERS.get(entry.kind, "")
    prefix = f"{speaker}: " if speaker else ""
    day = day_of(entry)
    return [LineDraft(section, (entry.id,), tuple(pieces), day, prefix) for section, pieces in told.items()]


def _terms(reading: InputReading, index: int, statement: Statement, text: str, *, asked: bool) -> Terms:
    """What the statement covers, and the worth of it by who says it and why."""
    factor = _factor(reading, index, statement)
    if asked:
        factor *= ANSWER_FACTOR
    elif statement.words < FEW_WORDS:
        factor *= FEW_WORDS_FACTOR
    terms = speech_terms(reading, index, text, factor)
    kind = reading.entries[index].kind
    if kind == "assistant":
        return _values_raised(reading, terms)
    if kind == "user" and reading.has_agent:
        terms += tuple((f"user {term}", CHOICE_SHARE * weight) for term, weight in terms if term[0] == VALUE_MARK)
    return terms


def _values_raised(reading: InputReading, terms: Terms) -> Terms:
    """More for the values that stand in no result: an agent's words are the only place for them."""
    return tuple((term, w * ONLY_SAID_FACTOR if reading.usage.is_only_said(term) else w) for term, w in terms)


def _is_todo(entry: Entry, statement: Statement) -> bool:
    return entry.kind == "todo" or statement.text.startswith(OPEN_BOX)


def _needed(reading: InputReading, statement: Statement, number: int) -> int:
    """The number of the statement in the same text without which this one must not stand, -1 where there is none."""
    if statement.head >= 0 or number == 0 or statement.before is None:
        return statement.head
    return number - 1 if reading.has_agent and points_back(statement.text) else -1


def _needs_its_question(reading: InputReading, asked_at: Place, statement: Statement) -> bool:
    """Whether an answer is so short that it means nothing without what was asked."""
    if asked_at == NOWHERE:
        return False
    question = statements(reading.entries[asked_at[0]].text)[asked_at[1]]
    if len(question.text) > QUESTION_CHARS_MAX or not says_something(question.text, reading.names):
        return False
    is_answer = reading.has_agent or says_yes_or_no(statement.text)
    words_max = SHORT_ANSWER_WORDS if is_answer else SHORT_REPLY_WORDS
    return statement.words <= words_max


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


def _question_before(reading: InputReading, index: int) -> Place:
    """The last question of the entry before, where another voice asked it."""
    entry = reading.entries[index]
    if index == 0 or entry.kind not in ("user", "assistant", "other"):
        return NOWHERE
    before = reading.entries[index - 1]
    same_voice = (before.kind, before.speaker) == (entry.kind, entry.speaker)
    if same_voice or before.kind not in ("user", "assistant", "question", "other"):
        return NOWHERE
    asked = [number for number, said in enumerate(statements(before.text)) if said.asks]
    return (index - 1, asked[-1]) if asked else NOWHERE


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
        if entry.kind == "assistant" and not reading.actions:
            factor *= WITHOUT_TOOLS_FACTOR
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
