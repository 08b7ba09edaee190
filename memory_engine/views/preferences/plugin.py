"""The plug-in of preferences."""

from typing import TYPE_CHECKING

from memory_engine.context.rendering import render_system
from memory_engine.context.standing import Situation, StandingBlock, StandingLine
from memory_engine.core.lazy import lazy_module, regex
from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import pieces
from memory_engine.store.passages import Extracted, Text
from memory_engine.views.preferences.events import PreferenceRemoved, PreferenceUpdated
from memory_engine.views.preferences.fold import PREFERENCES

if TYPE_CHECKING:
    from memory_engine.views.preferences import preference, view
else:
    preference = lazy_module("memory_engine.views.preferences.preference")
    view = lazy_module("memory_engine.views.preferences.view")

PLUGIN = Plugin("preferences", events=[PreferenceUpdated, PreferenceRemoved])
PLUGIN.projection(PREFERENCES)
PLUGIN.renderer("preferences")(render_system)


@PLUGIN.context_block("preferences")
async def preferences_block(situation: Situation) -> StandingBlock | None:
    """The preferences of a conversation's user, the latest change last.

    The block is an instruction. What another system's file says is none (see `imported_preferences`).
    """
    user = await situation.user()
    if user is None:
        return None
    every = (await view.Preferences(user).all()).values()
    found = sorted((one for one in every if one.origin != "imported"), key=lambda one: (one.seq, one.key))
    lines = (StandingLine(preference.line_of(one.key, one.value, one.reason), user.id, one.seq) for one in found)
    return StandingBlock(name="preferences", heading="Preferences of the user, to be followed:", lines=tuple(lines))


@PLUGIN.passages(PreferenceUpdated)
def _preference(event: PreferenceUpdated, _seq: int) -> Extracted:
    value = preference.value_text(event.value)
    rule = f" {event.rule.name}" if event.rule is not None else ""
    said = f"{_spaced_key(event.key)}: {value}{rule}"
    key = f"preference:{event.key}"
    texts = tuple(Text(piece, "preference", key=key, about=event.reason) for piece in pieces(said))
    return Extracted(texts, keys=(key,))


@PLUGIN.passages(PreferenceRemoved)
def _preference_removed(event: PreferenceRemoved, _seq: int) -> Extracted:
    return Extracted(keys=(f"preference:{event.key}",))


_WITHIN_WORDS = regex(r"(?<=[a-z0-9])(?=[A-Z])")


def _spaced_key(key: str) -> str:
    return _WITHIN_WORDS.sub(" ", key).replace("_", " ")
