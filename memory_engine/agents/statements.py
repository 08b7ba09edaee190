"""Statements: what people say about themselves, found by its form, in several languages.

"My time zone is CET", "I prefer short answers", "always answer in German", "remember that …": the first person, or a
wish that lasts. Questions, suppositions, guesses, passing states, the words of another, and texts with a secret
are none. It misses statements in other forms; a language model finds more.
"""

import re
from collections.abc import Iterator
from functools import cache

from memory_engine.core.lazy import regex
from memory_engine.language.lists import lists_of
from memory_engine.language.prose import GAP, sentences
from memory_engine.language.secrets import holds_secret
from memory_engine.views.promotion.wording import pattern_of

KEY_WORDS_MAX = 6
KEY_CHARS_MAX = 80
VALUE_CHARS_MAX = 300
NAME_WORDS_MAX = 4
OBJECT_WORDS_MAX = 30
CALLED_WORDS_MAX = 3

_NAME_WORD = regex(r"[^\W_]+")
_POINTING = frozenset(
    "it this that these those there here he she they we you i what which who how why where when if as and but so or"
    " not no yes now then today one since because although though while unless once after before until whether also"
    " please your".split()
)
_SUBJECTS = frozenset("i d m we ich wir yo je j nous on ik wij".split())
_ARTICLE = regex(r"(?:the|der|die|das|el|la|los|las|le|les|il|lo|o|os|de|het)\s+|l'", re.IGNORECASE)
_AND = regex(r"(?:,|(?<!\s))\s+(?:and|und|y|e|et|en)\s+", re.IGNORECASE)
_FURTHER = regex(
    r"(?:,|(?<!\s))\s+(?:and|und|y|et)\s+(?:the|both|all|it|he|she|they|we|der|die|das|es|er|el|la|los|las|le|les|il|elle)\b.*"
    r"|,\s+(?:and|as|so|since|because|which|und|weil|da|also|y|porque|que|así|et|car|donc|parce)\b.*",
    re.IGNORECASE,
)
"""Words that continue a sentence after the value of a thing."""
_INFINITIVE = regex(r".*\w(?:en|ern|eln)[.! ]*$")
_PARTICIPLE = regex(
    r"(?:[a-z]{3,}(?:ing|ed)|(?:ge|ver|be|ent|zer|er|ab|an|auf|aus|ein|weg|zurück)[a-zäöüß]{2,}(?:t|en)"
    r"|[a-zñ]{2,}(?:[ai]d[oa]s?|[ai]ndo|iendo)|[a-zà-ÿ]{2,}ée?s?)(?!\w)"
)
_SMALL_WORD = regex(r"[^\W\dA-ZÄÖÜ]+")
_END = " .!,;\u3002"


@cache
def _pattern(form: str) -> re.Pattern[str]:
    """Finds any of the phrases of a form in a text of small letters."""
    return pattern_of(_statement_phrases(form))


def _statement_phrases(form: str) -> tuple[str, ...]:
    return lists_of("memory_engine.agents", "statements.toml")[form]


def fact_key(text: str) -> str:
    """`Dataset format` as `dataset-format`; empty for a text that does not name a thing."""
    named = _name_words(text)
    if named[:1] == ["the"]:
        named = named[1:]
    if not named or len(named) > KEY_WORDS_MAX or named[0] in _POINTING or all(word.isdigit() for word in named):
        return ""
    return "-".join(named)[:KEY_CHARS_MAX]


def _name_words(text: str) -> list[str]:
    """The words of a name. Letters and digits stay together: `NQ7` is one."""
    return _NAME_WORD.findall(text.casefold())


def statements(text: str) -> Iterator[tuple[str, str]]:
    """A text's statements about its author, in order, as keys and values. A value is a part of the text."""
    for sentence in sentences(text):
        said = sentence.replace("\u2019", "'")
        if _may_state(said):
            for clause in _clauses(said):
                found = _stated(clause)
                if found is not None and all(found) and len(found[1]) <= VALUE_CHARS_MAX:
                    yield found


def _may_state(said: str) -> bool:
    plain = said.lower()
    if len(plain) != len(said) or GAP in said or "?" in said or "\u00bf" in said or holds_secret(said):
        return False
    for form in ("lasting", "called", "first_person", "remember"):  # "from now on" is of no moment
        plain = _pattern(form).sub(" ", plain)
    return _pattern("unsure").search(plain) is None and _pattern("moment").search(plain) is None


def _clauses(said: str) -> list[str]:
    """The parts of a sentence that may state something by themselves: "my name is Ada and I live in Graz"."""
    parts, start = [], 0
    for match in _AND.finditer(said):
        rest = said[match.end() :].lower()
        if any(_pattern(form).match(rest) for form in ("owners", "first_person", "speaking", "called")):
            parts.append(said[start : match.start()])
            start = match.end()
    return [_without_courtesies(part) for part in (*parts, said[start:])]


def _without_courtesies(clause: str) -> str:
    """A clause without greetings and courtesies around it."""
    bare = clause.strip(_END + "\u00a1")
    while True:
        lead = _pattern("lead").match(bare.lower())
        tail = _last(bare)
        if lead is not None and lead.end() < len(bare):
            bare = bare[lead.end() :].lstrip(" ,!.:;-\u2013")
        elif tail:
            bare = bare[:tail].rstrip(_END)
        else:
            return bare


def _last(clause: str) -> int:
    """Where a courtesy begins that ends a clause; 0 for none."""
    tails = [match for match in _pattern("tail").finditer(clause.lower()) if match.end() == len(clause)]
    return tails[0].start() if tails else 0


def _stated(clause: str) -> tuple[str, str] | None:
    plain = clause.lower()
    asked = _pattern("remember").match(plain)
    if asked is not None:
        return _remembered(clause[asked.end() :].strip(_END + " :"))
    return _owned(clause) or _wished(clause, plain) or _of_oneself(clause, plain)


def _remembered(rest: str) -> tuple[str, str] | None:
    """A request to remember: a thing with its value, else the sentence."""
    if found := _owned(rest):
        return found
    article = _ARTICLE.match(rest)
    copula = next(_pattern("copulas").finditer(rest.lower()), None)
    if copula is not None:
        key = fact_key(rest[article.end() if article is not None else 0 : copula.start()])
        value = rest[copula.end() :].strip(_END)
        if key and value and "," not in rest[: copula.start()]:
            return key, value
    return (_slug(rest), rest) if len(rest.split()) > 1 else None


def _owned(clause: str) -> tuple[str, str] | None:
    """`my X is Y` for a thing that remains a person's, and a value that remains its."""
    plain = clause.lower()
    owner = _pattern("owners").match(plain)
    copula = next(_pattern("copulas").finditer(plain, owner.end()), None) if owner is not None else None
    if owner is None or copula is None:
        return None
    name = clause[owner.end() : copula.start()].strip()
    value = _FURTHER.sub("", clause[copula.end() :]).strip(_END)
    if not 1 <= len(name.split()) <= NAME_WORDS_MAX or "," in name or not value:
        return None
    if _pattern("fleeting").search(name.lower()) or _pattern("owners").search(name.lower()) or _is_state(value):
        return None
    if _pattern("addressed").search(value.lower()):
        return None
    if _SMALL_WORD.fullmatch(value) and not _pattern("named").search(name.lower()):
        return None
    return fact_key(name), value


def _is_state(value: str) -> bool:
    """Whether a value says how a thing is just now ("late"), or what became of it ("crashed")."""
    if _pattern("state").match(value.lower()):
        return True
    return _PARTICIPLE.match(value) is not None and not _pattern("lasting_participles").match(value)


def _wished(clause: str, plain: str) -> tuple[str, str] | None:
    """A lasting wish, in its own words."""
    called = _pattern("called").match(plain)
    if called is not None:
        name = clause[called.end() :].strip(_END)
        fits = 1 <= len(name.split()) <= CALLED_WORDS_MAX and not _pattern("not_called").match(name.lower())
        return ("call-me", name) if fits else None
    if _pattern("denied").match(plain) and not _pattern("pointing").match(_after("denied", plain)):
        return _slug(clause), clause
    ruled = _pattern("rule").match(plain)
    rest = plain[ruled.end() :].strip(" ,") if ruled is not None else re.sub(r"^ne |^n'", "", plain)
    if not (_pattern("imperative").match(rest) or (ruled is not None and _INFINITIVE.match(rest))):
        return None
    if ruled is None and not _pattern("lasting").search(rest):
        return None
    return _slug(clause), clause


def _of_oneself(clause: str, plain: str) -> tuple[str, str] | None:
    """A preference, habit or trait, in its own words."""
    if _pattern("complete").fullmatch(plain):
        return _slug(clause), clause
    if _pattern("speaking").match(plain) and _pattern("languages").match(_after("speaking", plain)):
        return _slug(clause), clause
    head = _pattern("first_person").match(plain)
    if head is None or _pattern("addressed").search(plain, head.end()):
        return None
    what = _after("first_person", plain)
    article = re.match(rf"(?:{'|'.join(_statement_phrases('article'))})\s+", what)
    if article is not None and _pattern("kinds_with_article").match(plain):
        is_pointing = _pattern("ordinal").match(what, article.end()) is not None
    else:
        is_pointing = _pattern("pointing").match(what) is not None or _pattern("state").match(what) is not None
    if is_pointing or not 1 <= len(what.split()) <= OBJECT_WORDS_MAX:
        return None
    return _slug(clause), clause


def _after(form: str, plain: str) -> str:
    match = _pattern(form).match(plain)
    return plain[match.end() :].strip(_END) if match is not None else plain


def _slug(clause: str) -> str:
    """The key of a statement that has no name for its thing: its first words."""
    words = _name_words(clause)
    while words and words[0] in _SUBJECTS:
        words = words[1:]
    return "-".join(words[:KEY_WORDS_MAX])[:KEY_CHARS_MAX]
