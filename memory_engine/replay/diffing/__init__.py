"""What `diff` takes: which chunks belong together, and contexts as bytes and lines."""
