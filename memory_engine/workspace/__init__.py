"""Workspace files: record the files of a folder in a thread's log, and restore them as of any moment."""

from memory_engine.workspace.folder import LeftOut
from memory_engine.workspace.workspace import (
    Workspace,
    WorkspaceFile,
    WorkspaceLimits,
    WorkspaceRecord,
    WorkspaceRestore,
    WorkspaceRewind,
)

__all__ = [
    "LeftOut",
    "Workspace",
    "WorkspaceFile",
    "WorkspaceLimits",
    "WorkspaceRecord",
    "WorkspaceRestore",
    "WorkspaceRewind",
]
