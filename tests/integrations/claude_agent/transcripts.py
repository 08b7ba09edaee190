"""Transcripts as the Claude Agent SDK's program writes them: an entry for each block, in a chain."""

from typing import Any

PROJECT = "-home-ann-greenhouse"
SESSION = "5b0c6b8e-5d52-4f0c-a7d5-2f7a5ad4a111"
KEY: Any = {"project_key": PROJECT, "session_id": SESSION}
AGENT: Any = {**KEY, "subpath": "subagents/agent-a41f"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Writer:
    """Writes entries one after the other, each continuing from the one before."""

    def __init__(self, name: str = "e", *, sidechain: bool = False) -> None:
        self._name = name
        self._sidechain = sidechain
        self.entries: list[Any] = []
        self.at: str | None = None

    def add(self, kind: str, message: Any = None, *, parent: Any = ..., **beside: Any) -> str:
        """Add an entry, and return its uuid."""
        uuid = f"{self._name}-{len(self.entries)}"
        entry = {
            "parentUuid": self.at if parent is ... else parent,
            "isSidechain": self._sidechain,
            "userType": "external",
            "cwd": "/home/ann/greenhouse",
            "sessionId": SESSION,
            "version": "2.1.3",
            "type": kind,
            **({} if message is None else {"message": message}),
            "uuid": uuid,
            "timestamp": f"2026-05-04T10:00:{len(self.entries):02}.000Z",
            **beside,
        }
        self.entries.append(entry)
        self.at = uuid
        return uuid

    def said(self, text: Any, **beside: Any) -> str:
        """A prompt."""
        return self.add("user", {"role": "user", "content": text}, **beside)

    def answered(self, *blocks: Any, name: str = "msg_1", **beside: Any) -> str:
        """A response: an entry for each of its blocks."""
        uuid = ""
        for block in blocks:
            found = {"type": "text", "text": block} if isinstance(block, str) else block
            usage = {"input_tokens": 12, "output_tokens": 7}
            message = {
                "id": name, "type": "message", "role": "assistant", "model": "claude-opus-5", "content": [found],
                "stop_reason": None, "stop_sequence": None, "usage": usage,
            }  # fmt: skip
            uuid = self.add("assistant", message, requestId="req_1", **beside)
        return uuid

    def result(self, call_id: str, text: str, **beside: Any) -> str:
        """What a tool gave back, which the client keeps twice."""
        block = {"tool_use_id": call_id, "type": "tool_result", "content": text, "is_error": False}
        told = {"stdout": text, "stderr": "", "interrupted": False}
        return self.add("user", {"role": "user", "content": [block]}, toolUseResult=told, **beside)


def thought(text: str) -> Any:
    """A thinking block."""
    return {"type": "thinking", "thinking": text, "signature": "EqQBCgIYAhIM" + "a" * 40}


def call(call_id: str, command: str) -> Any:
    """A tool_use block."""
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": command}}


def watering(name: str = "e") -> Writer:
    """A talk with thoughts, two calls at once, an image, and entries that are not messages."""
    talk = Writer(name)
    asked = "When are the tomatoes watered?"
    talk.entries.append({"type": "queue-operation", "operation": "enqueue", "content": asked})
    talk.said(asked)
    talk.answered(thought("The schedule is in a file."), "I look into the schedule.")
    first = talk.answered(call(f"{name}t1", "cat schedule.txt"))
    second = talk.answered(call(f"{name}t2", "date +%A"))
    talk.result(f"{name}t1", "tomatoes: every Tuesday at six", parent=first)
    talk.result(f"{name}t2", "Monday, the fourth", parent=second)
    talk.answered("The tomatoes are watered tomorrow at six.", name="msg_2")
    talk.add("system", subtype="turn_duration", durationMs=5120)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    talk.said([image, {"type": "text", "text": "Is this leaf ill?"}])
    talk.answered("The leaf has mildew.", name="msg_3")
    talk.entries.append({"type": "custom-title", "customTitle": "Tomatoes", "sessionId": SESSION})
    return talk
