"""Retention: what is old enough is removed by rules, through the same acts that a person would use."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Literal

import msgspec
from attrs import define, field, frozen

from memory_engine.administration.erasing import ErasurePlan, delete, erase_events
from memory_engine.administration.holds import check_not_held
from memory_engine.core.arguments import (
    PathLike,
    checked_file,
    checked_flag,
    checked_list,
    checked_text,
    checked_type,
    set_tuples,
)
from memory_engine.core.bounded import read_file
from memory_engine.core.events.memory import EventsErased, MemoryForget, ThreadCleared
from memory_engine.core.json_form import JsonForm
from memory_engine.core.lazy import regex
from memory_engine.core.threads import ACTIVE, ARCHIVED, Head, ThreadRecord
from memory_engine.errors import InvalidArgument, InvalidRetention, LegalHold, MemoryEngineError
from memory_engine.projections.base import event_types
from memory_engine.runtime import life
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.acts import DESTROYING, Act
from memory_engine.store.protocol import ThreadFilter

RETENTION = "retention"
_SAID = frozenset({"user", "assistant", "tool"})
_OWN = frozenset({EventsErased.event_type, MemoryForget.event_type, ThreadCleared.event_type})
"""Events of erasing itself: a thread is not in use because something was erased from it."""
_AGE = regex(r"(\d+) ?(minute|hour|day|week)s?")

_log = logging.getLogger("memory_engine.retention")


class RetentionRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The treatment of events older than `older_than`.

    `delete` and `archive` apply to whole threads to which nothing was added for that long. `erase` and `forget` apply
    to events recorded before: those of these `types`, or those that a `view` reads, or without either what was said and
    done (messages, calls and results). Threads are of exactly this `kind` (a conversation, user, tenant, agent, …), and
    of the tenant and the user, if given; `tenant_id=""` means threads without a tenant.

    Raises `InvalidRetention` for a rule that cannot be followed.
    """

    act: Literal["delete", "erase", "forget", "archive"]
    older_than: timedelta
    kind: str = "conversation"
    tenant_id: str | None = None
    user_id: str | None = None
    types: tuple[str, ...] = ()
    view: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        set_tuples(self, "types")
        if self.act not in ("delete", "erase", "forget", "archive"):
            raise InvalidRetention(self.called, f"act is delete, erase, forget or archive, not {self.act!r}")
        if self.older_than <= timedelta():
            raise InvalidRetention(self.called, "older_than is a time above zero")
        if self.act in ("delete", "archive") and (self.types or self.view):
            raise InvalidRetention(self.called, f"{self.act} is about whole threads: leave types and view out")
        if self.types and self.view:
            raise InvalidRetention(self.called, "give types of events, or a view, not both")

    @property
    def called(self) -> str:
        """Its name, else what it does."""
        return self.name or f"{self.act} {self.kind}"


@frozen(kw_only=True)
class RuleOutcome(JsonForm):
    """The effect of a rule, done or planned: `threads`, each with the number of events that it selected there.

    `kept` are threads that it selected but left, each with the reason. `acts` are its erasures and deletions.
    """

    rule: str
    act: str
    threads: Mapping[str, int]
    kept: Mapping[str, str]
    acts: tuple[str, ...] = ()


@frozen(kw_only=True)
class RetentionReport(JsonForm):
    """The outcome of each rule. `act` is empty in a dry run, and if nothing was old enough."""

    act: str
    is_dry_run: bool
    rules: tuple[RuleOutcome, ...]


def read_rules(source: PathLike) -> tuple[RetentionRule, ...]:
    """The rules in a TOML file: one table `[[rule]]` each, with `older_than` as text such as `"90 days"`.

    Raises `InvalidRetention`, `OSError` for a file that cannot be read.
    """
    try:
        found = msgspec.toml.decode(read_file(checked_file("source", source)), type=dict[str, list[dict[str, object]]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRetention(str(source), str(error)) from None
    if found.keys() != {"rule"} or not found["rule"]:
        raise InvalidRetention(str(source), "it holds tables [[rule]] and nothing else")
    return tuple(_rule(f"{source}, rule {n}", table) for n, table in enumerate(found["rule"], 1))


def read_age(text: str) -> timedelta:
    """`"90 days"`, `"12 hours"`, `"2 weeks"` or `"30 minutes"`. Raises `ValueError`."""
    age = _AGE.fullmatch(text)
    if age is None:
        raise ValueError(f'{text!r} is not an age: write "90 days", "12 hours", "2 weeks" or "30 minutes"')
    return timedelta(**{f"{age[2]}s": int(age[1])})


def _rule(where: str, table: Mapping[str, object]) -> RetentionRule:
    try:
        age = read_age(str(table.get("older_than", "")))
        return msgspec.convert({**table, "older_than": age}, RetentionRule)
    except (ValueError, OverflowError) as error:  # a ValidationError of msgspec is one
        raise InvalidRetention(where, str(error)) from None


async def retain(
    kernel: Kernel, rules: Sequence[RetentionRule], *, by: str = "", dry_run: bool = False
) -> RetentionReport:
    """Follow rules, in their order; see `StoreAdmin.retain`."""
    rules = _checked_rules(kernel, rules)
    checked_text("by", by)
    checked_flag("dry_run", dry_run)
    if not dry_run:
        kernel.check_writable("retention")
    held: list[LegalHold] = []
    outcomes = [await _Following(kernel, rule, by, dry_run).run(held) for rule in rules]
    act = ""
    if not dry_run and any(one.threads for one in outcomes):
        act = kernel.new_id()
        now = kernel.now_us()
        plan = msgspec.json.encode(list(rules)).decode()
        told = msgspec.json.encode([one.as_data() for one in outcomes]).decode()
        await kernel.store.put_act(
            Act(id=act, kind=RETENTION, plan=plan, by=by, asked_at_us=now, done_at_us=now, outcome=told)
        )
    if held and not dry_run:
        raise held[0]
    return RetentionReport(act=act, is_dry_run=dry_run, rules=tuple(outcomes))


def retain_every(kernel: Kernel, every: timedelta, rules: Sequence[RetentionRule], by: str) -> Callable[[], None]:
    """Follow rules now and again after each `every`, until the engine closes or you call the returned function.

    Errors are logged, and the rules are tried again the next time. Raises `InvalidArgument`, `InvalidRetention`.
    """
    if checked_type("every", every, timedelta, give="a timedelta") <= timedelta():
        raise InvalidArgument("every", every, "give a time above 0")
    known = _checked_rules(kernel, rules)
    checked_text("by", by)

    async def keep_retaining() -> None:
        while True:
            try:
                await retain(kernel, known, by=by)
            except MemoryEngineError as error:
                _log.warning("%s", error)
            await asyncio.sleep(every.total_seconds())

    task = kernel.tasks.spawn(keep_retaining(), until_close=True)

    def end() -> None:
        task.cancel()

    return end


def _checked_rules(kernel: Kernel, rules: Sequence[RetentionRule]) -> tuple[RetentionRule, ...]:
    checked = checked_list("rules", rules, RetentionRule, each="rules of retention")
    for rule in checked:
        _types_of(kernel, rule)
    return checked


def _types_of(kernel: Kernel, rule: RetentionRule) -> frozenset[str]:
    """The types of the events that a rule is about. Raises `InvalidRetention` for one, or a view, that is not there."""
    known = {cls.event_type for cls in kernel.events.classes()}
    if rule.view:
        read = {view.name: (event_types(view) or frozenset()) - _OWN for view in kernel.projections}
        if not read.get(rule.view):
            listed = ", ".join(sorted(filter(read.get, read)))
            raise InvalidRetention(rule.called, f"no view {rule.view!r} says which events it reads; these do: {listed}")
        return read[rule.view]
    unknown = sorted(set(rule.types) - known)
    if unknown:
        raise InvalidRetention(rule.called, f"no event is of type {', '.join(map(repr, unknown))}")
    return frozenset(rule.types) - _OWN or frozenset(name for name in known if kernel.events.role(name) in _SAID)


@define
class _Following:
    """One rule is followed."""

    _kernel: Kernel
    _rule: RetentionRule
    _by: str
    _dry_run: bool
    _kept: dict[str, str] = field(factory=dict)

    async def run(self, held: list[LegalHold]) -> RuleOutcome:
        """Do it; holds that were in the way are added to `held`."""
        rule, kernel = self._rule, self._kernel
        before_us = kernel.now_us() - rule.older_than // timedelta(microseconds=1)
        where = ThreadFilter(kind=rule.kind, tenant_id=rule.tenant_id, user_id=rule.user_id)
        found = await kernel.store.threads(where)
        by_thread = rule.act in ("delete", "archive")
        chosen = await (self._threads(found, before_us) if by_thread else self._events(found, before_us))
        for thread_id in list(chosen):
            try:
                await check_not_held(kernel.store, [thread_id] if rule.act != "archive" else [])
            except LegalHold as error:
                self._leave(chosen, thread_id, error, held)
        acts = () if self._dry_run or not chosen else await self._do(chosen, held)
        return RuleOutcome(
            rule=rule.called,
            act=rule.act,
            threads={thread_id: len(ids) for thread_id, ids in chosen.items()},
            kept=self._kept,
            acts=acts,
        )

    def _leave(
        self, chosen: dict[str, Sequence[str]], thread_id: str, error: MemoryEngineError, held: list[LegalHold]
    ) -> None:
        del chosen[thread_id]
        self._kept[thread_id] = str(error)
        if isinstance(error, LegalHold):
            held.append(error)

    async def _threads(self, found: Sequence[tuple[ThreadRecord, Head]], before_us: int) -> dict[str, Sequence[str]]:
        """The threads that nothing was added to since."""
        chosen: dict[str, Sequence[str]] = {}
        for record, head in found:
            is_open = head.status == ACTIVE or self._rule.act == "delete"
            if is_open and record.created_at_us <= before_us and await self._is_idle(record, head, before_us):
                chosen[record.id] = ()
        while self._rule.act == "delete":
            forks = {one: await self._kernel.store.forks(one) for one in chosen}
            shared = {one: [fork for fork in of if fork not in chosen] for one, of in forks.items()}
            left = {one: f"shares its past with {', '.join(of)}" for one, of in shared.items() if of}
            if not left:
                break
            self._kept.update(left)
            chosen = {one: () for one in chosen if one not in left}
        return chosen

    async def _is_idle(self, record: ThreadRecord, head: Head, before_us: int) -> bool:
        after = await self._kernel.store.seq_at(record.id, before_us)
        async for row in self._kernel.reader.walk(record.id, after=after, upto=head.seq, raw=True):
            if row.type not in _OWN:
                return False
            after = row.seq
        return after >= head.seq

    async def _events(self, found: Sequence[tuple[ThreadRecord, Head]], before_us: int) -> dict[str, Sequence[str]]:
        """The events that were recorded until then, but for those that are forgotten, or erased, already."""
        kernel, types = self._kernel, _types_of(self._kernel, self._rule)
        done = await self._erased()
        chosen: dict[str, Sequence[str]] = {}
        for record, head in found:
            if self._rule.act == "forget" and head.status == ARCHIVED:
                continue
            upto = await kernel.store.seq_at(record.id, before_us)
            after = record.forked_from.seq if record.forked_from is not None else 0  # the others are its origin's
            hidden = await self._hidden(record.id) if self._rule.act == "forget" else frozenset()
            gone = {one for plan in done if plan.means(record) for one in plan.events.get(record.id, ())}
            rows = kernel.reader.walk(record.id, after=after, upto=upto, types=types, raw=True)
            ids = [row.id async for row in rows if row.seq not in hidden and row.id not in gone]
            if ids:
                chosen[record.id] = ids
        return chosen

    async def _hidden(self, thread_id: str) -> frozenset[int]:
        forgotten = (await self._kernel.reader.forgotten(thread_id)).events
        return frozenset(seq for one in forgotten if isinstance(one.event, MemoryForget) for seq in one.event.origins())

    async def _erased(self) -> list[ErasurePlan]:
        """The events that earlier acts erased: some events had no text, and look the same.

        A role of a server that reaches some tenants only can say that an act is done which is not.
        """
        return [
            msgspec.json.decode(act.plan, type=ErasurePlan)
            for act in await self._kernel.store.acts()
            if act.kind in DESTROYING and act.state == "done" and act.tenants is None
        ]

    async def _do(self, chosen: dict[str, Sequence[str]], held: list[LegalHold]) -> tuple[str, ...]:
        """Act on all that was chosen; the ids of the erasures and deletions."""
        rule, kernel = self._rule, self._kernel
        reason = f"retention: {rule.called}"
        if rule.act in ("archive", "forget"):
            for thread_id, ids in list(chosen.items()):
                thread = ThreadHandle(kernel, thread_id)
                try:
                    await (life.archive(thread) if rule.act == "archive" else _forget_events(thread, ids, reason))
                except MemoryEngineError as error:  # a thread that is paused or gone does not stop the others
                    self._leave(chosen, thread_id, error, held)
            return ()
        # what an act reaches beyond the chosen threads may be held too: then that one thread is left
        while chosen:
            try:
                if rule.act == "delete":
                    return ((await delete(kernel, list(chosen), by=self._by, reason=reason)).act,)
                return ((await erase_events(kernel, chosen, by=self._by, reason=reason)).act,)
            except LegalHold as error:
                self._leave(chosen, await self._reaching(chosen, error), error, held)
        return ()

    async def _reaching(self, chosen: Mapping[str, Sequence[str]], error: LegalHold) -> str:
        """The first of the chosen threads whose own act would be refused."""
        for thread_id, ids in chosen.items():
            try:
                if self._rule.act == "delete":
                    await delete(self._kernel, [thread_id], dry_run=True)
                else:
                    await erase_events(self._kernel, {thread_id: ids}, dry_run=True)
            except LegalHold:
                return thread_id
            except MemoryEngineError:  # a fork that goes in the same act is in the way of this one alone
                continue
        return next(iter(chosen), error.thread_id)


async def _forget_events(thread: ThreadHandle, event_ids: Sequence[str], reason: str) -> None:
    await life.forget(thread, event_ids=event_ids, reason=reason)
