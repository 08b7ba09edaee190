"""The scratchpad: what an agent notes for itself, put before the model."""
