"""Promotion: which of a conversation's findings are worth keeping beyond it, where they go, and why."""
