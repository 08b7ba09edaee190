"""Logs in PostgreSQL, for more than one machine."""
