"""Values and pure rules, without I/O: events, chunks, operations, state, and what folds them."""
