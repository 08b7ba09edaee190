"""The brief in front of the messages that LlamaIndex gives to a model."""

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import ChatMemoryBuffer

from memory_engine import sync
from memory_engine.integrations.llama_index import MemoryEngineChatStore

RULE = "Never touch the table ledger_2019 without asking me."


def test_a_short_buffer_is_shown_with_the_brief() -> None:
    """In front of the newest messages; the store keeps the talk alone."""
    with sync.open(":memory:") as engine:
        store = MemoryEngineChatStore(engine)
        memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="chat", token_limit=40)
        memory.put(ChatMessage(role=MessageRole.USER, content=RULE))
        for n in range(8):
            memory.put(ChatMessage(role=MessageRole.ASSISTANT, content="Noted."))
            memory.put(ChatMessage(role=MessageRole.USER, content=f"How many parcels are in depot {n}?"))
        brief, *shown = store.with_brief("chat", memory.get())
        assert memory.get() == shown
        assert (MessageRole.USER, True) == (brief.role, RULE in str(brief.content))
        assert 17 == len(store.get_messages("chat"))


def test_a_system_message_stays_first() -> None:
    """And a key without messages has no brief."""
    with sync.open(":memory:") as engine:
        store = MemoryEngineChatStore(engine)
        given = [ChatMessage(role=MessageRole.SYSTEM, content="Be kind."), ChatMessage(content="Hello")]
        assert given == store.with_brief("chat", given)
        store.add_message("chat", ChatMessage(content=RULE))
        system, brief, hello = store.with_brief("chat", given)
        assert given == [system, hello]
        assert RULE in str(brief.content)
