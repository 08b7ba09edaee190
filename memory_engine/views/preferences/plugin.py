"""The plug-in of preferences."""

from typing import TYPE_CHECKING

from memory_engine.context.rendering import render_system
from memory_engine.context.standing import Situation, StandingBlock, StandingLine
from memory_engine.core.codec import encode_json
from memory_engine.core.lazy import lazy_module, regex
from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import pieces
from memory_engine.store.passages import Extracted, Text
from memory_engine.views.preferences.events import PreferenceRemoved, PreferenceUpdated
from memory_engine.views.preferences.fold import PREFERENCES

if TYPE_CHECKING:
    from memory_engine.views.preferences import view
else:
    view = lazy_module("memory_engine.views.preferences.view")

PLUGIN = Plugin("preferences", events=[PreferenceUpdated, PreferenceRemoved])
PLUGIN.projection(PREFERENCES)
PLUGIN.renderer("preferences")(render_system)


@PLUGIN.context_block("preferences")
async def preferences_block(situation: Situation) -> StandingBlock | None:
    """The preferences of a conversation's user, the latest change last."""
    user = await situation.user()
    if user is None:
        return None
    found = sorted((await view.Preferences(user).all()).values(), key=lambda one: (one.seq, one.key))
    lines = (
        StandingLine(
            f"- {one.key}: {_value_as_text(one.value)}{f' ({one.reason})' if one.reason else ''}", user.id, one.seq
        )
        for one in found
    )
    return StandingBlock(name="preferences", heading="Preferences of the user, to be followed:", lines=tuple(lines))


@PLUGIN.passages(PreferenceUpdated)
def _preference(event: PreferenceUpdated, _seq: int) -> Extracted:
    value = _value_as_text(event.value)
    rule = f" {event.rule.name}" if event.rule is not None else ""
    said = f"{_spaced_key(event.key)}: {value}{rule}"
    key = f"preference:{event.key}"
    texts = tuple(Text(piece, "preference", key=key, about=event.reason) for piece in pieces(said))
    return Extracted(texts, keys=(key,))


@PLUGIN.passages(PreferenceRemoved)
def _preference_removed(event: PreferenceRemoved, _seq: int) -> Extracted:
    return Extracted(keys=(f"preference:{event.key}",))


def _value_as_text(value: object) -> str:
    return value if isinstance(value, str) else encode_json(value).decode()


_WITHIN_WORDS = regex(r"(?<=[a-z0-9])(?=[A-Z])")


def _spaced_key(key: str) -> str:
    return _WITHIN_WORDS.sub(" ", key).replace("_", " ")
