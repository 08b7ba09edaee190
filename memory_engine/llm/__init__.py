"""Language models and embedders: the protocols, and the one adapter that calls providers."""
