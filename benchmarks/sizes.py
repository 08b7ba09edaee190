"""The size of the file, against the JSON of the payloads in it: of all events, and of the messages alone."""

import memory_engine
from benchmarks.figures import Bar, Figure, Reference
from benchmarks.ours import as_event, database_bytes, payload
from benchmarks.payloads import Message, conversation, recorded
from benchmarks.setting import Setting, say

LANGGRAPH = "LangGraph AsyncSqliteSaver"
SEED = 5


async def size(setting: Setting) -> list[Figure]:
    """Bytes of the closed file, default configuration, messages dispatched one by one."""
    count = setting.size(1_500, 100)
    say(f"  {count:,} messages")
    found = await _against_json(setting, f"{count:,} synthetic messages", [conversation(SEED, count)])
    conversations = recorded(setting.size(1_000, 5))
    if conversations:
        say(f"  {len(conversations)} recorded conversations")
        case = f"{len(conversations)} recorded conversations, {sum(map(len, conversations)):,} messages"
        found += await _against_json(setting, case, conversations)
    found.append(_against_langgraph(setting, count, found[0]))
    return found


async def _against_json(setting: Setting, case: str, conversations: list[list[Message]]) -> list[Figure]:
    """A thread for each conversation. Compactions' events are payloads too: the bar counts them, the other does not."""
    path = setting.new_path("size")
    json_bytes = 0
    async with memory_engine.open(str(path)) as engine:
        for messages in conversations:
            thread = await engine.create_thread()
            for message in messages:
                event = as_event(message)
                json_bytes += len(payload(event))
                await thread.dispatch(event)
        await engine.settle()
        everything = (await engine.stats()).payload_bytes
    total = sum(map(len, conversations))
    detail: dict[str, float | int | str] = {"messages": total, "json_bytes_a_message": json_bytes // total}
    size_kib = database_bytes(path) / 1024
    return [
        Figure(
            bench="size",
            case=case,
            value=size_kib,
            unit="KiB",
            reference=Reference("the JSON of all events' payloads", everything / 1024),
            bar=Bar("ratio", "<=", 2),
            asserted=not setting.quick,
            detail=dict(detail),
        ),
        Figure(
            bench="size",
            case=f"{case}, summaries not counted as payloads",
            value=size_kib,
            unit="KiB",
            reference=Reference("the JSON of the messages' payloads", json_bytes / 1024),
            asserted=False,
            detail=dict(detail),
        ),
    ]


def _against_langgraph(setting: Setting, count: int, ours: Figure) -> Figure:
    reference = setting.peers.missing_reference(LANGGRAPH)
    if LANGGRAPH in setting.peers.names:
        say(f"  {count:,} messages to LangGraph's saver")
        appended = setting.peers.append(LANGGRAPH, SEED, count)
        if appended is not None:
            reference = Reference(f"{LANGGRAPH}, a checkpoint a message", appended.bytes / 1024)
    return Figure(
        bench="size",
        case=f"{count:,} synthetic messages, against LangGraph",
        value=ours.value,
        unit="KiB",
        reference=reference,
        asserted=not setting.quick,
    )
