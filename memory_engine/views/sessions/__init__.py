"""Sessions: an agent framework's record of a conversation, in addition to the messages in it."""
