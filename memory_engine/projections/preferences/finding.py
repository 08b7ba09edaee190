"""Which preferences apply: by id in a known flow, by likeness to a query, and along relations from those."""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from memory_engine.codec import encode_json
from memory_engine.projections.preferences.domain import Domain
from memory_engine.projections.preferences.kinds import Kind
from memory_engine.projections.preferences.preference import Preference, PreferenceRow, Standing
from memory_engine.recall.base import Match
from memory_engine.recall.similarity import Corpus
from memory_engine.regex import regex

HOPS = 2
LIMIT = 20
SHOWN_WORDS_MAX = 6
SCORE_DIGITS = 6

_ROW = msgspec.json.Decoder(PreferenceRow)
_WITHIN_WORDS = regex(r"(?<=[a-z0-9])(?=[A-Z])")


class ApplicablePreference(msgspec.Struct, frozen=True):
    """A preference that applies: `score` from 0 to 1, and the steps that led to it, the first one first."""

    preference: Preference
    score: float
    why: tuple[str, ...]


class Applicable(msgspec.Struct, frozen=True):
    """What applies, the highest score first, equal ones by key.

    `how` says by what a query was compared: `"embedding"`, `"lexical"`, or empty where nothing was like
    it; `failure` why words had to do although there is an embedder.
    """

    found: tuple[ApplicablePreference, ...] = ()
    how: str = ""
    failure: str = ""

    def __iter__(self) -> Iterator[ApplicablePreference]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    @property
    def values(self) -> dict[str, object]:
        """The values by key, in the same order."""
        return {one.preference.key: one.preference.value for one in self.found}


class Reached(msgspec.Struct, frozen=True):
    """A key on the way: how strongly it applies, and by which steps."""

    score: float
    why: tuple[str, ...]


def starts(domain: Domain, flow: str | None, matches: list[Match]) -> dict[str, Reached]:
    """Where to start: the keys of the flow, and what is like the query. A key of the flow needs no likeness."""
    found = {match.key: Reached(match.score, (_similar(match),)) for match in matches}
    by_id = domain.of_flow(flow) if flow is not None else ()
    return {**found, **{key: Reached(1.0, (f"id:{flow}",)) for key in by_id}}


def _similar(match: Match) -> str:
    words = ", ".join(match.shared[:SHOWN_WORDS_MAX])
    by = "embedding" if match.how == "embedding" else words or "spelling"
    return f"similar {match.score:.2f}: {by}"


def follow(found: Mapping[str, Reached], domain: Domain, hops: int) -> dict[str, Reached]:
    """All that at most `hops` relations lead to, each with its best way.

    A step leaves a share of the score, at most all of it, so a cycle never makes anything better and ends.
    """
    best = dict(found)
    frontier = dict(found)
    for _ in range(hops):
        reached: dict[str, Reached] = {}
        for key in sorted(frontier):
            kind = domain.kind(key)
            for other, weight in sorted(kind.related.items()) if kind is not None else ():
                score = round(frontier[key].score * weight, SCORE_DIGITS)
                if score > (best[other].score if other in best else 0.0):
                    step = f"related to {key} ×{weight:g}"
                    best[other] = reached[other] = Reached(score, (*frontier[key].why, step))
        frontier = reached
    return best


def ranked(
    reached: Mapping[str, Reached], preference: Callable[[str], Preference | None], limit: int
) -> tuple[ApplicablePreference, ...]:
    """Those that have a value, best first."""
    found: list[ApplicablePreference] = []
    for key, way in sorted(reached.items(), key=lambda item: (-item[1].score, item[0])):
        if len(found) >= limit:
            break
        if (holds := preference(key)) is not None:
            found.append(ApplicablePreference(holds, way.score, way.why))
    return tuple(found)


def corpus(domain: Domain, stored: Mapping[str, bytes], standing: Standing) -> Corpus:
    """The texts that a query is compared with: stored rows (encoded), and what holds without being stored."""
    others = {key: standing.get(key) for key in standing.keys(()) if key not in stored}
    tokens: dict[str, object] = {**others, **stored}

    def text(key: str) -> str:
        token = tokens[key]
        row = _ROW.decode(token) if isinstance(token, bytes) else token
        return text_of(row, domain.kind(key)) if isinstance(row, PreferenceRow | Preference) else ""

    return Corpus(tokens, text)


def text_of(preference: Preference | PreferenceRow, kind: Kind | None) -> str:
    """What a preference says, in words: key, name, description, value, and the name of its rule."""
    key = _WITHIN_WORDS.sub(" ", preference.key)
    told = (kind.name, kind.description) if kind is not None else ()
    value = preference.value
    said = value if isinstance(value, str) else "" if value is None else encode_json(value).decode()
    rule = preference.rule.name if preference.rule is not None else ""
    return ". ".join(filter(None, (key.replace("_", " "), *told, said, rule)))


def decoded(stored: Mapping[str, bytes]) -> Callable[[str], PreferenceRow | None]:
    """Reads rows out of encoded ones."""

    def row(key: str) -> PreferenceRow | None:
        encoded = stored.get(key)
        return _ROW.decode(encoded) if encoded is not None else None

    return row
