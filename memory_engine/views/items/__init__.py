"""Items: named values in namespaces, each change an event, each version readable later."""
