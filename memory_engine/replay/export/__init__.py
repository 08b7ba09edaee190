"""Logs as files: export with redaction, and import with its checks."""
