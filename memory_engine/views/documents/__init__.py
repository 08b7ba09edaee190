"""A tenant's documents, and the passages that search finds in them."""
