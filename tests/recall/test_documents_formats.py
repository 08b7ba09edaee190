"""What is read from pages, Word files, tables and JSON."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

import memory_engine
from memory_engine import errors
from tests.recall.document_files import Files, docx, paragraph, read, shown, word_row


@pytest.fixture
def make(tmp_path: Path) -> Files:
    """Write a file."""
    return Files(tmp_path)


# pages

PAGE = """\
<!doctype html><html><head><title>Lending rules | Town library</title>
<meta name="author" content="Mia &amp; Tom"><meta property="article:published_time" content="2024-03-05">
<style>p { color: red }</style><script>document.write("<p>written by a script")</script></head>
<body><header><a href="/">Start</a></header><nav><ul><li>All books</ul></nav>
<main><h1>Lending rules</h1>
<p>Keep a book for <b>three</b>
   weeks, <a href="/longer">or longer</a>.<br>Ask us.<p>No end tag here
<h2>Renewing</h2>
<ol><li>Sign in<ul><li>by card<li>by name</ul><li>Press renew</ol>
<img src="x.png" alt="The renew button"><div hidden>for staff <div>only</div></div>
<h3>Fees</h3>
<table><tr><th>Kind<th>A day<tr><td>Book<td>0.20<tr><td>Film</td><td>1.00</td></table>
<pre>a  b
  c</pre>
<h3>Contact</h3></main>
<footer>© The town</footer></body></html>"""


def test_a_page_is_its_main_part_under_its_headings(make: Files) -> None:
    """Lists keep their marks, rows the names of their columns; scripts, navigation and hidden parts are left out."""
    [page] = read(make("rules.html", PAGE))
    assert ("Lending rules", "Mia & Tom", datetime(2024, 3, 5, tzinfo=UTC)) == (page.title, page.author, page.date)
    assert [
        ("", "", "Keep a book for three weeks, or longer.\nAsk us.\n\nNo end tag here"),
        ("Renewing", "", "1. Sign in\n  - by card\n  - by name\n2. Press renew\n\nThe renew button"),
        ("Renewing > Fees", "", "Kind: Book; A day: 0.20\nKind: Film; A day: 1.00\n\na  b\n  c"),
        ("Renewing", "", "Contact"),
    ] == shown(page)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<article><p>One</article><aside>Ad</aside><article>Two</article>", "One\n\nTwo"),
        ("<header>Top</header><p>Body<footer>Foot</footer>", "Body"),
        ("<main></main><p>Not in it", "Not in it"),
        ("<nav>Nothing but a menu", "Nothing but a menu"),
        ("<p hidden>An end that is optional hides no more<p>After", "An end that is optional hides no more\n\nAfter"),
        ("<svg><title>Icon</title></svg><p>x<svg/>y", "xy"),
        ("<dl><dt>Loan<dd>what you borrow</dl>", "Loan\n  what you borrow"),
        ("<table><tr><td>Open<td>9 to 5<tr><td>Closed<td>Sunday</table>", "Open | 9 to 5\nClosed | Sunday"),
        ("<table><tr><th>Day<th>Open<tr><td rowspan=2>Mon<td>9<tr><td>15</table>", "Day | Open\nMon | 9\n15"),
        ("<table><tr><th colspan=2>Name<th>Age<tr><td>Mia<td>Ott<td>7</table>", "Name: Mia; column 2: Ott; Age: 7"),
        (
            "<table><tr><td><p>A page<p>laid out<table><tr><td>in<td>tables</table></table>",
            "A page\nlaid out\n\nin | tables",
        ),
        ("<p>a <b>b</b>c</p>d<br/>e &lt;f&gt; &#8364;", "a bc\n\nd\ne <f> €"),
    ],
)
def test_pages_of_all_shapes_are_read(make: Files, html: str, text: str) -> None:
    """With end tags missing, without a main part, laid out by tables."""
    [page] = read(make("a.htm", html))
    assert [text] == [section.text for section in page.sections]


@pytest.mark.parametrize("named", ["windows-1251", "koi8-r", "utf-8", "utf-16", "iso-8859-5"])
def test_a_page_is_read_in_the_encoding_that_it_names(make: Files, named: str) -> None:
    """In its head; a byte order mark goes before that, and UTF-8 before a name that is wrong."""
    html = f'<meta charset="{named}"><p>Добрый день'
    for content in (html.encode(named), html.encode()):
        [page] = read(make("a.html", content))
        assert ["Добрый день"] == [section.text for section in page.sections]


def test_a_page_in_an_encoding_that_does_not_exist_is_read(make: Files) -> None:
    """As text is: by UTF-8, else as Windows' Latin."""
    for content in ("<meta charset=none-such>Grüße".encode(), "<meta charset=utf-7>Grüße".encode("cp1252")):
        [page] = read(make("a.html", content))
        assert ["Grüße"] == [section.text for section in page.sections]


# Word files

STYLES = """\
<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>
<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>
<w:style w:styleId="Kapitel"><w:name w:val="Kapitel"/><w:basedOn w:val="berschrift2"/></w:style>
<w:style w:styleId="Eigen"><w:name w:val="Eigen"/><w:pPr><w:outlineLvl w:val="2"/></w:pPr></w:style>
<w:style w:styleId="Punkt"><w:name w:val="List Bullet"/></w:style>
<w:style w:styleId="Inhalt"><w:name w:val="toc 1"/></w:style>"""


def test_a_word_file_is_read_under_its_headings(make: Files) -> None:
    """Whatever the language of its styles, and by those based on them; lists, tables and notes are there."""
    numbered = '<w:numPr><w:ilvl w:val="1"/><w:numId w:val="3"/></w:numPr>'
    table = word_row(*map(paragraph, ("Kind", "Days", "Fee")))
    table += word_row(paragraph("Book"), paragraph("21") + paragraph("or 42"), paragraph("0.20"))
    body = "".join(
        (
            paragraph("Lending rules", style="berschrift1"),
            paragraph("Renewing 2", style="Inhalt"),
            paragraph("Bring your card."),
            paragraph("by hand", style="Punkt"),
            paragraph("at the desk", described=numbered),
            paragraph("Renewing", style="Kapitel"),
            f"<w:tbl>{table}</w:tbl>",
            paragraph("Details", style="Eigen"),
            "<w:p><w:r><w:t>Within </w:t></w:r><w:ins><w:r><w:t>five</w:t></w:r></w:ins>"
            "<w:del><w:r><w:delText>two</w:delText></w:r></w:del><w:r><w:tab/><w:t>days</w:t></w:r></w:p>",
        )
    )
    core = "<title>Rules</title><creator>Mia</creator><modified>2024-03-05T10:00:00Z</modified>"
    [document] = read(make("rules.docx", docx(body, styles=STYLES, core=core, footnotes=paragraph("See the door."))))
    assert ("Rules", "Mia", datetime(2024, 3, 5, 10, tzinfo=UTC)) == (document.title, document.author, document.date)
    assert [
        ("Lending rules", "", "Bring your card.\n\n- by hand\n  - at the desk"),
        ("Lending rules > Renewing", "", "Kind: Book; Days: 21 or 42; Fee: 0.20"),
        ("Lending rules > Renewing > Details", "", "Within five days"),
        ("Footnotes", "", "See the door."),
    ] == shown(document)


def test_tables_of_word_files_name_columns_where_they_say_so(make: Files) -> None:
    """A table of two columns may be a list of names and values; one of a single cell is a frame around text."""
    two = word_row(paragraph("Opens"), paragraph("nine")) + word_row(paragraph("Closes"), paragraph("five"))
    repeated = word_row(paragraph("Day"), paragraph("Hours"), described="<w:trPr><w:tblHeader/></w:trPr>")
    repeated += word_row(paragraph("Monday"), f"<w:tbl>{two}</w:tbl>" + paragraph(""))
    framed = word_row(paragraph("Mind") + paragraph("the step"))
    for table, text in (
        (two, "Opens | nine\nCloses | five"),
        (repeated, "Day: Monday; Hours: Opens | nine Closes | five"),
        (framed, "Mind\nthe step"),
    ):
        [document] = read(make("a.docx", docx(f"<w:tbl>{table}</w:tbl>")))
        assert [text] == [section.text for section in document.sections]


# tables


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.csv", "Name,City\nMia,Rome\n\nTom,\n", "Name: Mia; City: Rome\nName: Tom"),
        ("a.csv", 'Name;City\nMia;"Rome,\n Italy"\n', "Name: Mia; City: Rome, Italy"),
        ("a.tsv", "Name\tCity\nMia\tRome\tmore\n", "Name: Mia; City: Rome; column 3: more"),
        ("a.csv", ",Name,City\n1,Mia,Rome\n", "column 1: 1; Name: Mia; City: Rome"),
        ("a.csv", "2024-01-05,3.50\n2024-01-06,4\n", "2024-01-05 | 3.50\n2024-01-06 | 4"),
        ("a.csv", "Name,City\n", "Name | City"),
        ("a.csv", "only one column\nof words\n", "only one column\nof words"),
        ("a.csv", "\ufeffName,City\r\nMia,Köln\r\n", "Name: Mia; City: Köln"),
    ],
)
def test_each_value_of_a_row_has_its_columns_name(make: Files, name: str, content: str, text: str) -> None:
    """Whatever parts the values; without a row of names, they stand between bars."""
    [table] = read(make(name, content))
    assert [text] == [section.text for section in table.sections]


async def test_a_row_more_writes_few_passages(tmp_path: Path) -> None:
    """Every passage of a table names its columns, and a row at its beginning does not move those after it."""
    rows = [f"Visitor {n},room {n % 7},{n} euros" for n in range(500)]
    path = tmp_path / "visits.csv"
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        path.write_text("\n".join(["Guest,Where,Paid", *rows]))
        [table] = await documents.add(path)
        assert all(one.text.startswith("Guest: ") for one in await documents.passages(table.id))
        path.write_text("\n".join(["Guest,Where,Paid", "Visitor new,room 9,1 euro", *rows]))
        report = await documents.ingest(path)
        assert len(table.passages) / 2 > report.passages


# JSON


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.json", '{"host": "x", "ports": [80, 443], "tls": {"on": true, "key": null, "ca": {}}}',
         "host: x\nports: 80, 443\ntls.on: true"),
        ("a.json", '[{"name": "Mia", "age": 1.50}, {"name": "Tom"}]', "name: Mia\nage: 1.50\n\nname: Tom"),
        ("a.json", '{"users": [{"name": "Mia"}, {"name": "Tom"}], "total": 2}',
         "users[].name: Mia\n\nusers[].name: Tom\n\ntotal: 2"),
        ("a.json", '{"grid": [[1, 2], [3]]}', "grid[]: 1, 2\n\ngrid[]: 3"),
        ("a.jsonl", '{"q": "why", "a": "because"}\n\n"alone"\n', "q: why\na: because\n\nalone"),
        ("a.json", '"a\\ud800"', "a?"),
        ("a.json", "12345678901234567890.10", "12345678901234567890.10"),
    ],
)  # fmt: skip
def test_json_is_lines_of_paths_and_values(make: Files, name: str, content: str, text: str) -> None:
    """Elements of lists stand apart; numbers stay as they are written."""
    [document] = read(make(name, content))
    assert [text] == [section.text for section in document.sections]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.json", '{"a": 1,\n "b": }', "a.json: line 2 column 7: not JSON: Expecting value"),
        ("a.jsonl", '{"a": 1}\n{"b"}\n', "a.jsonl: line 2: not JSON: Expecting ':' delimiter"),
        ("a.json", "", "a.json: it is empty"),
    ],
)
def test_broken_json_is_named_by_its_place(make: Files, name: str, content: str, why: str) -> None:
    """Line and column, or the line of a file of lines."""
    with pytest.raises(errors.UnreadableDocument) as caught:
        read(make(name, content))
    assert str(caught.value).endswith(why)


async def test_new_formats_are_found_in_folders_and_by_search(tmp_path: Path) -> None:
    """A folder's pages, Word files, tables and values are documents; a search finds each by what it says."""
    (tmp_path / "page.html").write_text("<h1>Parking</h1><p>Leave the bicycle behind the mill.")
    (tmp_path / "word.docx").write_bytes(docx(paragraph("The bakery opens before dawn.")))
    (tmp_path / "table.csv").write_text("Dish,Price\nsoup of lentils,4\n")
    (tmp_path / "values.json").write_text('{"heating": {"target": "nineteen degrees"}}')
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        report = await documents.ingest(tmp_path)
        assert (4, [], []) == (report.added, report.skipped, report.failed)
        for words, kind in (
            ("bicycle", "html"),
            ("dawn", "docx"),
            ("lentils price", "csv"),
            ("heating target", "json"),
        ):
            [hit, *_] = await documents.search(words)
            assert kind == {one.title: one.format for one in await documents.list()}[hit.about.partition(" > ")[0]]
