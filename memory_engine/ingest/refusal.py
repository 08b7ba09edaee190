"""The refusal of a recording that no reader reads: the keys seen, and the nearest form."""

from collections.abc import Mapping
from difflib import get_close_matches

PAGE = "docs/how-to/ingest-recordings.md"
KEYS_SHOWN = 12
KEYS_COMPARED, KEY_CHARS_MAX = 100, 64
"""How many keys are compared with those of known forms, and how long these are at most."""
SHARED_MIN = 2
"""The least keys that a file shares with a form which is called near."""
SPELLED_ALIKE = 0.85
"""How alike two keys are that may be versions of one, such as `chat_messages_v9`; 1: equal."""
_SIGNS: Mapping[str, str] = {
    "a message of chat-completions": "role content tool_calls name",
    "a conversation of chat-completions": "messages model tools",
    "an event": "type payload version seq",
    "a session of Claude Code": "type message uuid sessionId parentUuid timestamp",
    "a rollout of Codex": "type payload timestamp",
    "a session of Gemini CLI": "sessionId projectHash startTime messages",
    "a run of SWE-agent": "trajectory history info environment",
    "an event of OpenHands": "id source action observation args timestamp kind tool_call_metadata",
    "a log of Inspect": "eval plan samples status results stats",
    "ChatGPT's export": "mapping current_node title create_time",
    "Claude.ai's export": "chat_messages uuid name created_at",
    "a run of LangSmith": "run_type inputs outputs start_time parent_run_id",
    "an observation of Langfuse": "traceId startTime input output type",
    "a span of OpenInference": "attributes context name start_time parent_id",
    "spans of OpenTelemetry": "resourceSpans scopeSpans spans",
    "a message of LangChain": "lc type id kwargs data",
    "a conversation of ShareGPT": "id conversations from value",
    "results of tau2": "simulations tasks info",
    "contents of Gemini": "contents role parts systemInstruction",
}


NOT_TEXT = f"; its name says that it is neither JSON nor a transcript that is read; {PAGE} lists the forms"


def nearest(value: object, head: Mapping[str, object]) -> str:
    """The end of a refusal: the keys seen, the form they are nearest to, and the page about forms."""
    keys = [*map(str, head), *(map(str, value) if isinstance(value, Mapping) else ())]
    said = f"; {PAGE} lists the forms that are read, and --map reads any other"
    if not keys:
        return said
    if {"ts", "type"} <= set(keys) and {"say", "ask"} & set(keys):
        return "; this is what an editor's extension shows of a task: its messages are in api_conversation_history.json"
    shown = ", ".join(keys[:KEYS_SHOWN]) + (", …" if len(keys) > KEYS_SHOWN else "")
    compared = [key for key in keys[:KEYS_COMPARED] if len(key) <= KEY_CHARS_MAX]
    near = max(_SIGNS, key=lambda form: _likeness(_SIGNS[form].split(), compared))
    is_near = _likeness(_SIGNS[near].split(), compared) > 0
    wanted = f"; the nearest form is {near} (with {', '.join(_SIGNS[near].split()[:4])})" if is_near else ""
    return f" (its keys: {shown}){wanted}{said}"


def _likeness(signs: list[str], keys: list[str]) -> float:
    """Return the share of keys in common or spelled alike, 0 for a single one: many formats have an `id`."""
    shared = sum(bool(get_close_matches(sign, keys, n=1, cutoff=SPELLED_ALIKE)) for sign in set(signs))
    return shared / (len(set(signs)) + len(set(keys)) - shared) if shared >= SHARED_MIN else 0.0
