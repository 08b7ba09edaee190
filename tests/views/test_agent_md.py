"""A tenant's agent.md: people's own text and promoted lines in one file, neither touching the other."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, errors
from memory_engine import events as e
from memory_engine.views.promotion.agent_md import AgentMd, PromotedText, read_back, render_agent_md

OWN = "# Acme\n\nWe sell shoes.\n"
RULES = ("Revenue dips every Sunday", "Amounts are in cents", "Join on user_id")


async def promoted(engine: Engine, *texts: str) -> AgentMd:
    """The agent.md of a tenant to which these texts were promoted; their ids are 1, 2, 3."""
    tenant = engine.tenant("acme")
    for text in texts:
        await tenant.dispatch(e.AgentMdPromoted(content=text, reason="r", source_thread="t", sources=(f"e-{text}",)))
    return tenant.agent_md


async def texts(agent_md: AgentMd) -> list[str]:
    """The promoted lines."""
    return [line.text for line in await agent_md.lines()]


async def test_S5_an_unwritten_agent_md_is_empty(engine: Engine) -> None:
    """A tenant that nobody wrote for has none, and asking does not make one."""
    assert "" == await engine.tenant("acme").agent_md.read()
    assert () == await engine.tenant("acme").agent_md.lines()
    assert [] == await engine.threads(kind="tenant")


async def test_S7_what_people_write_is_kept_byte_for_byte(tmp_path: Path) -> None:
    """From a text or a file, whatever its line ends and its marks."""
    own = "\ufeff# Acme\r\n\r\nprices \u202e in €\r\n\n\n  trailing  "
    path = tmp_path / "agent.md"
    path.write_bytes(own.encode())
    async with memory_engine.open(":memory:") as engine:
        agent_md = engine.tenant("acme").agent_md
        await agent_md.upload(path)
        assert own == await agent_md.read()
        await agent_md.upload(OWN)
        assert OWN == await agent_md.own_text()


async def test_S5_promoted_lines_follow_in_a_section_with_their_ids(engine: Engine) -> None:
    """One bullet a line, each with its id in a comment, after the untouched text."""
    agent_md = await promoted(engine, *RULES[:2])
    await agent_md.upload(OWN)
    own, section = (await agent_md.read()).split("\n\n## Promoted\n")
    marker, *bullets = section.splitlines()
    assert OWN == own
    assert marker.startswith("<!-- promoted lines up to 2 of ")
    assert "- Revenue dips every Sunday <!-- promoted 1 1935bb52 -->" == bullets[0]
    assert ["- Amounts are in cents <!-- promoted 2"] == [line.rpartition(" ")[0][:-9] for line in bullets[1:]]


async def test_S5_lines_know_where_they_are_from(engine: Engine) -> None:
    """Each with its event here and the events there; the same text again is one more source of the same line."""
    agent_md = await promoted(engine, "Revenue dips", "revenue  dips.", "Other")
    first, other = await agent_md.lines()
    assert ("Revenue dips", 1, [1, 2]) == (first.text, first.id, [one.seq for one in first.promotions])
    assert [("e-Revenue dips",), ("e-revenue  dips.",)] == [one.sources for one in first.promotions]
    assert ("Other", 3) == (other.text, other.id)


async def test_S5_a_line_can_be_removed_and_come_back(engine: Engine) -> None:
    """By id; promoted once more it is a new line. An unknown id is an error that changes nothing."""
    agent_md = await promoted(engine, *RULES)
    with pytest.raises(errors.UnknownLine, match="no promoted line 9"):
        await agent_md.remove(1, 9)
    await agent_md.remove(1, 3, reason="stale")
    assert [RULES[1]] == await texts(agent_md)
    await promoted(engine, RULES[0])
    assert [2, 5] == [line.id for line in await agent_md.lines()]


async def test_S5_an_export_comes_back_unchanged(engine: Engine, tmp_path: Path) -> None:
    """Export, upload: nothing is written, nothing is doubled."""
    agent_md = await promoted(engine, *RULES)
    await agent_md.upload(OWN)
    before = await agent_md.read()
    await agent_md.export(tmp_path / "agent.md")
    change = await agent_md.upload(tmp_path / "agent.md")
    assert (False, (), 0) == (change.changed, change.removed, change.moved)
    assert before == await agent_md.read() == (tmp_path / "agent.md").read_bytes().decode()
    assert 4 == (await engine.tenant("acme").info()).events


def _drop(text: str) -> Callable[[str], str]:
    return lambda file: "".join(line for line in file.splitlines(keepends=True) if text not in line)


@pytest.mark.parametrize(
    ("edit", "own", "lines"),
    [
        (_drop("cents"), OWN, (RULES[0], RULES[2])),
        (lambda file: file.replace("dips", "falls"), f"{OWN}\n- Revenue falls every Sunday\n", RULES[1:]),
        (lambda file: file + "- Ask Ana\n", f"{OWN}\n- Ask Ana\n", RULES),
        (lambda file: file + "\n## Notes\n\nAsk Ana.\n", f"{OWN}\n## Notes\n\nAsk Ana.\n", RULES),
        (lambda file: file.replace("shoes", "hats"), OWN.replace("shoes", "hats"), RULES),
        (lambda file: file.replace("\n", "\r\n"), OWN.replace("\n", "\r\n"), RULES),
        (lambda file: file.replace("\n- ", "\n* "), OWN, RULES),
        (lambda file: file.replace("## Promoted\n", ""), f"{OWN}", RULES),
        (lambda file: file.replace("\n\n\n## Promoted", "\n## Promoted"), OWN.rstrip(), RULES),
        (lambda file: file + file.splitlines()[-1] + "\n", OWN, RULES),
        (lambda _file: "# New\n", "# New\n", RULES),
        (lambda _file: "", "", RULES),
    ],
    ids=(
        "a deleted line is removed",
        "a changed line is the person's own",
        "a new line is the person's own",
        "text after the section joins the text before it",
        "the text before it changes alone",
        "other line ends",
        "other bullets",
        "no heading",
        "no blank line",
        "a doubled line",
        "a file of another making",
        "an empty file",
    ),
)
async def test_S5_what_people_edit_in_an_export(
    engine: Engine, edit: Callable[[str], str], own: str, lines: Sequence[str]
) -> None:
    """What they changed is theirs, what they deleted is gone, what they left is promoted still."""
    agent_md = await promoted(engine, *RULES)
    await agent_md.upload(OWN)
    await agent_md.upload(edit(await agent_md.read()))
    assert own == await agent_md.own_text()
    assert list(lines) == await texts(agent_md)
    again = await agent_md.read()
    assert not (await agent_md.upload(again)).changed
    assert again == await agent_md.read()


async def test_S5_an_upload_tells_what_it_did(engine: Engine) -> None:
    """Which lines it removed, and how many lines became the person's own."""
    agent_md = await promoted(engine, *RULES)
    file = _drop("cents")(await agent_md.read()).replace("dips", "falls")
    change = await agent_md.upload(file)
    assert (True, [1, 2], 1) == (change.changed, [line.id for line in change.removed], change.moved)


async def test_S5_lines_promoted_since_the_export_stay(engine: Engine) -> None:
    """They were not in the file, so nobody deleted them."""
    agent_md = await promoted(engine, RULES[0])
    file = await agent_md.read()
    await promoted(engine, RULES[1])
    await agent_md.upload(f"More.\n\n{file}")
    assert list(RULES[:2]) == await texts(agent_md)


async def test_S5_what_went_since_the_export_stays_away(engine: Engine) -> None:
    """A file made before brings back neither a removed nor a forgotten line."""
    agent_md = await promoted(engine, *RULES)
    file = await agent_md.read()
    await agent_md.remove(1)
    await engine.tenant("acme").dispatch(e.MemoryForget(seqs=(2,)))
    await agent_md.upload(file)
    assert [RULES[2]] == await texts(agent_md)
    assert "" == await agent_md.own_text()


async def test_S5_another_tenants_file_is_text(engine: Engine) -> None:
    """Its promoted lines are no lines here: they become text that somebody brought, without their ids."""
    agent_md = await promoted(engine, RULES[0])
    other = engine.tenant("other").agent_md
    await other.upload(await agent_md.read())
    assert f"- {RULES[0]}\n" == await other.read()
    assert [] == await texts(other)


async def test_S5_a_line_of_nothing_is_none(engine: Engine) -> None:
    """A promoted text without a word or a mark adds no bullet."""
    agent_md = await promoted(engine, "", " \n\t", RULES[0])
    assert [RULES[0]] == await texts(agent_md)


async def test_S5_forgetting_takes_one_source_or_the_text(engine: Engine) -> None:
    """A line goes with its last source; a person's text with the event that brought it."""
    agent_md = await promoted(engine, "A RULE", "a rule")
    await agent_md.upload(OWN)
    tenant = engine.tenant("acme")
    await tenant.dispatch(e.MemoryForget(seqs=(1,)))
    assert ["a rule"] == await texts(agent_md)
    await tenant.dispatch(e.MemoryForget(seqs=(2, 3)))
    assert "" == await agent_md.read()


async def test_X4_agent_md_of_the_past(tmp_path: Path) -> None:
    """As of any seq, also after a reopening; the log verifies and rebuilds."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        agent_md = await promoted(engine, RULES[0])
        await agent_md.upload(OWN)
        now = await agent_md.read()
    async with memory_engine.open(path) as engine:
        agent_md = engine.tenant("acme").agent_md
        assert now == await agent_md.read()
        assert OWN not in await agent_md.read(at=1)
        assert "" == await agent_md.read(at=0)
        assert [1] == [line.id for line in await agent_md.lines(at=1)]
        await engine.tenant("acme").replay.rebuild()
        assert now == await agent_md.read()
        assert (await engine.tenant("acme").replay.verify()).ok


async def test_S7_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are a typed error, a missing file is the system's, and nothing changes."""
    (tmp_path / "agent.md").write_bytes(b"caf\xe9")
    async with memory_engine.open(":memory:") as engine:
        agent_md = engine.tenant("acme").agent_md
        with pytest.raises(errors.NotText, match="byte 3"):
            await agent_md.upload(tmp_path / "agent.md")
        with pytest.raises(FileNotFoundError):
            await agent_md.upload(tmp_path / "none.md")
        assert "" == await agent_md.read()


PIECES = st.sampled_from(
    (
        "\n", "\r", "\r\n", "\n\n", " ", "## Promoted", "## Promoted\n", "- a", "-->", "<!--", "x", "🎉",
        "<!-- promoted lines up to 9 of 00000000: x -->", "<!-- promoted 1 00000000 -->", "<!-- promoted",
    )
)  # fmt: skip
TEXTS = st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=30))


@settings(max_examples=300)
@given(TEXTS, st.lists(TEXTS.filter(str.strip), max_size=4))
@example("## Promoted\n<!-- promoted lines up to 9 of 00000000: x -->\n- a <!-- promoted 1 00000000 -->", [])
@example("x\r", ["a"])
@example("x\n\n## Promoted", ["<!-- promoted 1 00000000 -->"])
def test_S5_a_file_reads_back_as_it_was_written(own: str, lines: list[str]) -> None:
    """Any text, any lines, even such as look like our own marks: no byte of the text moves, no line is lost."""
    shown = [PromotedText(n, line) for n, line in enumerate(lines, 1)]
    file = render_agent_md(own, shown, thread_id="tenant:a")
    found = read_back(file, range(1, len(lines) + 1), thread_id="tenant:a")
    assert (own, (), 0) == (found.own, found.removed, found.moved)


@settings(max_examples=60)
@given(TEXTS, st.lists(TEXTS, max_size=3), TEXTS)
async def test_S5_any_upload_settles(own: str, lines: list[str], edit: str) -> None:
    """Whatever is uploaded, in whatever state: what is then read, uploaded again, changes nothing."""
    async with memory_engine.open(":memory:") as engine:
        agent_md = await promoted(engine, *lines)
        await agent_md.upload(own)
        file = await agent_md.read()
        await agent_md.upload(file[: len(file) // 2] + edit + file[len(file) // 2 :])
        settled = await agent_md.read()
        assert not (await agent_md.upload(settled)).changed
        assert settled == await agent_md.read()
