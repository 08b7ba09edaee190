"""The plug-in of workspace files."""

from memory_engine.plugins import Plugin
from memory_engine.views.workspace.events import WorkspaceRecorded
from memory_engine.views.workspace.fold import WORKSPACE

PLUGIN = Plugin("workspace", events=[WorkspaceRecorded])
PLUGIN.projection(WORKSPACE)
PLUGIN.silent(WorkspaceRecorded)
