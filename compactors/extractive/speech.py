"""Speech as drafts: the statements of an entry, each word for word, weighed by what they say.

The weights of statements were read off annotated conversations and hold for any
language: questions and exclamations carry next to nothing, the answer after a
question much, very short sentences little, first mentions more.
"""

from collections.abc import Sequence
from itertools import chain, pairwise

from memory_engine.compactors.extractive.agenda import DONE_BOX, OPEN_BOX, Remark
from memory_engine.compactors.extractive.coverage import NO_TERMS, LaterTerms, LineDraft, LinePiece, Place, Terms
from memory_engine.compactors.extractive.entries import Entry, EntryKind, Section
from memory_engine.compactors.extractive.leaning import NOWHERE, question_before, remark_at, support_of
from memory_engine.compactors.extractive.usage import FENCE, FIRST_MENTION_BONUS, InputReading
from memory_engine.compactors.extractive.words import VALUE_MARK, is_specific
from memory_engine.core.lazy import regex
from memory_engine.core.sections import ASKED, DECIDED, SAID
from memory_engine.language.leaning import tells_of_speaker
from memory_engine.language.phrases import begins, phrase_list, points_back, says_something, says_yes_or_no
from memory_engine.language.sentences import GAP, clean, without_opening, words

ANNOTATION = regex(r"\[\w{1,20}: ")
ANNOUNCING = (":", "\uff1a")
QUESTION_FACTOR = 0.15
CRY_FACTOR = 0.75
OF_SELF_FACTOR, OF_OTHER_FACTOR = 1.5, 0.5
"""Between people: statements about themselves are news; the other person knows statements about that person."""
ANSWER_FACTOR = 1.6
ANNOTATION_FACTOR = 0.5
REPETITION_FACTOR = 0.1
LAST_EXCHANGE_FACTOR = 2.0
OPEN_WORTH = 6.0
"""Worth of an open question or promise in itself, however often its words were said."""
TODO_WORTH = 24.0
ONLY_SAID_FACTOR = 2.0
CHOICE_SHARE = 0.5
"""A value that the user repeats is a choice: it says something that the list it was chosen from does not."""
ALIKE_MIN = 16
ALIKE_EXPONENT = 0.5
"""Exponent for statements that differ only in names and values: one of many is less likely to be needed."""
ENTRIES_MIN = 200
"""With fewer entries than this, every statement is weighed at once: computing bounds does not pay."""
FULL_SENTENCE_WORDS = 8
SHORTNESS_EXPONENT = 0.5
FEW_WORDS = 3
FEW_WORDS_FACTOR = 0.2
SHORT_ANSWER_WORDS = 10
SHORT_REPLY_WORDS = 3
QUESTION_CHARS_MAX = 200
QUOTED_CHARS_MAX = (QUESTION_CHARS_MAX, 300)
"""Maximum characters quoted behind an answer: of one statement, and of several."""
KIND_FACTORS: dict[EntryKind, float] = {
    "user": 1.8,
    "task": 2.0,
    "todo": 5.0,
    "question": 1.5,
    "assistant": 0.4,
    "thinking": 0.5,
    "system": 0.4,
}
NARRATION_FACTOR = 0.4
NARRATION_WORDS_MAX = 8
"""Maximum words of an agent's announcement of its call; so few without a value of their own add nothing."""
WITH_WORK_FACTOR = 3.0
"""Factor for people's words where an agent works on files and commands: they say little, and all of it counts."""
WITHOUT_TOOLS_FACTOR = 2.0
"""Factor for an agent's words where no tool result holds what they say."""
SPEAKERS: dict[EntryKind, str] = {
    "user": "User",
    "assistant": "Assistant",
    "thinking": "Thought",
    "task": "Task",
    "question": "Question",
    "system": "System",
}
ANSWER = "{answer} (← {question})"
_ALIKE = {SAID: (SAID, ASKED), ASKED: (SAID, ASKED)}
LISTS: frozenset[EntryKind] = frozenset(("todo", "summary"))
"""Entries whose statements are items, each on its own line."""


def speech_drafts(reading: InputReading, index: int) -> list[LineDraft]:
    """The lines that entry `index` could become: one draft for each section."""
    entry = reading.entries[index]
    asked_at = question_before(reading, index)
    told: dict[Section, list[LinePiece]] = {}
    found: list[LineDraft] = []
    narrates = _narrates(reading, index)
    for number, statement in enumerate(reading.heard[index].text.remarks):
        if narrates and statement.text.startswith(FENCE):
            break  # what follows is the call itself
        support = support_of(reading, (index, number))
        if support is None:
            continue  # nothing that could be shown with it says what it is about
        answers = number == 0 and _needs_its_question(reading, asked_at, statement, support)
        text = without_opening(statement.text, reading.names) if number == 0 else statement.text
        said = statement.said if text is statement.text else tuple(words(text))
        factor = _factor(reading, index, statement, asked=asked_at != NOWHERE)
        tells = answers or (statement.tells and says_something(statement.said, reading.names))
        if narrates and _announces(reading, index, statement):
            continue
        factor *= NARRATION_FACTOR if narrates else 1.0
        if not (said and tells and reading.agenda.is_current(index, statement)):
            continue
        section = _section(reading, index, number)
        leans_on = asked_at if answers else support
        if leans_on[0] not in (-1, index) and not _shares_section(reading, section, leans_on):
            quoted = _quoted_statement(reading, leans_on)
            if quoted:
                found.append(_answer_draft(reading, (index, number), (text, section), (leans_on, quoted), factor))
            continue
        section = _section(reading, *asked_at) if answers else section
        more: Terms = NO_TERMS
        if section in ("next_steps", ASKED) and reading.has_agent:
            more = {f"next {index} {number}": TODO_WORTH if _is_todo(entry, statement) else OPEN_WORTH}
        needs = leans_on if leans_on != NOWHERE else (index, _needed(reading, statement, number))
        before = None if entry.kind in LISTS else statement.before
        terms = _statement_terms(reading, index, said, factor, more)
        piece = LinePiece(text, terms, -1, (index, number), before, needs, support != NOWHERE)
        told.setdefault(section, []).append(piece)
    prefix = speaker_of(entry)
    day = reading.days[index]
    found += [LineDraft(section, (entry.id,), tuple(pieces), day, prefix) for section, pieces in told.items()]
    return found


def _shares_section(reading: InputReading, section: Section, leans_on: Place) -> bool:
    return _section(reading, *leans_on) in _ALIKE.get(section, (section,))


def _quoted_statement(reading: InputReading, place: Place) -> str:
    """Return a statement quoted behind another one, with the one it leans on; "" if there is no room for it."""
    places = [place]
    while (support := support_of(reading, places[0])) != NOWHERE:
        if support is None or support[0] != place[0]:
            return ""
        places.insert(0, support)
    quoted = remark_at(reading, places[0]).text
    for before, after in pairwise(places):
        follows = after[1] == before[1] + 1
        quoted += (" " if follows else f" {GAP} ") + remark_at(reading, after).text
    return quoted if len(quoted) <= QUOTED_CHARS_MAX[len(places) > 1] else ""


def _answer_draft(
    reading: InputReading, at: Place, answer: tuple[str, Section], asked: tuple[Place, str], factor: float
) -> LineDraft:
    """Put an answer and its question in one line, if it means nothing alone and they have different headings."""
    (text, section), (asked_at, quoted), index = answer, asked, at[0]
    asker, answerer = reading.entries[asked_at[0]], reading.entries[index]
    question = reading.heard[asked_at[0]].text.remarks[asked_at[1]]
    terms = speech_terms(reading, asked_at[0], question.said, factor * QUESTION_FACTOR)
    terms |= _weighted_terms(reading, index, tuple(words(text)), factor, NO_TERMS)
    shown = ANSWER.format(answer=text, question=f"{speaker_of(asker)}{quoted}")
    sources = tuple(dict.fromkeys((answerer.id, asker.id)))
    return LineDraft(section, sources, (LinePiece(shown, terms, -1, at),), reading.days[index], speaker_of(answerer))


def speaker_of(entry: Entry) -> str:
    """Return the speaker's name for the start of a line; "" without a speaker."""
    speaker = clean(entry.speaker) or SPEAKERS.get(entry.kind, "")
    return f"{speaker}: " if speaker else ""


def _narrates(reading: InputReading, index: int) -> bool:
    """Return True if an agent says it with a call; if the call was written as text, its result comes next."""
    following = reading.entries[index + 1 : index + 2]
    is_call = bool(following) and following[0].kind in ("tool_call", "tool_result")
    return is_call and reading.entries[index].kind == "assistant"


def _announces(reading: InputReading, index: int, statement: Remark) -> bool:
    """Return True if a statement only announces the call after it: a promise, or few words without a new value."""
    if statement.promises or begins("announcements", statement.text):
        return True
    arguments = reading.entries[index + 1].arguments or reading.entries[index].text.partition(FENCE)[2]
    has_value = any(is_specific(word) and word not in arguments for word in statement.said)
    return statement.words <= NARRATION_WORDS_MAX and not has_value


class _SaidLater(LaterTerms, frozen=True, gc=False):
    """The terms of a statement's words, weighed later."""

    reading: InputReading
    index: int
    said: tuple[str, ...]
    factor: float
    more: Terms

    def weighed(self) -> Terms:
        """The terms, each with the worth of covering it."""
        return _weighted_terms(self.reading, self.index, self.said, self.factor, self.more)


def _statement_terms(
    reading: InputReading, index: int, said: tuple[str, ...], factor: float, more: Terms
) -> Terms | LaterTerms:
    """The coverage of a statement of these words, and its worth by its speaker: weighed later in a long input."""
    if len(reading.entries) < ENTRIES_MIN:
        return _weighted_terms(reading, index, said, factor, more)
    most = factor * _values_factor(reading, index) * sum(map(reading.usage.said_max.__getitem__, said))
    return _SaidLater(most + sum(more.values()), reading, index, said, factor, more)


def _values_factor(reading: InputReading, index: int) -> float:
    """Return how much more values may be worth, depending on who says them."""
    kind = reading.entries[index].kind
    return ONLY_SAID_FACTOR if kind == "assistant" else 1.0 + CHOICE_SHARE * (kind == "user" and reading.has_agent)


def _weighted_terms(reading: InputReading, index: int, said: Sequence[str], factor: float, more: Terms) -> Terms:
    terms = speech_terms(reading, index, said, factor)
    kind = reading.entries[index].kind
    if kind == "assistant":  # its words are the only place for values that are in no result
        for term in filter(reading.usage.is_only_said, terms):
            terms[term] *= ONLY_SAID_FACTOR
    elif kind == "user" and reading.has_agent:
        values = [term for term in terms if term[0] == VALUE_MARK]
        terms |= {f"user {term}": CHOICE_SHARE * terms[term] for term in values}
    terms.update(more)
    return terms


def _is_todo(entry: Entry, statement: Remark) -> bool:
    return entry.kind == "todo" or statement.text.startswith(OPEN_BOX)


def _needed(reading: InputReading, statement: Remark, number: int) -> int:
    """Return the number of the statement in the same text that this one must follow, -1 without one."""
    if statement.head >= 0 or number == 0 or statement.before is None:
        return statement.head
    return number - 1 if reading.has_agent and points_back(statement.said) else -1


def _needs_its_question(reading: InputReading, asked_at: Place, statement: Remark, support: Place) -> bool:
    """Return True if an answer is so short that it means nothing without its question."""
    if asked_at == NOWHERE or support_of(reading, asked_at) is None:
        return False
    question = remark_at(reading, asked_at)
    if len(question.text) > QUESTION_CHARS_MAX or not says_something(question.said, reading.names):
        return False
    is_answer = reading.has_agent or says_yes_or_no(statement.said)
    words_max = SHORT_ANSWER_WORDS if is_answer else SHORT_REPLY_WORDS
    return statement.words <= words_max


def speech_terms(reading: InputReading, index: int, said: Sequence[str], factor: float) -> dict[str, float]:
    """The terms of words said at `index`, each with the worth of covering it."""
    weights: dict[str, float] = {}
    usage = reading.usage
    for term, worth, first in chain(
        chain.from_iterable(map(usage.opening.__getitem__, said[:1])),
        chain.from_iterable(map(usage.said.__getitem__, said[1:])),
    ):
        weight = factor * worth * FIRST_MENTION_BONUS if first >= index else factor * worth
        if weight > weights.get(term, 0.0):
            weights[term] = weight
    return weights


def _factor(reading: InputReading, index: int, statement: Remark, *, asked: bool) -> float:
    """Return the factor by which a statement of this kind multiplies the worth of its terms."""
    entry = reading.entries[index]
    factor: float = min(1.0, statement.words / FULL_SENTENCE_WORDS) ** SHORTNESS_EXPONENT
    if statement.text.endswith(ANNOUNCING):
        return 0.0  # it is shown only with what it announces
    if statement.asks and not reading.agenda.is_open(index):
        factor *= QUESTION_FACTOR
    if statement.exclaims:
        factor *= CRY_FACTOR
    if statement.text[0] == "[" and ANNOTATION.match(statement.text):
        factor *= ANNOTATION_FACTOR
    if statement.text in reading.seen:
        factor *= REPETITION_FACTOR
    reading.seen.add(statement.text)
    alike = reading.wordings.get(statement.wording, 1) if statement.wording else 1
    factor *= max(1.0, alike / ALIKE_MIN) ** -ALIKE_EXPONENT
    if reading.has_agent:
        factor *= KIND_FACTORS.get(entry.kind, 1.0)
        if entry.kind == "user" and reading.work:
            factor *= WITH_WORK_FACTOR
        if entry.kind == "assistant" and not reading.actions:
            factor *= WITHOUT_TOOLS_FACTOR
        if index in reading.closing:
            factor *= LAST_EXCHANGE_FACTOR
    elif not statement.asks:
        factor *= _whom_it_tells_of(statement)
    if entry.kind == "todo" and index != reading.last_todo:
        factor *= REPETITION_FACTOR
    if asked:
        return factor * ANSWER_FACTOR
    return factor * FEW_WORDS_FACTOR if statement.words < FEW_WORDS else factor


def _whom_it_tells_of(statement: Remark) -> float:
    """Return the factor for a statement by whom it speaks of: the speaker, or only the one who is addressed."""
    said = {word.casefold() for word in statement.said}
    if tells_of_speaker(said):
        return OF_SELF_FACTOR
    return 1.0 if said.isdisjoint(phrase_list("addressees")) else OF_OTHER_FACTOR


def _section(reading: InputReading, index: int, number: int) -> Section:
    """Return the section of a statement of entry `index`: whose words it holds, and whether it is still open."""
    entry = reading.entries[index]
    statement = reading.heard[index].text.remarks[number]
    is_next = reading.agenda.is_next(index, statement) and not _narrates(reading, index)
    if entry.kind == "user":
        return ASKED if is_next else SAID
    if statement.text.startswith(DONE_BOX):
        return "completed_actions"
    if is_next:
        return "next_steps"
    if entry.kind == "error":
        return "attempted_approaches"
    if entry.kind in ("assistant", "question"):
        return DECIDED
    return "current_state" if index in reading.closing else "key_information"
