"""What the cache ledger takes: model calls, their contexts one after the other, and what broke them."""
