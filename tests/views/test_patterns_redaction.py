"""Redaction: what the embedded redactor takes out of a line, what it leaves, and what it is known to miss."""

# ruff: noqa: RUF001 - lines of several scripts

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_engine.views.patterns.redaction import ALL_SMALL, NO_CAPITALS, EmbeddedRedactor, redact_for
from memory_engine.views.patterns.shapes import HOLE, substitute
from tests.trust.hostile_files import is_linear

REDACTOR = EmbeddedRedactor()

TAKEN_OUT = (
    # mail, net
    ("Contact ann.smith@acme.com for refunds", "Contact [email] for refunds"),
    ("Write to ann+x@mail.acme.co.uk.", "Write to [email]."),
    ("Write to ann (at) acme (dot) com first", "Write to [email] first"),
    ("Write to ann at acme dot com first", "Write to [email] first"),
    ("Frag müller@bücher.de zuerst", "[name] [email] zuerst"),
    ("See https://acme.example/x?y=1#z for the rules.", "See [url] for the rules."),
    ("See www.acme.example/a, then decide", "See [url] then decide"),
    ("Orders come from shop.acme.de/basket", "Orders come from [url]"),
    ("The server is 10.0.0.12", "The server is [ip]"),
    ("The server is fe80::1ff:fe23:4567:890a", "The server is [ip]"),
    ("MAC 00:1a:2b:3c:4d:5e was lost", "MAC [ip] was lost"),
    ("@john_doe handles refunds", "[handle] handles refunds"),
    ("Ask <@U024BE7LH> about refunds", "Ask [handle] about refunds"),
    ("See /home/ann/report.csv", "See [path]"),
    (r"Open C:\Users\Ann\x.txt", "Open [path]"),
    # numbers
    ("Call +49 (0)89 1234-5678 before noon", "Call [phone] before noon"),
    ("Call 020 7946 0958", "Call [phone]"),
    ("Call (555) 010-9999 ext. 12", "Call [phone]"),
    ("Order 48213 was late", "Order [number] was late"),
    ("Stores 12, 14 and 117 close", "Stores [number] and [number] close"),
    ("About 1,250 customers left", "About [number] customers left"),
    ("١٢٣٤ orders", "[number] orders"),
    ("１２３４ orders", "[number] orders"),
    ("4\u200b2\u200b4\u200b2 orders", "[number] orders"),
    ("Pay to DE89 3704 0044 0532 0130 00 only", "Pay to [account] only"),
    ("Pay to GB29NWBK60161331926819 only", "Pay to [account] only"),
    ("Card 4111 1111 1111 1111 was refused", "Card [account] was refused"),
    ("Card 4111-1111-1111-1111 was refused", "Card [account] was refused"),
    ("Version ab12cd34ef is broken", "Version [id] is broken"),
    ("The key is sk-live-abcDEF123456", "The key is [id]"),
    ("The staging password is swordfish", "The staging password is [secret]"),
    ("Das Kennwort lautet sonnenblume", "Das [name] lautet [secret]"),
    ("password: correct horse battery", "password: [secret]"),
    ("UUID 550e8400-e29b-41d4-a716-446655440000", "UUID [id]"),
    ("SKU AB-1234-X is late", "SKU [name]-[number]-[name] is late"),
    # money
    ("A refund over $5 needs approval", "A refund over [money] needs approval"),
    ("Refunds above 20 € need approval", "Refunds above [money] need approval"),
    ("Margins under EUR 1,250.00 are bad", "Margins under [money] are bad"),
    ("It costs 5 million a year", "It costs [money] a year"),
    ("Bestellungen über 50 Euro", "[name] über [money]"),
    ("Costs are ₹5 per item", "Costs are [money] per item"),
    # dates
    ("Prices change on 2024-03-01", "Prices change on [date]"),
    ("Prices change on 1.2.24", "Prices change on [date]"),
    ("Prices change on March 3rd", "Prices change on [date]"),
    ("The deadline is 3 March 2024", "The deadline is [date]"),
    ("Since Nov '23 sales fell", "Since [date] sales fell"),
    ("am 3. März steigt er", "am [date] steigt er"),
    ("le 3 mars les ventes baissent", "le [date] les ventes baissent"),
    ("el 3 de marzo suben", "el [date] suben"),
    ("3 марта продажи падают", "[date] продажи падают"),
    ("2024年3月1日に値上げ", "[date]に値上げ"),
    # streets
    ("Ship to 221B Baker Street, London", "Ship to [address], [name]"),
    ("It is near 12 High Road", "It is near [address]"),
    ("Lieferung an Hauptstraße 12", "[name] an [address]"),
    ("livraison au 12 rue de la Paix", "livraison au [address]"),
    ("envío a calle Mayor 5", "envío a [address]"),
    ("spedire in via Roma 12", "spedire in [address]"),
    ("bezorg op de Damstraat 4", "bezorg op de [address]"),
    ("на ул. Ленина д. 5", "на [address]"),
    ("PO Box 12 is closed", "[address] is closed"),
    ("Postcode SW1A 1AA is slow", "[name] [address] is slow"),
    # names
    ("Sales of Walmart dip in March", "Sales of [name] dip in March"),
    ("Walmart is late", "[name] is late"),
    ("Sunday is weak. Walmart too.", "Sunday is weak. [name] too."),
    ("Target pays late", "[name] pays late"),
    ("Ask Ana about returns", "Ask [name] about returns"),
    ("Anna van der Berg approves discounts", "[name] approves discounts"),
    ("According to John Smith's team, churn doubles", "According to [name]'s team, churn doubles"),
    ("J. Smith approves discounts", "[name] approves discounts"),
    ("Jean-Luc and O'Neill approve", "[name] and [name] approve"),
    ("McDonald's orders rise", "[name]'s orders rise"),
    ("iPhone sales rise", "[name] sales rise"),
    ("Best Buy orders drop on Sunday", "[name] orders drop on Sunday"),
    ("The Bank of America account is closed", "The [name] account is closed"),
    ("Procter & Gamble pays late", "[name] pays late"),
    ("ACME pays late", "[name] pays late"),
    ("acme gmbh pays late", "[name] pays late"),
    ("we met mr smith about churn", "we met mr [name] about churn"),
    ("Frau Müller zahlt spät", "[name] zahlt spät"),
    ("Les clients de Carrefour partent", "Les clients de [name] partent"),
    ("Los clientes de Zara vuelven", "Los clientes de [name] vuelven"),
    ("клиенты Газпрома уходят", "клиенты [name] уходят"),
    ("οι πελάτες της Άννας φεύγουν", "οι πελάτες της [name] φεύγουν"),
    ("Jose\u0301 approves", "[name] approves"),
    ("B\u200bob approves", "[name] approves"),
    ("田中さんは毎週返品する", "[name]は毎週返品する"),
    ("株式会社トヨタの注文は遅い", "[name]の注文は遅い"),
    ("李先生的订单很多", "[name]的订单很多"),
    ("김철수 씨가 환불한다", "[name]가 환불한다"),
)

LEFT = (
    "Revenue dips every Sunday.",
    "Amounts are in cents",
    "Join on user_id, never on e-mail",
    "Q3 is the weakest quarter",
    "Churn is highest after 7 days",
    "Use SQL, not CSV",
    "- Customers return shoes\n- Orders drop on Mondays",
    "24/7 support lowers churn by 5%",
    "Los lunes suben las ventas",
    "Les ventes baissent le dimanche",
    "В понедельник продажи падают",
    "Discounts above 10 percent hurt [name]",
    "B2B buyers order 2x as often on the 1st",
)

MISSED = (
    "customers of john churn",  # a name in small letters, without a title, of nobody the tenant knows
    "three hundred customers left",  # a number in words
    "顾客李明总是退货",  # a name in a writing without capitals, without a title
    "the biggest retailer of the valley returns most",  # who needs no name to be known
    "Sales at apple dip",  # a brand in small letters
    "2 of 14 stores closed",  # small numbers
)


@pytest.mark.parametrize(("line", "expected"), TAKEN_OUT, ids=[line[:40] for line, _ in TAKEN_OUT])
def test_S8_what_may_name_somebody_is_taken_out(line: str, expected: str) -> None:
    """A word for its kind stands there; the findings say what was where; once more takes out nothing."""
    redacted = REDACTOR.redact(line)
    assert expected == redacted.text
    assert expected == substitute(line, redacted.found)
    again = REDACTOR.redact(expected)
    assert (expected, ()) == (again.text, again.found)


@pytest.mark.parametrize("line", LEFT)
def test_S8_what_names_nobody_stays(line: str) -> None:
    """Everyday words at the beginning of a sentence, days, short forms of the trade, small numbers, placeholders."""
    assert (line, ()) == (REDACTOR.redact(line).text, REDACTOR.redact(line).found)


@pytest.mark.parametrize("line", MISSED)
def test_S8_what_is_known_to_be_missed(line: str) -> None:
    """This is why a person approves. Where one of these is found some day, it goes to the table above."""
    assert line == REDACTOR.redact(line).text


def test_S8_the_reviewer_is_told_what_could_not_be_judged() -> None:
    """Writing without capitals, texts without any."""
    assert (NO_CAPITALS,) == REDACTOR.redact("顾客总是退货").cautions
    assert (ALL_SMALL,) == REDACTOR.redact("customers of john churn").cautions
    assert () == REDACTOR.redact("Customers of john churn").cautions


def test_S8_words_can_be_allowed() -> None:
    """Nouns of a language that writes them with capitals, in any case."""
    german = EmbeddedRedactor(allow=("umsatz", "Rabatten"))
    assert "Der Umsatz sinkt nach Rabatten bei [name]" == german.redact("Der Umsatz sinkt nach Rabatten bei Rewe").text


@pytest.mark.parametrize(
    ("known", "line", "expected"),
    [
        ("acme-corp", "acmecorp and acme corp and acme's users", "[name] and [name] and [name] users"),
        ("acme-corp", "the corp pays", "the corp pays"),
        ("ann_b", "ann asks, annual reports", "[name] asks, annual reports"),
        ("u1", "u1 asks about h1", "[id] asks about h1"),
        ("kim", "kims plan, kimono sales", "[name] plan, kimono sales"),
        ("b", "plan b", "plan b"),
        ("zqx%", "zqx% and zqx", "[name]% and [name]"),
        ("🦊🦊", "ask 🦊🦊", "ask [name]"),
        ("name", "the [name] is no name", "the [name] is no [name]"),
        ("user_42", "user 42 and users", "[name] and users"),
        ("straße", "die STRASSE und die straße", "die [name] und die [name]"),
    ],
)
def test_S8_the_tenants_own_names_are_taken_out(known: str, line: str, expected: str) -> None:
    """However an id is written; parts of it that name nobody stay, and so do words that only begin like it."""
    assert expected == redact_for(line, REDACTOR, [known]).text


PIECES = st.sampled_from(
    (
        " ", " ", " ", ". ", ", ", "\n", "-", "'", "’s", "@", ".", "/", ":", "(", ")", "[", "]", "&", "$", "+", "#",
        "<", "Anna", "anna", "Best", "Sales", "of", "the", "SQL", "Sunday", "March", "May", "mr", "GmbH", "street",
        "at", "dot", "com", "1", "23", "456", "7890", "Q3", "ab1", "A", "é", "É", "e\u0301", "\u200b", "\ufe0f", "½",
        "①", "ﬁ", "™", "田中", "さん", "[name]", "[number]", "[x]", HOLE, "İ", "ß", "ſ", "🦊", "年", "月", "5", "€",
        "http://", "www.", "rue", "12",
    )
)  # fmt: skip
LINES = st.one_of(
    st.lists(PIECES, max_size=14).map("".join), st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
)


@settings(max_examples=400)
@given(LINES, st.lists(st.sampled_from(("anna", "best-sales", "456", "name", "é", "🦊")), max_size=3))
def test_S8_redaction_changes_what_it_says_and_nothing_twice(line: str, known: list[str]) -> None:
    """Findings are in order and apart and give the text; what was redacted comes back as it is."""
    redacted = redact_for(line, REDACTOR, known)
    assert redacted.text == substitute(line, redacted.found)
    again = redact_for(redacted.text, REDACTOR, known)
    assert (redacted.text, ()) == (again.text, again.found)


@settings(max_examples=200)
@given(LINES, LINES, st.sampled_from(("ann@acme.com", "7341882", "+49 170 5566778", "DE89370400440532013000")))
def test_S8_what_has_a_shape_never_stays(before: str, after: str, marker: str) -> None:
    """Wherever it stands, and whatever stands beside it."""
    assert marker not in REDACTOR.redact(f"{before} {marker} {after}").text


@pytest.mark.parametrize(
    "unit", ["a", "a-", "a.", "1", "1.", "a'", "A ", "rue a ", " at dot ", "a@", "[", "12 a ", "é"]
)
def test_S8_no_text_takes_long(unit: str) -> None:
    """Whatever repeats in a text, it is read in linear time, and something comes of it."""
    assert REDACTOR.redact((unit * 100)[:100]).text
    assert is_linear(REDACTOR.redact, lambda size: (unit * size)[:size], 1_400)
