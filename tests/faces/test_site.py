"""The site of the docs: its check of links finds what a reader would. `python3 tasks.py site` builds and checks it."""

from pathlib import Path

from website.links import broken_links


def test_what_a_reader_would_stumble_over_is_found(tmp_path: Path) -> None:
    """A page, a heading or a picture that is not there, and anything that loads from another host."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.html").write_text('<h1 id="there">B</h1>')
    (tmp_path / "a.html").write_text(
        '<a href="b/index.html#there">1</a> <a href="b">2</a> <a href="https://example.org">3</a> <a href="#here">4</a>'
        '<p id="here"></p> <a href="c.html">5</a> <a href="b/#gone">6</a> <img src="no.png">'
        '<script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "s.css").write_text("@font-face { src: url(https://example.org/f.woff2) }")
    assert [
        "a.html: loads https://example.org/x.js from elsewhere",
        "a.html: b/#gone names no heading",
        "a.html: c.html is not there",
        "a.html: no.png is not there",
        "s.css: loads https://example.org/f.woff2 from elsewhere",
    ] == broken_links(tmp_path)
