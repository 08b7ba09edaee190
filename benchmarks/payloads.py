"""Conversations of realistic sizes from a seed: the same messages for the engine and for its peers.

Only the standard library: the peers' environment imports this too.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

Role = Literal["user", "assistant", "call", "result"]

RECORDED = Path(__file__).resolve().parents[2] / "shared" / "data" / "tau_bench"
"""Recorded conversations of an agent and its tools, next to the repository; not part of it."""

_NAMES = """
Amara Bernd Chen Dalia Emeka Farid Greta Hiro Ines Jakub Kaito Leila Mateo Nadia Olu Priya Quinn
Rosa Sven Tariq Uma Viktor Wanjiru Ximena Yusuf Zofia
""".split()
_PLACES = """
Accra Bergen Cusco Dhaka Esfahan Fukuoka Gdansk Havana Izmir Jaipur Kigali Lisbon Montreal Nairobi
Oslo Porto Quito Riga Sofia Tunis Utrecht Valencia Warsaw Zagreb
""".split()
_THINGS = """
invoice shipment booking contract warehouse server certificate subscription passport prescription
report database ticket reservation refund laptop budget roadmap interview meeting itinerary
dashboard pipeline release migration backup apartment insurance payment delivery
""".split()
_STATES = """
late missing duplicated approved cancelled confirmed overdue incomplete archived pending damaged
renewed rejected scheduled postponed closed reopened escalated
""".split()
_VERBS = """
check move cancel confirm compare update split merge book renew explain summarise forward translate
export reconcile schedule upgrade review restore
""".split()
_TAILS = """
before the end of the week
because the customer is waiting
without touching the other one
if that is still possible
as we agreed last time
although the price has gone up
and tell me what it costs
unless somebody has done it already
since the old one expires soon
so that accounting can close the month
even if it takes a little longer
and keep a copy for our records
starting from the next quarter
for everybody on the team
with the same settings as before
once the supplier has answered
""".strip().splitlines()
_TOOLS = ("search_orders", "get_customer", "list_flights", "query_metrics", "read_file", "find_documents")


@dataclass(frozen=True, slots=True)
class Message:
    """One message. A call has `name`, `arguments` (JSON) and `call_id`, its result `name` and `call_id`."""

    role: Role
    text: str
    name: str = ""
    call_id: str = ""
    arguments: str = ""

    def chat(self) -> dict[str, object]:
        """The message in the form of chat completions."""
        if self.role == "call":
            function = {"name": self.name, "arguments": self.arguments}
            calls = [{"id": self.call_id, "type": "function", "function": function}]
            return {"role": "assistant", "content": self.text, "tool_calls": calls}
        if self.role == "result":
            return {"role": "tool", "content": self.text, "name": self.name, "tool_call_id": self.call_id}
        return {"role": self.role, "content": self.text}


def conversation(seed: int, count: int) -> list[Message]:
    """The first `count` messages of the conversation that belongs to `seed`."""
    return list(islice(messages(seed), count))


def messages(seed: int) -> Iterator[Message]:
    """Turns without end: a question, up to two calls with their results, an answer. No text comes twice."""
    chance = random.Random(seed)
    number = 0
    while True:
        yield Message("user", _text(chance, chance.randint(80, 300)))
        for _ in range(chance.choice((0, 1, 1, 2))):
            number += 1
            name, call_id = chance.choice(_TOOLS), f"call_{seed}_{number}"
            yield Message("call", "", name, call_id, _arguments(chance))
            yield Message("result", _result(chance), name, call_id)
        yield Message("assistant", _text(chance, chance.randint(200, 600)))


def recorded(limit: int) -> list[list[Message]]:
    """At most `limit` recorded conversations, without their system prompts; none where they are not there."""
    found: list[list[Message]] = []
    for path in sorted(RECORDED.glob("*.json")):
        conversations = json.loads(path.read_text(encoding="utf-8"))
        found += [[message for raw in one["traj"] for message in _from_chat(raw)] for one in conversations]
    return found[:limit]


def _from_chat(raw: dict[str, object]) -> Iterator[Message]:
    text = str(raw.get("content") or "")
    match raw["role"]:
        case "user":
            yield Message("user", text)
        case "tool":
            yield Message("result", text, str(raw.get("name", "")), str(raw.get("tool_call_id", "")))
        case "assistant":
            calls = raw.get("tool_calls")
            if not isinstance(calls, list) or not calls:
                yield Message("assistant", text)
                return
            for call in calls:
                function = call["function"]
                yield Message("call", text, function["name"], call["id"], function["arguments"])


def _text(chance: random.Random, length: int) -> str:
    sentences: list[str] = []
    size = 0
    while size < length:
        sentence = _sentence(chance)
        sentences.append(sentence)
        size += len(sentence) + 1
    return " ".join(sentences)[: length + 40]


def _sentence(chance: random.Random) -> str:
    thing = chance.choice(_THINGS)
    code = f"{chance.choice('ABCDEFGHKLMNPRSTVWXZ')}{chance.randint(1000, 99999)}"
    match chance.randrange(4):
        case 0:
            return f"Please {chance.choice(_VERBS)} the {thing} {code} {chance.choice(_TAILS)}."
        case 1:
            day = f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
            return f"The {thing} {code} from {chance.choice(_PLACES)} is {chance.choice(_STATES)} since {day}."
        case 2:
            amount = f"{chance.randint(5, 9000)}.{chance.randint(0, 99):02}"
            return f"{chance.choice(_NAMES)} would pay {amount} for the {thing} {chance.choice(_TAILS)}."
        case _:
            name, verb, other = chance.choice(_NAMES), chance.choice(_VERBS), chance.choice(_THINGS)
            return f"{name} asked me to {verb} the {thing} and the {other} {chance.choice(_TAILS)}."


def _day(chance: random.Random) -> str:
    return f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"


def _record(chance: random.Random) -> dict[str, object]:
    return {
        "id": f"{chance.choice(_THINGS)[:3].upper()}-{chance.randint(10_000, 999_999)}",
        "owner": f"{chance.choice(_NAMES).lower()}_{chance.randint(100, 9999)}",
        "item": chance.choice(_THINGS),
        "status": chance.choice(_STATES),
        "city": chance.choice(_PLACES),
        "amount": round(chance.uniform(5, 5000), 2),
        "updated": f"{_day(chance)}T{chance.randint(0, 23):02}:15:00Z",
    }


def _arguments(chance: random.Random) -> str:
    wanted = _record(chance)
    keys = chance.sample(sorted(wanted), chance.randint(1, 4))
    return json.dumps({key: wanted[key] for key in keys} | {"limit": chance.choice((5, 10, 20, 50))})


def _result(chance: random.Random) -> str:
    """Rows as JSON, 300 to 4,000 characters, the short ones more often."""
    length = int(300 * (4000 / 300) ** chance.random())
    rows: list[dict[str, object]] = []
    while not rows or 180 * (len(rows) + 1) < length:
        rows.append(_record(chance))
    return json.dumps({"total": chance.randint(len(rows), 500), "rows": rows})
