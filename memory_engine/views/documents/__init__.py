"""A tenant's documents: what there is, and the passages that search finds in them."""
