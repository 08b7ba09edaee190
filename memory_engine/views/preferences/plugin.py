"""The plug-in of preferences."""

from memory_engine.core.codec import encode_json
from memory_engine.core.lazy import regex
from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import pieces
from memory_engine.store.passages import Extracted, Text
from memory_engine.views.preferences.events import PreferenceRemoved, PreferenceUpdated
from memory_engine.views.preferences.fold import PREFERENCES

PLUGIN = Plugin("preferences", events=[PreferenceUpdated, PreferenceRemoved])
PLUGIN.projection(PREFERENCES)


@PLUGIN.passages(PreferenceUpdated)
def _preference(event: PreferenceUpdated, _seq: int) -> Extracted:
    value = event.value if isinstance(event.value, str) else encode_json(event.value).decode()
    rule = f" {event.rule.name}" if event.rule is not None else ""
    said = f"{_words(event.key)}: {value}{rule}"
    key = f"preference:{event.key}"
    texts = tuple(Text(piece, "preference", key=key, about=event.reason) for piece in pieces(said))
    return Extracted(texts, keys=(key,))


@PLUGIN.passages(PreferenceRemoved)
def _preference_removed(event: PreferenceRemoved, _seq: int) -> Extracted:
    return Extracted(keys=(f"preference:{event.key}",))


_WITHIN_WORDS = regex(r"(?<=[a-z0-9])(?=[A-Z])")


def _words(key: str) -> str:
    return _WITHIN_WORDS.sub(" ", key).replace("_", " ")
