"""Which statement takes the place of which: pairs with the question that brings them together."""

# ruff: noqa: RUF001 - texts of several languages carry their own punctuation

from collections.abc import Callable

import pytest

from memory_engine.recall import lexicon
from memory_engine.recall.matter import Matter, read_matter
from memory_engine.recall.question import read_question
from memory_engine.recall.superseding import Assertion, answers_anew, read_claims, supersedes

Judge = Callable[[Matter, Assertion, Assertion], bool]

REPLACED = [
    ("Where does Ben live?", "Ben lives in Cork.", "Ben moved to Sligo in spring."),
    (
        "Where do I live?",
        "I live in a small flat in Bonn.",
        "We settled in Mainz last week, the new house has a garden.",
    ),
    ("Where is our office?", "Our office is on Mill Lane.", "We've relocated the office to Harbour Road."),
    ("Who is my landlord?", "My landlord is Mr Pike.", "Mr Pike sold the building, my landlord is now Mrs Chow."),
    ("What is my job?", "I'm employed as a nurse at Saint Luke's.", "I quit nursing and started a job at a bookshop."),
    ("Where does Ida work?", "Ida works for Mertens.", "Ida was hired by Solvay, she left Mertens."),
    ("Which laptop do I use?", "I use an old ThinkPad laptop.", "My ThinkPad died, so I bought a MacBook."),
    (
        "When is the dentist appointment?",
        "The dentist appointment is on 3 May.",
        "Dentist appointment rescheduled to 11 May.",
    ),
    ("When is the retro?", "The retro is on Monday at 16:00.", "Retro got pushed back to 17:30."),
    ("When is the paper due?", "The paper is due on 1 June.", "They extended the paper, due date is 15 June."),
    (
        "What's the deadline of the grant?",
        "The deadline of the grant is 10 May.",
        "The grant deadline is 24 May, not 10 May.",
    ),
    (
        "Which version of Node does the gateway run?",
        "The gateway runs on Node 18.",
        "Upgraded the gateway to Node 22 today.",
    ),
    ("What port does Redis use?", "Redis uses port 6379.", "Redis was switched to 6380 after the scan."),
    ("Who maintains the parser?", "Lou maintains the parser.", "Nick took over the parser from Lou."),
    (
        "Who is the lead of the mobile team?",
        "Ann is the lead of the mobile team.",
        "The mobile team is led by Raj since June.",
    ),
    ("What is the travel budget?", "The travel budget is 9,000 euros.", "Travel budget was reduced to 6,500 euros."),
    ("What is my rent?", "My rent is 640 euros.", "The landlord raised my rent to 710 euros."),
    ("How many people are coming to the dinner?", "12 people are coming to the dinner.", "Dinner is down to 9 people."),
    (
        "What is the wifi password?",
        "The wifi password is sunny-4711.",
        "The wifi password was changed, it's rainy-8822.",
    ),
    ("What car does Joe drive?", "Joe drives a Golf.", "Joe traded the Golf in for a Kia."),
    ("Who is Zoe's boyfriend?", "Zoe is dating Max.", "Zoe broke up with Max, her boyfriend is Leo."),
    ("Where is the workshop?", "The workshop is in room 204.", "The workshop has moved to room 310."),
    ("Which database does the shop use?", "The shop uses MySQL.", "The shop was migrated from MySQL to MariaDB."),
    (
        "Which cloud is the API hosted on?",
        "The API is hosted on Azure.",
        "We are no longer on Azure, the API sits on Fly.",
    ),
    (
        "What do I drink in the morning?",
        "I drink green tea in the morning.",
        "I drink coffee in the morning now instead of tea.",
    ),
    (
        "Which instrument am I learning?",
        "I'm learning the guitar.",
        "I gave up the guitar and now I'm learning the piano.",
    ),
    ("What is the session timeout?", "The session timeout is 15 minutes.", "The session timeout is 45 minutes."),
    ("Wo wohnt Jan?", "Jan wohnt in Gera.", "Jan ist nach Fulda gezogen."),
    (
        "Wo arbeitet Sophie?",
        "Sophie arbeitet bei Krones.",
        "Sophie hat zu Dallmayr gewechselt, bei Krones hat sie gekündigt.",
    ),
    ("Wann ist die Abnahme?", "Die Abnahme ist am 5. Mai.", "Die Abnahme wurde auf den 19. Mai verschoben."),
    ("Wann beginnt der Kurs?", "Der Kurs beginnt um 18 Uhr.", "Der Kurs beginnt ab sofort um 19 Uhr."),
    (
        "Wer betreut den Kunden Hansa?",
        "Herr Berg betreut den Kunden Hansa.",
        "Den Kunden Hansa betreut jetzt Frau Thal.",
    ),
    ("Wie viel kostet das Abo?", "Das Abo kostet 9 Euro.", "Das Abo ist auf 12 Euro gestiegen."),
    ("Welches Auto fährt Tim?", "Tim fährt einen Polo.", "Tim hat den Polo verkauft und fährt nun einen Kia."),
    ("Auf welchem Port läuft Grafana?", "Grafana läuft auf Port 3000.", "Grafana haben wir auf Port 3300 umgestellt."),
    (
        "Wie lautet das WLAN-Passwort?",
        "Das WLAN-Passwort lautet sonne4711.",
        "Das WLAN-Passwort wurde geändert: regen8822.",
    ),
    ("Wie groß ist das Team Nord?", "Das Team Nord hat 5 Leute.", "Das Team Nord ist auf 8 Leute gewachsen."),
    ("¿Dónde vive Ana?", "Ana vive en Toledo.", "Ana se ha mudado a Vigo."),
    ("¿Dónde trabaja Raúl?", "Raúl trabaja en Iberia.", "Raúl dejó Iberia y lo contrataron en Renfe."),
    ("¿Cuándo es el examen?", "El examen es el 4 de mayo.", "Han aplazado el examen al 18 de mayo."),
    (
        "¿Quién lleva la cuenta de Nestor?",
        "Pilar lleva la cuenta de Nestor.",
        "La cuenta de Nestor la lleva ahora Tomás.",
    ),
    ("¿Cuánto cuesta el abono?", "El abono cuesta 30 euros.", "El abono ha subido a 38 euros."),
    ("¿Qué coche conduce Eva?", "Eva conduce un Ibiza.", "Eva vendió el Ibiza y conduce un Clio."),
    ("小王住在哪里？", "小王住在南京。", "小王搬到杭州去了。"),
    ("培训几点开始？", "培训九点开始。", "培训改到十点半了。"),
    ("报告的截止日期是哪天？", "报告的截止日期是5月1日。", "报告延期到5月15日。"),
    ("网关用哪个版本的Go？", "网关用的是Go 1.20版本。", "网关升级到Go 1.23了。"),
    ("设计组的组长是谁？", "设计组的组长是老李。", "老李离职了，设计组组长换成小陈。"),
    ("房租多少钱？", "房租是三千元。", "房租涨到三千五百元了。"),
]
"""A question, what was said first, and what took its place."""

KEPT = [
    ("Where does Ben live?", "Ben lives in Cork.", "Ben's brother moved to Sligo."),
    ("Where does Ben live?", "Ben lives in Cork.", "Ben wants to move to Sligo."),
    ("Where does Ben live?", "Ben lives in Cork.", "Ben has not moved to Sligo."),
    ("Where does Ben live?", "Ben lives in Cork.", "Did Ben move to Sligo?"),
    ("Where does Ben live?", "Ben lives in Cork.", "If Ben moved to Sligo, we would never see him."),
    ("Where does Ben live?", "Ben lives in Cork.", "Ruth moved to Sligo."),
    ("Where does Ben live?", "Ben lives in Cork.", "Ben still lives in Cork now."),
    ("Where does Ben live?", "Ben lives in Cork.", "Ben has a new bike."),
    ("Which port does Redis use?", "Redis uses port 6379.", "Postgres was switched to 5433."),
    ("Which port does Redis use?", "Redis uses port 6379.", "Redis was switched off for an hour."),
    ("When is the retro?", "The retro is on Monday at 16:00.", "The planning was moved to Tuesday at 9:00."),
    (
        "What is the travel budget?",
        "The travel budget is 9,000 euros.",
        "The training budget was reduced to 6,500 euros.",
    ),
    (
        "What is the travel budget?",
        "The travel budget is 9,000 euros.",
        "Should we cut the travel budget to 5,000 euros?",
    ),
    ("Who maintains the parser?", "Lou maintains the parser.", "Maybe Nick takes over the parser."),
    ("Which formats does the parser read?", "The parser reads JSON.", "The parser now reads TOML."),
    ("Which database does the shop use?", "The shop uses MySQL.", "The shop also uses Redis now."),
    ("What car does Joe drive?", "Joe drives a Golf.", "Joe wishes he had a new Kia."),
    ("What is the front door code?", "The front door code is 8812.", "The cellar door code was changed to 5507."),
    ("Which instrument do I play?", "I play the cello.", "As a child I switched to the trumpet."),
    (
        "What is the wifi password?",
        "The wifi password is sunny-4711.",
        "The wifi password, sunny-4711, is now on the fridge.",
    ),
    ("How many visitors did we have?", "We had 310 visitors in January.", "We had 270 visitors in February."),
    ("Wo wohnt Jan?", "Jan wohnt in Gera.", "Jans Schwester ist nach Fulda gezogen."),
    ("Wo wohnt Jan?", "Jan wohnt in Gera.", "Vielleicht zieht Jan jetzt nach Fulda."),
    ("Wo wohnt Jan?", "Jan wohnt in Gera.", "Jan ist nicht nach Fulda gezogen."),
    ("Wann ist die Abnahme?", "Die Abnahme ist am 5. Mai.", "Die Schulung wurde auf den 19. Mai verschoben."),
    ("Welche Sprachen spricht Jan?", "Jan spricht Dänisch.", "Jan spricht jetzt auch Finnisch."),
    ("¿Dónde vive Ana?", "Ana vive en Toledo.", "La hermana de Ana se ha mudado a Vigo."),
    ("¿Dónde vive Ana?", "Ana vive en Toledo.", "Quizás Ana se mude a Vigo."),
    ("¿Cuándo es el examen?", "El examen es el 4 de mayo.", "Han aplazado la fiesta al 18 de mayo."),
    ("小王住在哪里？", "小王住在南京。", "小王的姐姐搬到杭州了。"),
    ("小王住在哪里？", "小王住在南京。", "小王打算搬到杭州。"),
    ("培训几点开始？", "培训九点开始。", "演出改到十点半了。"),
    ("When does the market open?", "The market opens at 7.", "The market does not open at 8."),
    ("When is my train to Bonn?", "My train to Bonn is at 8:20.", "Klara's train to Bonn was moved to 9:50."),
    ("Where does Ruth live?", "Ruth lives in Graz.", "Ruth's ex has moved to Linz."),
    ("What is my fee?", "My fee is 300 euros.", "Dario's fee went up to 350 euros."),
]
"""A question, and two statements that both hold, or of which the second claims nothing about now."""


ANEW = [
    (
        "Who coaches the under-tens?",
        "Dag coaches the under-tens.",
        "Dag is ill and Mirre coaches the under-tens.",
    ),
    ("Who is our secretary?", "Bo is our secretary.", "At the meeting Sunniva was elected secretary."),
    ("What is Lotte's hamster called?", "Lotte's hamster is called Nib.", "Lotte's hamster is called Quill."),
    ("Where is the spare key?", "The spare key is under the flowerpot.", "I put the spare key in the letterbox."),
    ("What is the build target?", "The build target is es2017.", "The build target is es2022."),
    ("Wer leitet den Chor?", "Frau Bode leitet den Chor.", "Herr Quast leitet den Chor."),
    ("¿Quién cuida el jardín?", "Raúl cuida el jardín.", "Berta cuida el jardín."),
]
"""A question, and two answers in its words, of which the second says of no change."""


def replaces(question: str, older: str, newer: str, *, by: Judge = supersedes) -> bool:
    """Whether the newer statement supersedes the older one, asked so."""
    matter = read_matter(read_question(question))
    if matter is None:
        return False
    claims = [read_claims(text, matter) for text in (older, newer)]
    return any(by(matter, one, other) for one in claims[0] for other in claims[1])


@pytest.mark.parametrize(("question", "older", "newer"), REPLACED)
def test_a_changed_value_of_the_same_matter_supersedes(question: str, older: str, newer: str) -> None:
    """Whatever words the change is told in; and never the other way round."""
    assert replaces(question, older, newer)


@pytest.mark.parametrize(("question", "first", "second"), KEPT)
def test_what_may_both_hold_is_left_alone(question: str, first: str, second: str) -> None:
    """Another subject, a plan, a question, a condition, a denial, an addition, the past, the same again."""
    assert not replaces(question, first, second)
    assert not replaces(question, first, second, by=answers_anew)


@pytest.mark.parametrize(("question", "older", "newer"), ANEW)
def test_a_later_answer_in_the_same_words_answers_anew(question: str, older: str, newer: str) -> None:
    """Both hold what is asked; no word needs to tell of a change."""
    assert replaces(question, older, newer, by=answers_anew)


@pytest.mark.parametrize("language", ["en", "de", "es"])
def test_function_words_are_known_without_the_uses_of_all_words(language: str) -> None:
    """Those that are listed, and the listed words that begin like one."""
    uses = lexicon.words_of(language).uses
    little = {word for word, of in uses.items() if not of.isdisjoint(("plain", "self", "was", "then"))}
    listed = {word for one in ("en", "de", "es") for word in lexicon.words_of(one).uses}
    assert little == {word for word in {*listed, "anterioridad", "oh"} if lexicon._is_little(word, language)}
