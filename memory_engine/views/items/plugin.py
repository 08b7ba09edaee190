"""The plug-in of items."""

from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import pieces
from memory_engine.store.passages import Extracted, Text
from memory_engine.views.items.events import ItemPut, ItemsDeleted, ItemsUsed
from memory_engine.views.items.fold import ITEMS, item_key

PLUGIN = Plugin("items", events=[ItemPut, ItemsDeleted, ItemsUsed])
PLUGIN.projection(ITEMS)
PLUGIN.silent(ItemsUsed)


@PLUGIN.passages(ItemPut)
def _item_passages(event: ItemPut, _seq: int) -> Extracted:
    """A version takes the place of the one before."""
    key = item_key(event.namespace, event.key)
    said = (piece for text in event.texts() for piece in pieces(text))
    return Extracted(tuple(Text(piece, "item", key=key) for piece in said), keys=(key,))


@PLUGIN.passages(ItemsDeleted)
def _deleted(event: ItemsDeleted, _seq: int) -> Extracted:
    return Extracted(keys=tuple(item_key(name.namespace, name.key) for name in event.items))
