"""The plug-in of statements."""

from memory_engine.plugins import Plugin
from memory_engine.recall.index import StatementDecisions
from memory_engine.views.statements.events import StatementsCompared
from memory_engine.views.statements.fold import STATEMENTS, read_decisions

PLUGIN = Plugin("statements", events=[StatementsCompared])
PLUGIN.projection(STATEMENTS)
PLUGIN.silent(StatementsCompared)
PLUGIN.setting(StatementDecisions(read_decisions))
