"""Detects from its grammar whether a sentence speaks of a kind (rules, habits, definitions) or measures one case.

`generality.toml` lists the words that count, language by language; this module looks at their positions. Three forms
apply beyond the case: a subject without an article in the present tense (`Orders under 20 EUR ship …`), a table or
column with a verb that defines it, and a prohibition. A number after `under`, `after` or `=` is part of such a rule;
any other number is a measurement.
"""

import re
from functools import cache

from memory_engine.core.lazy import regex
from memory_engine.language.dates import any_of, full_names
from memory_engine.language.lists import lists_of
from memory_engine.language.rough import behind_conjunction, clause_spans
from memory_engine.views.promotion.wording import SPECIFIC, Evidence, pattern_of, specifics_of

KIND_WEIGHT = 0.35
"""Weight of a sentence about a kind. Alone it is too little, since reports of a state of affairs have the same form."""
HABIT_WEIGHT = 0.3
RESTRICTED_WEIGHT = 0.25
TENDENCY_WEIGHT = 0.4
DEFINITION_WEIGHT = 0.5
FORBIDDEN_WEIGHT = 0.5
BEFORE_CHARS = 24
"""Number of characters before or after a number that are searched for a word that makes it a limit."""

_LABEL = regex(r"[^a-zà-ÿ]|(?:[\w*'-]+ ){0,3}[\w*'-]+\*{0,2}[:,](?: |$)")
"""A list item, or a heading before a text: such a line is not a sentence about its first words."""
_ACRONYM = regex(r"[A-Z]{2}")
_BARE = regex(r"(?:[a-z][\w'-]+ )?(?:[a-z]\w+(?<![su])s|people|staff|children)(?= \w)")
"""A plural without an article, alone or after one other word, and followed by a word."""
_WITH_ARTICLE = regex(r"(?:(?:los|las|les|os|as) (?:\w+ )?\w\w+s|(?:gli|i) \w\w+i)(?= \w)")
"""A plural with an article, in languages that put one before kinds."""
_PAST_FORM = regex(r"(?<!^)(?<!\w)\w{2,}ed(?!\w)")
_PASSIVE = frozenset("is are be been being get gets".split())
_BEFORE_ADJECTIVE = frozenset(
    "when if once unless as not a an the no all any every each by only already never always without or and must"
    " until".split()
)
"""After one of these words, a word in `-ed` is not a past tense: `are archived`, `once signed`, `a signed contract`."""
_COMPARED = regex(r"(?<!\w)\w+er than(?!\w)")
_ANY_ONE = regex(r"(?:an?|any|every|each) (?:[a-z][\w-]+ ){1,2}(?!is |was |has )[a-z]+s(?= )")
"""A singular that means the whole kind, with a verb of action: `A session ends after …`."""


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return pattern_of(lists_of("memory_engine.views.promotion", "generality.toml")[name])


@cache
def _month() -> re.Pattern[str]:
    """A month by its full name, or a quarter. "May" and "mai" are left out: they are other words as well."""
    return re.compile(rf"(?<!\w)(?:{any_of({*full_names('months')} - {'may', 'mai'})}|q[1-4])(?!\w)")


def measured(text: str) -> tuple[str, ...]:
    """Return the words of a normalized text that measure or name one case, without limits and codes of a rule."""
    kept: list[str] = []
    for match in SPECIFIC.finditer(text):
        found = specifics_of(match.group())
        if found and not _is_limit(text, match):
            kept += found
    return tuple(kept)


def _is_limit(text: str, number: "re.Match[str]") -> bool:
    """Return True if a number is part of a condition: `under 20`, `= 9`, `Type 7 …`, `20 EUR or more`."""
    before = text[max(0, number.start() - BEFORE_CHARS) : number.start()].rstrip(" €$£")
    after = text[number.end() : number.end() + BEFORE_CHARS].lstrip()
    for name in ("limits", "labels"):
        if any(match.end() == len(before) for match in _pattern(name).finditer(before)):
            return True
    compared = _COMPARED.search(before)
    if compared is not None and compared.end() == len(before):
        return True
    return before.endswith(("=", "<", ">", "≥", "≤")) or _pattern("limits_after").match(after) is not None


def generality(sentence: str, folded: str) -> Evidence:
    """Return the evidence that a sentence speaks of a kind, by its form. `folded` is the same sentence, normalized."""
    signs: list[tuple[str, float, str]] = []
    if _pattern("parts_of_data").search(folded) and (verb := _pattern("defining").search(folded)):
        signs.append(("defines data", DEFINITION_WEIGHT, verb.group()))
    if forbidden := _forbidden(folded):
        signs.append(("forbids or leaves out", FORBIDDEN_WEIGHT, forbidden))
    if subject := _general_subject(sentence, folded):
        signs.append(("speaks of a kind", KIND_WEIGHT, subject))
        for kind, weight, name in (
            ("says what is done as a habit", HABIT_WEIGHT, "habit"),
            ("limits the kind", RESTRICTED_WEIGHT, "restricting"),
            ("says what is likelier", TENDENCY_WEIGHT, "tendency"),
        ):
            found = _pattern(name).search(folded, 1)
            if found := found or (_COMPARED.search(folded) if name == "restricting" else None):
                signs.append((kind, weight, found.group()))
        if not _pattern("states").search(folded):
            signs.append(("tells of deeds", HABIT_WEIGHT, subject))
    doubt = 1.0
    for _, weight, _ in signs:
        doubt *= 1.0 - weight
    return Evidence(1.0 - doubt, tuple((kind, (said,)) for kind, _, said in signs))


def _forbidden(folded: str) -> str:
    """Return the phrase that begins a clause with a prohibition or a wish to leave something out, else ""."""
    for start, _ in clause_spans(folded):
        said = behind_conjunction(folded, start)
        is_apart = said > start or folded[max(0, start - 1) : start] in {"", ";", ":"}
        if is_apart and (found := _pattern("forbidding").match(folded, said)):
            return found.group()
    return ""


def _general_subject(sentence: str, folded: str) -> str:
    """Return the subject of a sentence about a kind in the present tense; empty for any other sentence."""
    if any(_pattern(name).search(folded) for name in ("past", "observing", "addressed")):
        return ""
    if _LABEL.match(folded) or _ACRONYM.match(sentence) or _is_past(folded):
        return ""
    if any_one := _ANY_ONE.match(folded):
        return any_one.group()
    article = _WITH_ARTICLE.match(folded)
    if article is not None:
        return article.group()
    if _pattern("determiners").match(folded):
        return ""
    subject = _BARE.match(folded)
    return subject.group() if subject is not None else _bare_german(sentence)


def _is_past(folded: str) -> bool:
    """Return True if a form in `-ed` reports what happened to something, or a month dates a measurement."""
    for match in _PAST_FORM.finditer(folded):
        before = folded[: match.start()].split()[-2:]
        if before and _PASSIVE.isdisjoint(before) and before[-1] not in _BEFORE_ADJECTIVE:
            return True
    return bool(measured(folded)) and _month().search(folded) is not None


_GERMAN_NOUN = regex(r"(?:[A-ZÄÖÜ]?[\wäöüß]+e )?([A-ZÄÖÜ][\wäöüß]+(?:e|en|n|er|s))(?= )")
_GERMAN_VERB = regex(r" [a-zäöüß]+(?:en|ern|eln)(?![\wäöüß])")


def _bare_german(sentence: str) -> str:
    """Return a German plural without an article before a plural verb (`Pakete unter 2 kg gehen …`); empty if none."""
    noun = _GERMAN_NOUN.match(sentence)
    return noun.group(1) if noun is not None and _GERMAN_VERB.search(sentence, noun.end()) else ""
