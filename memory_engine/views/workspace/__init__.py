"""Workspace files: what was recorded of the files in a folder."""
