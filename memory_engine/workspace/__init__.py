"""Workspace files: record the files of a folder in a thread's log, and restore them as of any moment."""

from memory_engine.views.workspace.fold import WorkspaceFile
from memory_engine.workspace.folder import UnrecordedFile, WorkspaceLimits
from memory_engine.workspace.workspace import (
    Workspace,
    WorkspaceRecord,
    WorkspaceRestore,
    WorkspaceRewind,
)

__all__ = [
    "UnrecordedFile",
    "Workspace",
    "WorkspaceFile",
    "WorkspaceLimits",
    "WorkspaceRecord",
    "WorkspaceRestore",
    "WorkspaceRewind",
]
