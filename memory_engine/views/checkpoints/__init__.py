"""Checkpoints: the state of a graph's run after each of its steps, kept as what has changed."""
