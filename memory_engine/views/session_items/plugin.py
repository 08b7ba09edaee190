"""The plug-in of session items."""

from memory_engine.plugins import Plugin
from memory_engine.views.session_items.events import SessionItemAdded, SessionItemRemoved
from memory_engine.views.session_items.fold import SESSION_ITEMS

PLUGIN = Plugin("session_items", events=[SessionItemAdded, SessionItemRemoved])
PLUGIN.projection(SESSION_ITEMS)
PLUGIN.silent(SessionItemAdded, SessionItemRemoved)
