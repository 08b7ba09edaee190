"""Values and pure rules, without I/O: events, chunks, operations, state, and the rules that apply them."""
