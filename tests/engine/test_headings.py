"""The headings of a summary are in the language of its lines."""

# ruff: noqa: RUF001 - texts of several languages carry their own punctuation

import pytest

import memory_engine
from memory_engine import CompactionPolicy, ContextPolicy, EngineConfig, LlmTextResponse, UserMessage
from memory_engine.context.headings import HEADINGS_CHARS_MAX, sections_by_heading
from memory_engine.context.rendering import render_lines
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.sections import PEOPLE, SECTION_ORDER, SHOWN_UNDER
from memory_engine.language.identification import language_of

TALK = {
    "en": "The order has not come yet, and they say that it will be here by Friday.",
    "de": "Die Bestellung ist noch nicht da, und sie sagen, dass sie bis Freitag kommt.",
    "fr": "La commande n'est pas encore là, et ils disent qu'elle sera ici vendredi.",
    "es": "El pedido no ha llegado todavía, y dicen que estará aquí el viernes para ella.",
    "it": "Il pacco non è ancora qui, e dicono che sarà da noi per la fine della settimana.",
    "pt": "A encomenda ainda não chegou, e eles dizem que ela vai estar com você na sexta.",
    "nl": "De bestelling is er nog niet, en ze zeggen dat het voor vrijdag bij ons is.",
    "ru": "Заказ ещё не пришёл, и они говорят, что он будет здесь в пятницу.",
    "zh": "订单还没有到，他们说星期五之前会送来。",
    "ja": "注文はまだ届いていませんが、金曜日までに届くそうです。",
    "ko": "주문한 물건이 아직 오지 않았고 금요일까지 온다고 합니다.",
    "ar": "الطلب لم يصل بعد ويقولون إنه سيصل يوم الجمعة.",
}


@pytest.mark.parametrize("language", TALK)
def test_the_language_of_a_text_is_told(language: str) -> None:
    """A sentence of everyday speech is enough."""
    assert language == language_of(TALK[language])


@pytest.mark.parametrize("text", ["", "K-77", "get_order → ORD-58113 Ines Duarte", "12 34 56", "OK"])
def test_values_have_no_language(text: str) -> None:
    """Names, numbers and codes tell nothing."""
    assert "" == language_of(text)


@pytest.mark.parametrize("language", TALK)
def test_all_headings_fit_their_allowance(language: str) -> None:
    """What a budget sets aside for headings is enough in every language, and every section has its own heading."""
    lines = [SummaryLine(name, TALK[language]) for name in SECTION_ORDER]
    rendered = render_lines(lines)
    headings = [line for line in rendered.splitlines() if line.startswith("#")]
    assert len(SECTION_ORDER) - len(SHOWN_UNDER) + 1 == len(set(headings))
    assert len(rendered) - sum(len(f"- {line.text}\n") for line in lines) <= HEADINGS_CHARS_MAX


async def test_a_german_thread_has_german_headings() -> None:
    """In the context that a model gets, whatever stands in the log."""
    config = EngineConfig(compaction=CompactionPolicy(enabled=False, ratio=0.5))
    async with memory_engine.open(":memory:", config=config) as engine:
        thread = await engine.create_thread()
        for n in range(4):
            await thread.dispatch(
                UserMessage(content=f"Die Rechnung R-{n} von der Firma Brandt ist noch nicht bezahlt.")
            )
            await thread.dispatch(LlmTextResponse(content=f"Ich habe die Rechnung R-{n} an Frau Oberle geschickt."))
        await thread.compact()
        [message] = (await thread.context(policy=ContextPolicy(blocks=()))).messages
        [chunk] = (await thread.state()).chunks()
    assert "### Gesagt" in str(message["content"])
    assert {"said", "decided"} >= {line.section for line in chunk.lines}


def test_no_heading_makes_a_model_speak_for_a_person() -> None:
    """A model's summary is read by its headings, and those of people's words are not among them."""
    assert set(SECTION_ORDER) - PEOPLE == set(sections_by_heading().values())


def test_a_section_of_its_own_keeps_its_name() -> None:
    """What the table of headings does not know is shown as it is called."""
    assert "### Title" in render_lines([SummaryLine("title", "a line")])
