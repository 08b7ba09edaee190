"""The built-in views, a folder for each: its events, its rows, and what they answer."""
