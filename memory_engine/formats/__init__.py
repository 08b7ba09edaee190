"""Messages of model providers as events, and the parts that they share; one module a format."""
