"""How long a test waits for what is to come."""

PATIENCE_S = 250.0
"""Far longer than the busiest machine needs, and shorter than pytest's limit: only what hangs fails by it."""
