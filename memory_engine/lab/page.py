"""A lab report as one HTML file: no script, no request to anywhere; light and dark, wide and narrow."""

from collections.abc import Iterable
from html import escape

from memory_engine.core.excerpts import counted, number
from memory_engine.lab.report import LabFinding, LabReport, Metric, ThreadPair, foremost, metric_texts

FINDINGS_MAX = 100
THREADS_MAX = 1_000
_STYLE = """
.lab { --fg: #1f2328; --quiet: #59636e; --page: #ffffff; --soft: #f6f8fa; --line: #d1d9e0; --bad: #b3261e;
  --good: #1a7f37; --warn: #9a6700; color: var(--fg); background: var(--page); font: 15px/1.5 system-ui, sans-serif;
  max-width: 70rem; margin: 0 auto; padding: 1rem; }
@media (prefers-color-scheme: dark) { .lab { --fg: #e6edf3; --quiet: #9da7b3; --page: #0d1117; --soft: #161b22;
  --line: #30363d; --bad: #ff7b72; --good: #56d364; --warn: #e3b341; } body { background: #0d1117; } }
.lab h1 { font-size: 1.35rem; margin: 0 0 .25rem; } .lab h2 { font-size: 1.05rem; margin: 1.75rem 0 .5rem; }
.lab p { margin: .25rem 0; } .lab .quiet { color: var(--quiet); } .lab .bad { color: var(--bad); }
.lab .good { color: var(--good); } .lab .warn { color: var(--warn); }
.lab table { border-collapse: collapse; width: 100%; } .lab .wide { overflow-x: auto; }
.lab th, .lab td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
.lab th { font-weight: 600; color: var(--quiet); white-space: nowrap; }
.lab th:first-child, .lab td:first-child { text-align: left; padding-left: 0; }
.lab tr.broken td { font-weight: 600; }
.lab ol { list-style: none; margin: 0; padding: 0; } .lab li { border-top: 1px solid var(--line); padding: .6rem 0; }
.lab code { display: block; white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft);
  padding: .35rem .5rem; border-radius: 4px; margin-top: .3rem; font: 13px/1.4 ui-monospace, monospace;
  user-select: all; }
.lab .tag { border: 1px solid currentColor; border-radius: 99px; padding: 0 .5rem; font-size: .8rem;
  margin-right: .4rem; white-space: nowrap; }
.lab summary { cursor: pointer; } .lab td { white-space: nowrap; }
.lab td:first-child { overflow-wrap: anywhere; min-width: 6rem; white-space: normal; }
@media (max-width: 40rem) { .lab th, .lab td { padding: .25rem .3rem; font-size: .82rem; }
  .lab th { white-space: normal; } }
"""


def page(found: LabReport) -> str:
    """The report as a file that a browser opens."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(found.verdict)}</title><style>body {{ margin: 0; }}</style></head>"
        f"<body>{_main(found)}</body></html>\n"
    )


def _main(found: LabReport) -> str:
    colour = "good" if found.safe else "bad" if found.broken or not found.threads else "warn"
    versions = dict.fromkeys(found.versions)
    logs = len({one.log for one in found.threads})
    about = f"{counted(len(found.threads), 'thread')} of {counted(logs, 'log')}, memory_engine {' and '.join(versions)}"
    return "".join(
        (
            f'<style>{_STYLE}</style><main class="lab">',
            f'<h1 class="{colour}">{escape(found.verdict)}</h1>',
            f"<p><b>{escape(found.under.name)}</b>, against <b>{escape(found.against.name)}</b></p>",
            f'<p class="quiet">{escape(about)}</p>',
            *(f'<p class="warn">not measured: {escape(one.log)}: {escape(one.why)}</p>' for one in found.unmeasured),
            _findings_list(found),
            _metrics_table(found.metrics) if found.threads else "",
            _threads_table(found.threads),
            "</main>",
        )
    )


def _table(heads: Iterable[str], rows: Iterable[str]) -> str:
    cells = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _metrics_table(metrics: Iterable[Metric]) -> str:
    rows = (
        f'<tr class="{"broken bad" if one.broken else ""}">'
        f"{_cells(('✗ ' if one.broken else '') + one.label, *metric_texts(one))}</tr>"
        for one in metrics
    )
    return f"<h2>Measures</h2>{_table(('', 'before', 'after', 'worse by', 'allowed'), rows)}"


def _cells(*texts: str) -> str:
    return "".join(f"<td>{escape(text)}</td>" for text in texts)


def _findings_list(found: LabReport) -> str:
    if not found.findings:
        return ""
    broken = {one.metric for one in found.broken}
    labels = {one.metric: one.label for one in found.metrics}
    shown = foremost(found.findings, FINDINGS_MAX)
    worst = [_finding_item(one, labels, "bad") for one in shown if one.metric in broken]
    others = [_finding_item(one, labels, "quiet") for one in shown if one.metric not in broken]
    parts = ["<h2>What got worse</h2>"]
    if worst:
        parts.append(f"<ol>{''.join(worst)}</ol>")
    if others:
        parts.append(f"<details><summary>{len(others)} more, within what is allowed</summary>")
        parts.append(f"<ol>{''.join(others)}</ol></details>")
    if len(found.findings) > len(shown):
        parts.append(f'<p class="quiet">… and {number(len(found.findings) - len(shown))} more: --json has them all</p>')
    if not any(one.kept for one in found.threads):
        parts.append('<p class="quiet">To run these commands, run the lab again with --keep lab-kept.</p>')
    return "".join(parts)


def _finding_item(one: LabFinding, labels: dict[str, str], colour: str) -> str:
    return (
        f'<li><span class="tag {colour}">{escape(labels[one.metric])}</span>'
        f"<b>{escape(one.thread)}</b>, event {one.seq}: {escape(one.what)}"
        f"<code>{escape(one.command)}</code></li>"
    )


def _threads_table(threads: tuple[ThreadPair, ...]) -> str:
    if not threads:
        return ""
    order = sorted(threads, key=lambda one: -sum(one.worse.values()))
    rows = (
        "<tr>"
        + _cells(
            one.thread,
            number(one.under.events),
            f"{one.contexts_changed} of {len(one.under.moments)}",
            f"{number(one.against.tokens)} → {number(one.under.tokens)}",
            f"{one.against.compactions.completed} → {one.under.compactions.completed}",
            f"{len(one.against.values_missing)} → {len(one.under.values_missing)}",
            f"{one.against.cache_breaks} → {one.under.cache_breaks}",
        )
        + "</tr>"
        for one in order[:THREADS_MAX]
    )
    heads = ("thread", "events", "contexts changed", "tokens", "compactions", "values missing", "cache breaks")
    more = f'<p class="quiet">… and {number(len(order) - THREADS_MAX)} more</p>' if len(order) > THREADS_MAX else ""
    return f"<h2>Threads, the worst first</h2>{_table(heads, rows)}{more}"
