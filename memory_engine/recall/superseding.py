"""Detection of the current facts: which statements of a search result supersede others.

People restate a fact in other words when it has changed: "I live in Leeds", and later "the boxes are unpacked, I moved
to Utrecht". By its words, the older statement is the better answer to "Where do I live?". A newer statement supersedes
it if both are about the matter that is asked for (the same subject and attribute), the newer one claims something else,
and it says or shows that something has changed, or holds the same words of the question and ranks near. In doubt the
order stays: plans, conditions, questions, quotations, denials, the past, other people, additions.

Pure and deterministic, over the passages that one search has found. `lexicon.py` defines the uses of words.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, pairwise, product
from operator import not_
from typing import Literal

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.rough import asks, rough_sentences, spaced_clauses
from memory_engine.language.text import fold_case, is_unspaced, words
from memory_engine.recall.decided import Decided, lifted
from memory_engine.recall.hits import Hit, passage_of
from memory_engine.recall.lexicon import KEY_CHARS, NOTHING, Reading, keys_of, words_of
from memory_engine.recall.matter import PARTNER, TEXT_CHARS_MAX, Matter, read_matter
from memory_engine.recall.question import Question
from memory_engine.recall.ranking import Candidate, Ranked

BEST_READ = 20
"""Number of best hits that are read as statements: an outdated statement often matches best by its words."""
WORTH_READ = 12
"""Number of candidates that are read at any rank: those with the most words of the matter and of change."""
TERMS_MAX = 40
"""Maximum number of terms of a passage that is read."""
CHANGED = 3
"""Worth of a word of change, relative to 1 for each word of the matter."""
MERGED_CHARS_MAX = 160
"""Maximum length of a passage in which one sentence may name the subject and the next say what became of it."""
LIFTED_TO = 2
"""Lowest position, counted from 0, of a statement that is known to be the last one on the matter."""
COVERED_MIN = 0.5
"""Share of the subject's words above which a statement is about the same subject, whatever it says about it."""
NEAR_MIN = 0.8
"""Share of an older statement's score from which a newer one that answers in the same words comes before it."""
DENIED_WORDS = 3
"""Number of words within which a negation cancels a following change: "has not yet moved"."""
CURRENT = "current"
"""Signal of a hit that is lifted because it is true at the time of the question."""
KINDS = frozenset({"message", "note", "snippet", "memory", "task", "tool"})
"""Kinds of passages that state facts."""
_NOT_PEOPLE = frozenset({"assistant", "tool"})
"""Roles whose passages cannot outdate people's statements, or be outdated by them. A tool's results outdate its own."""
_FREE_ORDER = frozenset({"de", "es"})
"""Languages in which the speaker may come after what they have: im Abendkurs lerne ich."""
_DROP_SUBJECTS = frozenset({"es", "zh"})
"""Languages in which the speaker need not be named. In others, a note may omit it too: "Sold the car."."""
_UNTELLING = frozenset({"plain", "self", "person", "denied", "added", "other"})
_POSSESSIVE = "'s"

_QUOTED = regex(r"\"[^\"]{8,1000}\"|“[^”]{4,1000}”|„[^“”]{8,1000}[“”]|«[^»]{8,1000}»|「[^」]{4,1000}」")
_NUMBER = regex(r"\d+(?:[.,:]\d+)*")
_NUMERALS = regex(
    r"[零一二两三四五六七八九十百千万亿]+(?=\s?[个片点月号日年岁元块人天次分小兆倍])|[零一二两三四五六七八九十百千万亿]{2,}"
)


class Assertion(msgspec.Struct, frozen=True):
    """The claim of a sentence or a short passage about the present.

    `before` maps the keys of its significant words, in order, to the key of the word directly before each. `values` are
    numbers and `days`, as written. `owned` are pairs of keys: whose, and what ("Petra's flight"). `is_stated` is True
    if it mentions both the subject and what is asked about it, `is_tied` if it has a verb that gives a subject any
    value, `is_own` if it may be about its speaker, `denies` if it only says what is not so.
    """

    text: str
    before: Mapping[str, str]
    attributes: frozenset[str]
    values: frozenset[str]
    days: frozenset[str]
    owned: frozenset[tuple[str, str]]
    is_stated: bool
    is_tied: bool
    is_own: bool
    has_changed: bool
    adds: bool
    denies: bool

    def holds(self, key: str) -> bool:
        """Return True if it contains a word with this key."""
        if is_unspaced(key):
            return key in self.text
        return key in self.before or (len(key) == KEY_CHARS - 1 and any(one.startswith(key) for one in self.before))

    def place(self, key: str) -> int:
        """Return the position of a key that it contains."""
        if is_unspaced(key):
            return self.text.find(key)
        return next(at for at, one in enumerate(self.before) if one.startswith(key))


def read_claims(text: str, matter: Matter) -> list[Assertion]:
    """Return what a passage claims about the present, per sentence; a short passage is one claim.

    Questions, plans, conditions, quotations, and statements about people that are not asked about claim nothing.
    """
    words = words_of(matter.language)
    found: list[list[list[Reading]]] = []
    for sentence in rough_sentences(_QUOTED.sub(" ", text)):
        if asks(sentence):
            continue
        folded = fold_case(sentence)
        clauses = [list(words.read(clause)) for clause in spaced_clauses(folded)]
        if any("conditions" in uses for clause in clauses for _, uses in clause):
            continue
        said = [clause for clause in clauses if not any("unsaid" in uses for _, uses in clause)]
        if any(said):
            found.append(said)
    if len(text) <= MERGED_CHARS_MAX:
        found = [[clause for said in found for clause in said]]
    claims = (_claim(said, matter) for said in found)
    return [claim for claim in claims if claim is not None]


def _claim(clauses: Sequence[Sequence[Reading]], matter: Matter) -> Assertion | None:
    """Return what some clauses claim; `None` if they claim nothing about the people of the matter."""
    read = [one for clause in clauses for one in clause]
    people = _people(read, matter)
    if not read or (matter.people.isdisjoint(people) if matter.people else people):
        return None
    adding = [any("added" in uses for _, uses in clause) for clause in clauses]
    has_changed = any(map(_has_changed, compress(clauses, map(not_, adding))))
    text = " ".join(word for word, _ in read)
    days = frozenset(word for word, uses in read if "when" in uses)
    before = _preceding_keys(read)
    return Assertion(
        text=text,
        before=before,
        attributes=frozenset(use[1:] for _, uses in read for use in uses if use[0] in "?!"),
        values=days.union(_NUMBER.findall(text), _NUMERALS.findall(text)),
        days=days,
        owned=frozenset(_owned(read)),
        is_stated=any(_states(clause, matter) for clause in (clauses if matter.is_own else [read])),
        is_tied=any("tie" in uses for _, uses in read),
        is_own=matter.language in _DROP_SUBJECTS or "change" in read[0][1] or any("self" in uses for _, uses in read),
        has_changed=has_changed,
        adds=any(adding) and not has_changed,
        denies=not has_changed and all(any("denied" in uses for _, uses in clause) for clause in clauses if clause),
    )


def _owned(read: Sequence[Reading]) -> Iterator[tuple[str, str]]:
    """Yield whose and what, as keys, of each English possessive; "Mia's moved" is a verb."""
    for (word, _), (after, uses) in pairwise(read):
        if word.endswith(_POSSESSIVE) and uses.isdisjoint(("change", "tie")):
            yield from product(keys_of(word.removesuffix(_POSSESSIVE)), keys_of(after)[:1])


def _preceding_keys(read: Sequence[Reading]) -> dict[str, str]:
    """Return the keys of significant words, each with the key of the word directly before it, or `""`."""
    before: dict[str, str] = {}
    last = ""
    for word, uses in read:
        keys = keys_of(word) if uses.isdisjoint(_UNTELLING) else []
        for key in keys:
            before.setdefault(key, last)
            last = key
        last = last if keys else ""
    return before


def _states(read: Sequence[Reading], matter: Matter) -> bool:
    """Return True if words mention both what is asked for and whose it is, not one of them without the other."""
    spoken = [at for at, (_, uses) in enumerate(read) if not matter.spoken.isdisjoint(uses)]
    if not spoken:
        return False
    if any(word in matter.people for word, _ in read):
        return True
    if matter.is_own and not matter.subject:
        own = [at for at, (_, uses) in enumerate(read) if "self" in uses]
        return bool(own) and (own[0] <= spoken[-1] or matter.language in _FREE_ORDER)
    return any(key in matter.subject for word, _ in read for key in keys_of(word))


def _has_changed(read: Sequence[Reading]) -> bool:
    """Return True if a clause says that something has changed, and does not negate it."""
    denied = -DENIED_WORDS - 1
    for at, (_, uses) in enumerate(read):
        if "denied" in uses:
            denied = at
        if ("change" in uses and at - denied > DENIED_WORDS) or ("ended" in uses and denied >= 0):
            return True
    return False


def _people(read: Sequence[Reading], matter: Matter) -> frozenset[str]:
    """Return the other people that a passage mentions, except those followed by the subject's name: my brother Tom."""
    found = set()
    padded = [("", NOTHING), *read, ("", NOTHING)]
    for (_, possessing), (word, uses), (after, _) in zip(padded, padded[1:], padded[2:], strict=False):
        is_role = "role" in uses and "self" in possessing and matter.asked.isdisjoint(keys_of(word))
        if "person" in uses or is_role:
            is_partner = PARTNER in uses and matter.subject and matter.attributes <= {PARTNER[1:]}
            if word in matter.people or not (is_partner or set(keys_of(after)).intersection(matter.subject)):
                found.add(word)
    return frozenset(found)


def supersedes(matter: Matter, older: Assertion, newer: Assertion) -> bool:
    """Return True if the newer of two claims about the matter's people supersedes the older one."""
    if not _is_another_value(matter, older, newer):
        return False
    is_measured = bool(matter.slots and older.values)
    if not newer.has_changed:
        return is_measured and _is_whole(matter, older, newer)
    return bool(
        matter.attributes & newer.attributes
        or (older.before.keys() & newer.before.keys()) - matter.asked
        or older.values & newer.values
        or (is_measured and matter.subject)
        or sum(map(newer.holds, matter.subject)) > 1
    )


def answers_anew(matter: Matter, older: Assertion, newer: Assertion) -> bool:
    """Return True if the newer claim answers with the same words of the question, most of all, and another value."""
    asked = [key for key in matter.asked if older.holds(key)]
    if not matter.subject or len(asked) <= COVERED_MIN * len(matter.asked) or not all(map(newer.holds, asked)):
        return False
    is_of_same_days = "time" in matter.slots or older.days == newer.days
    says_more = bool(newer.before.keys() - older.before.keys() - matter.asked)
    return is_of_same_days and says_more and _is_another_value(matter, older, newer)


def _is_another_value(matter: Matter, older: Assertion, newer: Assertion) -> bool:
    """Return True if the older claim is an answer, and the newer claims something else about the same subject."""
    if newer.adds or newer.denies or _is_of_another(matter, older, newer) or not _is_answer(matter, older):
        return False
    if not _is_of_same_subject(matter, older, newer):
        return False
    if newer.before.keys() <= older.before.keys() | matter.asked and newer.values <= older.values:
        return False  # a repetition
    return not (matter.slots and older.values and newer.values <= older.values)


def _is_of_another(matter: Matter, older: Assertion, newer: Assertion) -> bool:
    """Return True if the newer claim is about somebody else's: Petra's flight, for mine, or Tova's ex, for Tova."""
    return any((whose in matter.asked) != (what in matter.asked) for whose, what in newer.owned - older.owned)


def _is_answer(matter: Matter, one: Assertion) -> bool:
    """Return True if a claim answers the question: the attribute of the subject, or a fact about the whole subject."""
    if one.is_stated:
        return True
    told = one.is_tied or not matter.attributes or bool(matter.slots and one.values)
    return told and bool(matter.subject) and all(map(one.holds, matter.subject))


def _is_of_same_subject(matter: Matter, older: Assertion, newer: Assertion) -> bool:
    """Return True if both are about the subject: they share its first word in the older one, or most of its words."""
    subject = [key for key in matter.subject if older.holds(key)]
    if not subject:
        own = (matter.is_own and newer.is_own) or bool(matter.people)
        return own and bool(matter.attributes & newer.attributes & older.attributes)
    shared = [key for key in subject if newer.holds(key)]
    if any(_differ(older.before.get(key, ""), newer.before.get(key, ""), subject) for key in shared):
        return False
    if min(subject, key=older.place) in shared or len(shared) > COVERED_MIN * len(subject):
        return True
    if matter.attributes.isdisjoint(newer.attributes):
        return False
    is_short = any(older.before.get(key) in subject for key in shared)  # "the pills", for the blood pressure pills
    return is_short or len(shared) == COVERED_MIN * len(subject)


def _differ(older: str, newer: str, subject: Sequence[str]) -> bool:
    """Return True if the words before a shared word distinguish two things: the front door, the cellar door."""
    return older in subject and bool(newer) and newer != older and newer not in subject


def _is_whole(matter: Matter, older: Assertion, newer: Assertion) -> bool:
    """Return True if only the value differs: both contain the whole subject, and they name no different periods."""
    if not matter.subject or not all(one.holds(key) for one in (older, newer) for key in matter.subject):
        return False
    return "time" in matter.slots or older.days == newer.days


class Current:
    """The facts that are true now, or at the time that is asked about, among the passages of one search."""

    def __init__(self, question: Question) -> None:
        self._matter = read_matter(question)
        self.read: frozenset[int] = frozenset()
        """Places of the passages that must be read."""
        self._passages: frozenset[tuple[str, int, int]] = frozenset()

    @property
    def further(self) -> tuple[str, ...]:
        """Terms, in addition to the question's own, by which statements of the matter become candidates."""
        return self._matter.further if self._matter is not None and self._matter.asks != "event" else ()

    def partners(
        self, ranked: Sequence[Ranked], candidates: Sequence[Candidate], thread_ids: Sequence[str]
    ) -> list[Ranked]:
        """Return unranked candidates that may be part of a pair, and select the passages that must be read.

        `thread_ids` maps the thread numbers in places to thread ids.
        """
        if self._matter is None or self._matter.asks == "event":
            return []
        matter = self._matter = self._matter.of_speakers({one.speaker for one in candidates})
        sought = _SoughtMatter(matter)
        ahead = frozenset(one.place for one in ranked[:BEST_READ])
        if not matter.attributes and not any(one.place in ahead and sought.holds_all(one) for one in candidates):
            return []  # nothing that could be outdated
        worth = {one.place: value for one in candidates if (value := sought.worth(one))}
        if len(worth) < 2:
            return []
        people = [one.place for one in candidates if one.place in worth and one.role not in _NOT_PEOPLE]
        best = sorted(people, key=lambda place: (-worth[place], -place))[:WORTH_READ] if sought.has_changed else []
        self.read = frozenset((*best, *ahead.intersection(worth)))
        self._passages = frozenset(passage_of(place, thread_ids) for place in self.read)
        shown = {one.place for one in ranked}.union(*(one.alike for one in ranked))
        return [Ranked(place, 0.0, {}) for place in best if place not in shown]

    @property
    def asks(self) -> Literal["now", "before", "event"]:
        """Return what the question asks for: what is true now, what was, or a past event.

        What should be is asked of what is true now. (The rules of this module leave such a question alone, in doubt.)
        """
        return self._matter.asks if self._matter is not None and self._matter.is_past else "now"

    def settled(self, hits: Sequence[Hit], decided: Decided) -> list[Hit]:
        """Return the hits, outdated ones after their successors. What is decided otherwise stays.

        If the question asks for the past, the order is the reverse. A lifted statement comes before the other of its
        pair, and at least third. Partners that are not lifted are left out. No hit is marked as outdated: of statements
        that word lists cannot separate, too many are.
        """
        matter = self._matter
        if matter is None or not self.read:
            return list(hits)
        by = _superseders(matter, [hit if hit.passage in self._passages else None for hit in hits], decided)
        settled = list(hits)
        pairs = by.items() if matter.asks == "before" else [(newer, older) for older, newer in by.items()]
        place: dict[int, float] = {n: n for n, hit in enumerate(hits) if hit.why or decided.replaces(hit)}
        for first, second in pairs:
            goal = min(second, LIFTED_TO)
            if goal < place.get(first, len(hits)):
                place[first] = goal - 0.5
                settled[first] = lifted(settled[first], hits[goal], CURRENT)
        return [settled[n] for n in sorted(place, key=lambda n: (place[n], -n))]


class _SoughtMatter:
    """Measure of a candidate's worth: words of change, and of the matter, above all those not in the question."""

    def __init__(self, matter: Matter) -> None:
        listed = words_of(matter.language)
        self._matter = matter
        self._changing = listed.changing
        self._about = frozenset(term for attribute in matter.attributes for term in listed.stated(attribute))
        people = (key for word in matter.people for key in keys_of(word))
        self._asked = tuple(" " + " ".join(words(key)) for key in (*matter.asked, *people))  # amber-3 is two terms
        self.has_changed = matter.language == "zh"
        """Whether a candidate has a word of change, or a number if one is asked for."""
        self._is_unspaced = matter.language == "zh"  # words of one character are not among the terms

    def worth(self, one: Candidate) -> int:
        """Return how much of the matter and of change a candidate contains; 0 if it is not worth reading."""
        matter = self._matter
        held = one.terms
        if one.kind not in KINDS or one.role == "assistant" or len(held) > TERMS_MAX:
            return 0
        if matter.speakers and one.speaker not in matter.speakers:
            return 0
        text = " " + " ".join(held)
        asked = sum([key in text for key in self._asked])
        if not asked and self._about.isdisjoint(held):
            return int(self._is_unspaced)
        further = sum([not f" {term}".startswith(self._asked) for term in self._about.intersection(held)])
        changes = not self._changing.isdisjoint(held)
        counts = bool(matter.slots) and any(term[0].isdigit() for term in held)
        self.has_changed = self.has_changed or changes or counts
        return 2 * further + asked + changes * CHANGED + counts

    def holds_all(self, one: Candidate) -> bool:
        """Return True if a candidate contains everything that is asked."""
        text = " " + " ".join(one.terms)
        return all(key in text for key in self._asked)


def _superseders(matter: Matter, hits: Sequence[Hit | None], decided: Decided) -> dict[int, int]:
    """Map each outdated hit to the newest hit that supersedes it, both by index; not one that is decided to hold."""
    read = [
        (hit, n, claims)
        for n, hit in enumerate(hits)
        if hit is not None and len(hit.text) <= TEXT_CHARS_MAX and (claims := read_claims(hit.text, matter))
    ]
    read.sort(key=lambda one: (one[0].at, one[0].thread_id, one[0].seq, one[0].n))
    found: dict[int, tuple[int, int]] = {}
    for at, (hit, n, claims) in enumerate(read):
        later = [
            one for one in reversed(read[at + 1 :]) if _may_know(matter, hit, one[0]) and not decided.holds(hit, one[0])
        ]
        near = [one for one in later if one[0].score >= NEAR_MIN * hit.score]
        for judge, others in ((supersedes, later), (answers_anew, near)):
            pairs = ((m, [a for a in claims if any(judge(matter, a, b) for b in newer)]) for _, m, newer in others)
            if newest := next(((m, replaced) for m, replaced in pairs if replaced), None):
                found[n] = newest[0], max(_closeness(matter, one) for one in newest[1])
                break
    # Of the statements that one statement outdates, only the closest to the question is marked; the others may be
    # merely related to the matter.
    closest = {m: max(close for other, close in found.values() if other == m) for m, _ in found.values()}
    return {n: m for n, (m, close) in found.items() if close == closest[m]}


def _closeness(matter: Matter, one: Assertion) -> int:
    """Return how many of the question's words a claim contains; an earlier change counts as all of them."""
    return len(matter.asked) if one.has_changed else sum(map(one.holds, matter.asked))


def _may_know(matter: Matter, older: Hit, newer: Hit) -> bool:
    """Return True if the newer hit's speaker can outdate the older one's. On their own matters, only they can."""
    if {newer.role, older.role}.isdisjoint(_NOT_PEOPLE) and matter.subject and not matter.speakers:
        return True
    return (older.role, older.speaker) == (newer.role, newer.speaker)
