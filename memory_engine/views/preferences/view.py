"""A user's preferences: the handle."""

from collections.abc import Mapping
from types import MappingProxyType

from memory_engine.core.arguments import checked_name, checked_number, checked_text, checked_type
from memory_engine.core.clock import to_us
from memory_engine.core.records import NewEvent
from memory_engine.errors import PreferenceError
from memory_engine.language.secrets import MASK, tells_secret
from memory_engine.projections.base import ReadableRows
from memory_engine.recall.likeness import DESCRIPTIONS, TextIndex
from memory_engine.recall.service import Recall
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.preferences.domain import Domain
from memory_engine.views.preferences.events import PreferenceOrigin, PreferenceRemoved, PreferenceUpdated, RuleReference
from memory_engine.views.preferences.fold import PREFERENCES, Preference
from memory_engine.views.preferences.preference import (
    HOPS,
    LIMIT,
    Applicable,
    Applied,
    Standing,
    apply_rules,
    corpus,
    decoded,
    follow,
    ranked,
    starts,
)
from memory_engine.views.preferences.rules import same

LEARNED: frozenset[PreferenceOrigin] = frozenset({"agent", "promotion", "imported"})
"""The origins of preferences that were not set by hand."""
APPLIED_MAX = 200
"""The number of preferences whose rules one `apply` considers, those of the flow first."""
_UNSET = object()
_NOTHING: Mapping[str, object] = MappingProxyType({})


def check_preference(
    domain: Domain, key: str, value: object, rule: RuleReference | None = None, *, origin: PreferenceOrigin
) -> None:
    """Raise what `Preferences.update` raises for a preference that may not be set."""
    domain.check(key, value, rule)
    given = (value, rule.arguments if rule is not None else None)
    if origin in LEARNED and any(tells_secret(key, one) for one in given):
        why = 'it tells a secret; set it with origin="explicit" if its user wants it kept'
        raise PreferenceError(key, MASK, why)


class Preferences:
    """Values and rules that change how agents behave towards one user, in all conversations. Reads come from memory."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    # one preference

    async def update(  # noqa: PLR0913 - what the event holds, by keyword
        self,
        key: str,
        value: object = _UNSET,
        *,
        rule: RuleReference | None = None,
        reason: str = "",
        origin: PreferenceOrigin = "explicit",
        event_id: str = "",
    ) -> Preference:
        """Set a preference: a value, a rule, or a rule with a value; returns the preference under the key.

        Raises `PreferenceError` for a value that the domain does not allow, and for a secret that only the agent wants
        kept (`origin="agent"`), `InvalidIdentifier` for a key that is empty or that no store can hold, and the errors
        of `dispatch`; then nothing was written.
        """
        checked_type("rule", rule, (RuleReference, type(None)), give="a RuleReference")
        if value is _UNSET and rule is None:
            raise PreferenceError(key, None, "neither a value nor a rule was given")
        event = self._updated(key, None if value is _UNSET else value, rule, origin, reason)
        receipt = await self._thread.dispatch(event, event_id=event_id)
        standing = await self.find(key)
        if standing is not None:
            return standing
        return Preference(  # it was removed meanwhile
            key=key, value=event.value, rule=rule, kind=event.kind, origin=origin, reason=reason,
            seq=receipt.seq, event_id=receipt.event_id, updated_at_us=to_us(receipt.recorded_at),
        )  # fmt: skip

    def _updated(
        self, key: str, value: object, rule: RuleReference | None, origin: PreferenceOrigin, reason: str
    ) -> PreferenceUpdated:
        check_preference(self._domain, key, value, rule, origin=origin)
        kind = key if self._domain.kind(key) is not None else ""
        return PreferenceUpdated(key=key, value=value, rule=rule, kind=kind, origin=origin, reason=reason)

    async def remove(self, key: str, *, reason: str = "") -> bool:
        """Restore the persona's value or the default; returns whether anything was stored. If not, records no event."""
        checked_text("reason", reason)
        checked_text("key", key)
        if (await self._thread.rows(PREFERENCES)).get(key) is None:
            return False
        await self._thread.dispatch(PreferenceRemoved(key=key, reason=reason))
        return True

    async def get(self, key: str, default: object = None, *, at: int | None = None) -> object:
        """The current value: the stored one, else the persona's, else the domain's default, else `default`.

        `at`: as of an earlier seq.
        """
        checked_text("key", key)
        rows = await self._thread.rows(PREFERENCES, at=at)
        row = rows.get(key)
        if row is not None:
            return row.value
        found = self._standing(rows).get(key)
        return found.value if found is not None else default

    async def find(self, key: str, *, at: int | None = None) -> Preference | None:
        """The current preference under a key, with its origin. `at`: as of an earlier seq."""
        checked_text("key", key)
        return self._standing(await self._thread.rows(PREFERENCES, at=at)).get(key)

    # all of them

    async def all(self, *, at: int | None = None) -> dict[str, Preference]:
        """Every current preference by key, in order of keys."""
        rows = await self._thread.rows(PREFERENCES, at=at)
        standing = self._standing(rows)
        found = ((key, standing.get(key)) for key in standing.keys(rows.keys()))
        return {key: preference for key, preference in found if preference is not None}

    async def seed(
        self, answers: Mapping[str, object] = _NOTHING, *, persona: str | None = None
    ) -> tuple[Preference, ...]:
        """Onboarding: store answers, the persona, and the domain's seeds for open questions; all or nothing.

        Values set in other ways stay, and so do those of an earlier onboarding, unless there are new answers.
        Idempotent. Returns the preferences it set. Raises the errors of `update`.
        """
        checked_name("persona", persona)
        checked_type("answers", answers, Mapping, give="a mapping of keys to values")
        domain = self._domain
        rows = await self._thread.rows(PREFERENCES)
        given = {**answers, **({domain.persona_key: persona} if persona is not None else {})}
        chosen = given.get(domain.persona_key)
        of_persona = (
            domain.personas.get(chosen, {}) if isinstance(chosen, str) else self._standing(rows).persona_values()
        )
        seeds = {
            kind.key: kind.seed
            for kind in domain.kinds
            if kind.seed is not None and kind.key not in of_persona and rows.get(kind.key) is None
        }
        events = [self._updated(key, value, None, "onboarding", "") for key, value in {**seeds, **given}.items()]
        new = [event for event in events if _is_news(rows.get(event.key), event.value)]
        await self._thread.dispatch_all([NewEvent(event) for event in new])
        found = [await self.find(event.key) for event in new]
        return tuple(preference for preference in found if preference is not None)

    # those that apply

    async def applicable(  # noqa: PLR0913 - each bound of the search, by keyword
        self,
        flow: str | None = None,
        query: str | None = None,
        *,
        hops: int = HOPS,
        limit: int = LIMIT,
        threshold: float | None = None,
        at: int | None = None,
    ) -> Applicable:
        """The preferences that apply, each with a score and the reason; includes the persona's and defaults.

        In a `flow`, those that the domain ties to it apply, with score 1. A preference similar to the `query` (the
        user's wish, in their words) applies with its similarity as score, if that reaches the threshold. From these, at
        most `hops` relations are followed, each keeping its share of the score. Without flow and query nothing applies.
        `at`: as of an earlier seq.
        """
        checked_number("threshold", 0 if threshold is None else threshold)
        checked_type("hops", hops, int, give="a number of relations to follow")
        checked_type("limit", limit, int, give="a number of preferences")
        for what, value in (("flow", flow), ("query", query)):
            checked_text(what, "" if value is None else value)
        rows = await self._thread.rows(PREFERENCES, at=at)
        if query is None:
            standing, matches = self._standing(rows), []
        else:
            # while a text is embedded the rows may change: compare and return rows of one moment
            stored = rows.encoded()
            standing = Standing(self._domain, decoded(stored))
            least = DESCRIPTIONS if threshold is None else threshold
            compared = corpus(self._domain, stored, standing)
            matches = await self._index(at).search(query, compared, limit=limit, threshold=least)
        reached = follow(starts(self._domain, flow, matches), self._domain, hops)
        how, failure = (matches[0].how, matches[0].failure) if matches else ("", "")
        return Applicable(ranked(reached, standing.get, limit), how, failure)

    async def apply(
        self, situation: Mapping[str, object], *, flow: str | None = None, query: str | None = None
    ) -> Applied:
        """Apply the rules whose conditions the situation meets: slots by name, a template's text under `"template"`.

        With a flow or a query, uses the rules of what is `applicable` (the best 200); else all. Rules that this process
        does not know are listed as `unknown`, rules that raise as `failed`. Writes nothing.
        """
        checked_type("situation", situation, Mapping, give="a mapping of names to values")
        if flow is None and query is None:
            preferences = list((await self.all()).values())
        else:
            found = await self.applicable(flow, query, limit=APPLIED_MAX)
            preferences = [one.preference for one in found]
        return apply_rules(situation, preferences, self._domain.rules)

    @property
    def _domain(self) -> Domain:
        return self._thread.kernel.made(Domain)

    def _standing(self, rows: ReadableRows[Preference]) -> Standing:
        return Standing(self._domain, rows.get)

    def _index(self, at: int | None) -> TextIndex:
        kernel = self._thread.kernel
        if at is not None:
            return kernel[Recall].similarity_now()
        return kernel[Recall].similarity(self._thread.id, PREFERENCES.name)


def _is_news(row: Preference | None, value: object) -> bool:
    """Whether onboarding may set this value, and it changes anything."""
    return row is None or (row.origin == "onboarding" and not same(row.value, value))
