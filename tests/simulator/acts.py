"""What each kind of step does to an engine, and what the model takes from its outcome."""

import random
from collections.abc import Awaitable, Callable

from attrs import frozen

from memory_engine import Engine, Thread
from memory_engine.errors import ErasureUnfinished, ThreadExists
from memory_engine.thread import handle_of
from tests.simulator.model import Broken, Model, event_of, mark_of
from tests.simulator.program import Step


@frozen
class Act:
    """A step that runs: on which engine, with which dice, against which model."""

    step: Step
    engine: Engine
    model: Model
    dice: random.Random

    @property
    def thread(self) -> Thread:
        """Its thread."""
        return self.engine.thread(self.step.thread)

    async def made(self) -> Thread:
        """Its thread, which is made if it is not there."""
        name = self.step.thread
        if not self.model.of(name).is_made:
            before = self.model.of(name).unsure & self.model.of(name).over
            try:
                await self.engine.create_thread(name)
            except ThreadExists:
                return self.thread
            self.model.make(name, before)
        return self.thread

    async def said(self) -> str:
        """The id of an event that was dispatched to its thread, drawn."""
        return self.dice.choice(sorted(self.model.of(self.step.thread).tried) or ["e0.0"])

    async def run(self) -> object:
        """Do it."""
        return await ACTS[self.step.kind](self)


async def _dispatched(act: Act, ids: list[str]) -> object:
    thread = await act.made()
    begun = act.model.begin(thread.id, ids)
    if len(ids) == 1:
        receipts = [await thread.dispatch(event_of(ids[0]))]
    else:
        receipts = list(await thread.dispatch_all([event_of(event_id) for event_id in ids]))
    places = [(receipt.event_id, receipt.seq) for receipt in receipts]
    if [event_id for event_id, _ in places] != ids:
        raise Broken(f"receipts of {places} for {ids}")
    act.model.acknowledge(thread.id, begun, places)
    return places


async def _dispatch(act: Act) -> object:
    return await _dispatched(act, [f"e{act.step.number}.0"])


async def _dispatch_all(act: Act) -> object:
    count = act.dice.choice((1, 2, 3, 8, 20))
    return await _dispatched(act, [f"e{act.step.number}.{n}" for n in range(count)])


async def _retry(act: Act) -> object:
    tried = sorted(act.model.of(act.step.thread).tried - act.model.erasing)
    if not tried:
        return None
    return await _dispatched(act, act.dice.sample(tried, min(len(tried), act.dice.choice((1, 1, 3)))))


async def _context(act: Act) -> object:
    context = await (await act.made()).context(max_tokens=act.dice.choice((None, 500, 4000)))
    return len(context.messages)


async def _search(act: Act) -> object:
    found = await (await act.made()).search(mark_of(await act.said()))
    return [hit.text[:12] for hit in found.hits]


async def _compact(act: Act) -> object:
    await act.thread.compact()
    return None


async def _pin(act: Act) -> object:
    return (await (await act.made()).pin(f"pinned by {act.step.number}")).seq


async def _mark(act: Act) -> object:
    state = await act.thread.state()
    ids = [one.chunk.id for one in state.placed()]
    return (await act.thread.compaction.mark_critical(act.dice.choice(ids))).seq if ids else None


async def _forget(act: Act) -> object:
    return (await act.thread.forget(event_ids=[await act.said()])).seq


async def _erase(act: Act) -> object:
    event_id = await act.said()
    act.model.erasing.add(event_id)
    act.model.destroying.add(event_id)
    report = await act.thread.admin.erase([event_id])
    if report.proof is None or not report.proof.ok:
        raise Broken(f"the proof of {report.act} finds {report.proof and report.proof.left}")
    act.model.erased.add(event_id)
    return dict(report.erased)


async def _delete(act: Act) -> object:
    name, number = act.step.thread, act.step.number
    act.model.begin_deletion(name, number)
    try:
        report = await act.thread.admin.delete()
    finally:
        act.model.of(name).over.add(number)
    if report.proof is None or not report.proof.ok:
        raise Broken(f"the proof of {report.act} finds {report.proof and report.proof.left}")
    act.model.end_deletion(name, number)
    return report.deleted


async def _undo(act: Act) -> object:
    return (await act.thread.compaction.undo()).seq


async def _redo(act: Act) -> object:
    await act.thread.compaction.redo()
    return None


async def _clear(act: Act) -> object:
    return (await act.thread.admin.clear()).seq


async def _pause(act: Act) -> object:
    return (await act.thread.admin.pause()).seq


async def _view(act: Act) -> object:
    thread = act.thread
    kind = act.dice.randrange(6)
    if kind == 0:
        return (await thread.info()).events
    if kind == 1:
        return [event.seq for event in await thread.replay.latest(3)]
    if kind == 2:
        return len((await thread.compaction.history()).compactions)
    if kind == 3:
        return len([info async for info in _each(act.engine)])
    if kind == 4:
        return (await act.engine.stats()).events
    last = await handle_of(thread).last_seq()
    return len(list((await (await thread.at(act.dice.randint(0, last))).state()).placed()))


async def _each(engine: Engine):  # type: ignore[no-untyped-def]
    for info in await engine.threads():
        yield info


async def _user(act: Act) -> object:
    user = act.engine.user("u1")
    await user.preferences.update("verbosity", f"as {act.step.number} says")
    return None


async def _fork(act: Act) -> object:
    fork = await act.thread.fork(thread_id=f"{act.step.thread}-{act.step.number}")
    return await handle_of(fork).last_seq()


async def _flush(act: Act) -> object:
    await act.engine.flush()
    return None


async def _settle(act: Act) -> object:
    await act.engine.settle()
    return None


async def _verify(act: Act) -> object:
    reports = await act.engine.verify()
    for report in reports:
        if not report.ok:
            raise Broken(f"verify of {report.thread_id}: {report.divergence}")
    return len(reports)


async def _finish(act: Act) -> object:
    try:
        return len(await act.engine.admin.finish_acts())
    except ErasureUnfinished:
        return "unfinished"


ACTS: dict[str, Callable[[Act], Awaitable[object]]] = {
    "dispatch": _dispatch,
    "dispatch_all": _dispatch_all,
    "retry": _retry,
    "context": _context,
    "search": _search,
    "compact": _compact,
    "pin": _pin,
    "mark": _mark,
    "forget": _forget,
    "erase": _erase,
    "delete": _delete,
    "undo": _undo,
    "redo": _redo,
    "clear": _clear,
    "pause": _pause,
    "view": _view,
    "user": _user,
    "fork": _fork,
    "flush": _flush,
    "settle": _settle,
    "verify": _verify,
    "finish": _finish,
}
