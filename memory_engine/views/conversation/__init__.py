"""Conversation memory: exchanges, the rolling summary, the cycle under way."""
