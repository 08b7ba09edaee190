"""A web page that shows threads, states and their history, over the public API."""
