"""Sessions: what a framework for agents keeps of a conversation, beside the messages in it."""
