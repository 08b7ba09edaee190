"""A chat engine of LlamaIndex on a memory; needs the extra `llama-index`. The second run goes on."""

from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer

from memory_engine import sync
from memory_engine.integrations.llama_index import MemoryEngineChatStore


def main() -> None:
    """Two turns; the model's place, a mock, says again what it is given."""
    with sync.open("llama_index.db") as engine:
        store = MemoryEngineChatStore(engine, user_id="ann")
        memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="chat", token_limit=8_000)
        chat = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
        for text in ("My cat is called Tom.", "Do you know my cat?"):
            chat.chat(text)
            print(f"{text} The history has {len(memory.get_all())} messages.")


if __name__ == "__main__":
    main()
