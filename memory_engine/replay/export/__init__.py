"""Logs as files: their lines, what is taken out of them, and what is refused."""
