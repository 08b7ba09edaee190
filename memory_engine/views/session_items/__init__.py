"""Items of a session: what an agent's runtime keeps of a conversation, item by item, byte for byte."""
