"""Messages of model providers as events, and the parts that they share; a module or folder for each format."""
