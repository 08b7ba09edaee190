"""Speech as drafts: one line per entry and section, one piece per sentence.

The weights of sentences were read off annotated conversations and hold for any
language: questions and exclamations carry next to nothing, the answer after a
question much, very short sentences little, first mentions more.
"""

from memory_engine.compactors.extractive.coverage import LineDraft, LinePiece, Terms
from memory_engine.compactors.extractive.entries import Entry, EntryKind, Section
from memory_engine.compactors.extractive.usage import FIRST_MENTION_BONUS, InputReading
from memory_engine.compactors.extractive.words import Sentence, clean, split_sentences, telegram, terms_of, words
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
LAST_EXCHANGE_FACTOR = 2.0
FULL_SENTENCE_WORDS = 8
SHORTNESS_EXPONENT = 0.5
FEW_WORDS = 3
FEW_WORDS_FACTOR = 0.2
SHORT_ANSWER_WORDS = 6
TOPIC_CHARS_MAX = 90
OUTLOOK_SHARE = 0.2
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
"""Entries whose sentences are items: each stands in a line of its own."""
OPEN_BOX = ("[ ]", "☐", "TODO", "FIXME")
DONE_BOX = ("[x]", "[X]", "☑", "✅", "✓")
OUTLOOK = tuple(
    sign.replace("_", " ")
    for sign in """
    _will_ 'll_ ’ll_ _need_to_ _must_ _going_to_ _gonna_ _plan_to_ _next_ _tomorrow _werde _muss _soll _morgen
    _vais_ _vamos_ _voy_a_ _demain _mañana _devo_ _domani 将 要 会 明天 予定 必要 سوف غدا буду нужно завтра
    """.split()
)
"""Signs of a plan in a few languages: they choose the heading of a late line, never whether it is kept."""


def speech_drafts(reading: InputReading, index: int) -> list[LineDraft]:
    """The lines that entry `index` could become: one for each section, or one for each item of a list."""
    entry = reading.entries[index]
    topic, asked = _question_before(reading, index)
    opening, sources = _opening(reading, index, topic)
    lines: dict[tuple[Section, int], list[LinePiece]] = {}
    for number, sentence in enumerate(split_sentences(entry.text)):
        factor = _factor(reading, index, sentence)
        if asked:
            factor *= ANSWER_FACTOR
        elif sentence.words < FEW_WORDS:
            factor *= FEW_WORDS_FACTOR
        text = sentence.text if entry.kind == "summary" else telegram(sentence, reading.function_words)
        terms = speech_terms(reading, index, text, factor)
        if terms:
            key = (_section(reading, index, sentence), number if entry.kind in LISTS else 0)
            lines.setdefault(key, list(opening)).append(LinePiece(f" {text}", terms, len(opening) - 1))
    day = day_of(entry)
    return [LineDraft(section, sources, tuple(pieces), day) for (section, _), pieces in lines.items()]


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
            if reading.usage.is_first(term, index):
                weight *= FIRST_MENTION_BONUS
            if weight > weights.get(term, 0.0):
                weights[term] = weight
    return tuple(weights.items())


def _opening(reading: InputReading, index: int, topic: str) -> tuple[list[LinePiece], tuple[str, ...]]:
    """The first pieces of a line, its speaker and the question that it answers, with the ids of both."""
    entry = reading.entries[index]
    speaker = clean(entry.speaker) or SPEAKERS.get(entry.kind, "")
    pieces = [LinePiece(f"{speaker}:" if speaker else "", (), -1)]
    if not topic:
        return pieces, (entry.id,)
    pieces.append(LinePiece(f" ({topic})", ()))
    return pieces, tuple(dict.fromkeys((reading.entries[index - 1].id, entry.id)))


def _question_before(reading: InputReading, index: int) -> tuple[str, bool]:
    """The topic words of the question that a short answer follows, and whether there was a question."""
    entry = reading.entries[index]
    if index == 0 or entry.kind not in ("user", "assistant", "other"):
        return "", False
    before = reading.entries[index - 1]
    same_voice = (before.kind, before.speaker) == (entry.kind, entry.speaker)
    if same_voice or before.kind not in ("user", "assistant", "question", "other"):
        return "", False
    questions = [sentence for sentence in split_sentences(before.text[-2000:]) if sentence.asks]
    if not questions:
        return "", False
    if sum(sentence.words for sentence in split_sentences(entry.text[:400])) > SHORT_ANSWER_WORDS:
        return "", True
    topic = telegram(questions[-1], reading.function_words)
    return (topic if len(topic) <= TOPIC_CHARS_MAX else ""), True


def _factor(reading: InputReading, index: int, sentence: Sentence) -> float:
    """The weight of a sentence of this kind, as a multiple of the worth of its terms."""
    entry = reading.entries[index]
    factor: float = min(1.0, sentence.words / FULL_SENTENCE_WORDS) ** SHORTNESS_EXPONENT
    is_open = index == len(reading.entries) - 1 or (index in reading.closing and reading.has_agent)
    if sentence.asks and not is_open:
        factor *= QUESTION_FACTOR
    if sentence.exclaims:
        factor *= CRY_FACTOR
    if ANNOTATION.match(sentence.text):
        factor *= ANNOTATION_FACTOR
    if sentence.text in reading.seen:
        factor *= REPETITION_FACTOR
    reading.seen.add(sentence.text)
    if reading.has_agent:
        factor *= KIND_FACTORS.get(entry.kind, 1.0)
        if index in reading.closing:
            factor *= LAST_EXCHANGE_FACTOR
    if entry.kind == "todo" and index != reading.last_todo:
        factor *= REPETITION_FACTOR
    return factor


def _section(reading: InputReading, index: int, sentence: Sentence) -> Section:
    """Under which heading a reader looks for the sentence."""
    entry = reading.entries[index]
    if sentence.text.startswith(DONE_BOX):
        return "completed_actions"
    if entry.kind == "todo" or sentence.text.startswith(OPEN_BOX):
        return "next_steps"
    if entry.kind == "error":
        return "attempted_approaches"
    late = index >= len(reading.entries) * (1 - OUTLOOK_SHARE)
    if index in reading.closing:
        return "next_steps" if sentence.asks or _looks_ahead(sentence) else "current_state"
    if entry.kind == "question" and index == len(reading.entries) - 1:
        return "next_steps"
    if late and entry.kind != "summary" and _looks_ahead(sentence):
        return "next_steps"
    return "key_information"


def _looks_ahead(sentence: Sentence) -> bool:
    return any(sign in f" {sentence.text}" for sign in OUTLOOK)
