"""The scratchpad: an agent's notes for itself, put before the model."""
