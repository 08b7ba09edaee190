"""The last part of the demo: three days of an agent and its user, with something for each view of the inspector.

Times are those of the story: an engine with a clock of its own writes it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from memory_engine.agents.lifecycle import AgentLifecycle
from memory_engine.core.clock import to_us
from memory_engine.core.events.base import ToolCall
from memory_engine.core.events.messages import LlmTextResponse, LlmToolCall, ToolResult, UserMessage
from memory_engine.core.events.tasks import TodoCompleted, TodoItem, TodoSet
from memory_engine.engine import Engine
from memory_engine.thread import Thread

THREAD, USER, TENANT, AGENT = "cold-store", "ines", "nordkai", "desk"
TITLE = "three days of a cold store: a rule, a correction, and a wrong alarm"
RULE = "Never email a tenant before I have read the text."
QUESTION = "Why was the alarm set to -16 °C?"
TOLD, ALARM, CORRECTED, ERASED = 1, 46, 49, 56
"""The seqs of the events that tell the rule and the limit, set the alarm, correct the limit, and are erased."""
SMALL = 500
"""Tokens of a context that shows the rule with little room."""
DAYS_AGO = 3
STEP = timedelta(seconds=40)
"""The time from one event to the next."""
TEMPERATURES = (-18.4, -18.1, -17.9, -17.2, -16.8, -16.1, -17.5, -18.2, -18.3, -18.0, -17.8, -18.1)
TODOS = ("Read the sensors each hour", "Set the alarm", "Write a report")
USAGE = {"prompt_tokens": 1_840, "completion_tokens": 96, "total_tokens": 1_936}


class StoryClock:
    """A clock that goes on by `STEP` at each look, and is set to the hours of the story."""

    def __init__(self, now: datetime) -> None:
        self._first = (now - timedelta(days=DAYS_AGO)).replace(hour=0, minute=0, second=0, microsecond=0)
        self._now = self._first

    def set_to(self, day: int, hour: int) -> None:
        """Go to an hour (UTC) of a day of the story, 0 being the first."""
        self._now = self._first + timedelta(days=day, hours=hour)

    def now_us(self) -> int:
        """Return microseconds since 1970-01-01 UTC."""
        self._now += STEP
        return to_us(self._now)


def story_clock() -> StoryClock:
    """Return a clock for a story that ends today."""
    return StoryClock(datetime.now(UTC))


class _Desk:
    """The agent that watches the cold store, without a model: what it says is written down here."""

    def __init__(self, engine: Engine, thread: Thread) -> None:
        self.engine = engine
        self.thread = thread
        self.calls = 0

    async def asked(self, text: str) -> None:
        """A person's message."""
        await self.thread.dispatch(UserMessage(content=text, name="Ines"))

    async def say(self, text: str) -> None:
        """A recorded response of a model, with its usage."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        response = {"id": f"resp-{self.thread.id}-{self.calls}-{len(text)}", "object": "chat.completion", "created": 1}
        await self.thread.record({**response, "model": "gpt-5-mini", "choices": [choice], "usage": USAGE})

    async def use(self, tool: str, arguments: Mapping[str, object], result: str) -> None:
        """A call of a tool with its result."""
        self.calls += 1
        call = ToolCall.create(f"call-{self.calls}", tool, arguments)
        await self.thread.dispatch(LlmToolCall(calls=(call,)))
        await self.thread.dispatch(ToolResult(call_id=call.id, content=result, name=tool))


async def is_told(engine: Engine) -> bool:
    """Whether the story is in a database already."""
    return any(info.id == THREAD for info in await engine.threads())


async def tell_story(engine: Engine, clock: StoryClock) -> None:
    """Write the story into threads of their own."""
    thread = await engine.create_thread(THREAD, user_id=USER, tenant_id=TENANT, agent_id=AGENT)
    desk = _Desk(engine, thread)
    clock.set_to(0, 8)
    await _first_day(desk)
    clock.set_to(1, 22)
    await _second_day(desk)
    clock.set_to(2, 7)
    await _third_day(desk)


async def _first_day(desk: _Desk) -> None:
    """A rule and a preference; what is found is kept."""
    thread, user = desk.thread, desk.engine.user(USER, tenant_id=TENANT)
    await desk.asked(f"Please watch our cold store at night. {RULE} The alarm limit is -16 °C.")
    await user.preferences.update("verbosity", "concise", reason="asked for short answers")
    await thread.dispatch(TodoSet(items=tuple(TodoItem(str(n), text) for n, text in enumerate(TODOS, 1))))
    for _ in range(2):  # the second one is answered by the cache
        await thread.tool_cache.cached_call("list_sensors", {"hall": "B"}, lambda: "B1, B2, B7", duration=8)
    await desk.use("read_sensor", {"sensor": "B7"}, "B7: -18.6 °C, door closed")
    await thread.scratchpad.write("Sensor B7 stands next to the door and reads 0.5 °C too warm.")
    await desk.say(
        "Hall B has the sensors B1, B2 and B7. I read them each hour, and email nobody without your approval."
    )


async def _second_day(desk: _Desk) -> None:
    """A night of readings, a sub-agent, and a compaction."""
    thread = desk.thread
    lead = AgentLifecycle(desk.engine, thread, agent_id=AGENT)
    await lead.start("Watch hall B during the night")
    for hour, degrees in enumerate(TEMPERATURES):
        reading = f"B7: {degrees} °C at {(20 + hour) % 24}:00, compressor {'off' if degrees > -17 else 'on'}"
        await desk.use("read_sensor", {"sensor": "B7", "hour": (20 + hour) % 24}, reading)
    analyst = await lead.subagent("analyst", "Find out why it was warm between midnight and 2 o'clock")
    call = ToolCall.create("call-door", "door_log", {"hall": "B"})
    await analyst.tool_used(call, "door B open from 23:40 to 01:55")
    await analyst.end("Remember that the door of hall B was open from 23:40 to 01:55. The compressor is fine.")
    await lead.end("Hall B was warm because its door was open; the compressor is fine.")
    await thread.dispatch(TodoCompleted(id="1"))
    await thread.compact()
    await desk.say("The door of hall B was open from 23:40 to 01:55. At 01:00 it was -16.1 °C; the compressor is fine.")


async def _third_day(desk: _Desk) -> None:
    """The alarm is set as the first day said, corrected, and a phone number is erased."""
    thread = desk.thread
    await desk.asked("Thank you. Please set the alarm now.")
    await desk.use("set_alarm", {"hall": "B", "limit_celsius": -16}, "alarm of hall B: -16 °C")
    await desk.say("The alarm of hall B is set to -16 °C, the limit that you gave me on the first day.")
    await desk.asked("No, -16 was the old contract: the alarm limit is -18 °C. And please save this as a report.")
    await desk.use("set_alarm", {"hall": "B", "limit_celsius": -18}, "alarm of hall B: -18 °C")
    await thread.dispatch(LlmTextResponse(content="Corrected: the alarm of hall B is set to -18 °C."))
    await thread.promotion.report_saved("Cold store: open door and alarm limit")
    number = UserMessage(content="My private number is +49 170 5550199, in case of an alarm.", name="Ines")
    note = await thread.dispatch(number)
    await thread.admin.erase(seqs=[note.seq], by="ines", reason="a private number")
