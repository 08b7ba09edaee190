"""Indexes of vectors: exact ones, graphs, and the one that chooses."""
