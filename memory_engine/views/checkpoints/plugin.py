"""The plug-in of checkpoints."""

from memory_engine.plugins import Plugin
from memory_engine.views.checkpoints.events import CheckpointSaved, CheckpointsDropped, CheckpointWritten
from memory_engine.views.checkpoints.fold import CHECKPOINTS

PLUGIN = Plugin("checkpoints", events=[CheckpointSaved, CheckpointWritten, CheckpointsDropped])
PLUGIN.projection(CHECKPOINTS)
PLUGIN.silent(CheckpointSaved, CheckpointWritten, CheckpointsDropped)
