"""The plug-in of sessions."""

from memory_engine.plugins import Plugin
from memory_engine.views.sessions.events import SessionBegun, SessionEntryKept, SharedStateSet
from memory_engine.views.sessions.fold import SESSIONS

PLUGIN = Plugin("sessions", events=[SessionBegun, SessionEntryKept, SharedStateSet])
PLUGIN.projection(SESSIONS)
PLUGIN.silent(SessionBegun, SessionEntryKept, SharedStateSet)
