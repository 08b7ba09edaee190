"""A graph of LangGraph on a memory; needs the extra `langgraph`. The second run goes on where the first one ended."""

import asyncio
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

import memory_engine
from memory_engine.integrations.langgraph import MemoryEngineSaver
from memory_engine.integrations.langgraph_store import MemoryEngineStore


class State(TypedDict):
    """The state of the graph: a conversation."""

    messages: Annotated[list[AnyMessage], add_messages]


async def answer(state: State) -> dict[str, Any]:
    """The place of a model, which this example does without."""
    return {"messages": [AIMessage(content=f"I have read {len(state['messages'])} messages.")]}


async def main() -> None:
    """Two turns, then what the memory makes of them."""
    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    async with memory_engine.open("langgraph.db") as engine:
        graph = builder.compile(checkpointer=MemoryEngineSaver(engine, user_id="ann"))
        for text in ("My cat is called Tom.", "Do you know my cat?"):
            state = await graph.ainvoke({"messages": [HumanMessage(text)]}, {"configurable": {"thread_id": "chat"}})
            print(f"{text} -> {state['messages'][-1].content}")
        thread = engine.thread("chat")
        for hit in await thread.search("what is the cat called?", limit=1):
            print(f"found in event {hit.seq}: {hit.text}")
        store = MemoryEngineStore(engine)  # what outlives a thread; graphs take it as `compile(store=store)`
        await store.aput(("ann", "facts"), "home", {"text": "Ann lives in Rome."})
        for item in await store.asearch(("ann",), query="where does Ann live?"):
            print(f"kept as {item.key}: {item.value['text']}")


if __name__ == "__main__":
    asyncio.run(main())
