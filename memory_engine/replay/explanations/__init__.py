"""What `why` takes: reading what chunks come from, and the tree that says so."""
