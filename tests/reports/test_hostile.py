"""Text of the user's shows as text in every field of a result: no markup, no command to a terminal, and no leak."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, is_dataclass, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from bottleneck.analysis.comparison import compare
from bottleneck.cli.main import run
from bottleneck.reports import sanitize
from bottleneck.reports.render import render
from bottleneck.results.json import from_json, load, save
from bottleneck.results.records import Interval, Result
from bottleneck.results.tuning import TuningResult
from tests.reports.report_machine import HOME, HOST
from tests.support.rank_results import make_ranks_result
from tests.support.results_factory import make_result
from tests.support.tuning_factory import make_tuning

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "</details></td></table><h1>hello</h1>",
    "a | b | c",
    "\\| x \\\\| y",
    "`code` ``more`` ```fence",
    "```\nout\n```mermaid",
    "line one\n\n# heading\r\n- item\u2028x",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]8;;http://x\x1b\\link\x9b2J",
    "bell\x07 null\x00 back\x08 delete\x7f",
    "\u202egnp.exe\u202c \u200bhidden\ufeff",
    "@octocat and @org/team, #12 and GH-7",
    "**bold** _em_ ~~gone~~ [link](javascript:alert(1)) ![img](http://x/y.png)",
    "{{ 7 * 7 }} {% raw %} ${jndi:ldap://x} %s {0}",
    "<!-- comment",
    "&lt;b&gt; &amp;",
    "\ud83d lone",
    "::error file=a.py,line=1::boo",
    "x\n::add-mask::1\n ::set-output name=a::b",
    "##[add-mask]x",
    "\u2066isolate\u2069 \u200e\u061cmarks",
    "> quoted",
    "1. one\n2) two",
    "[ref]: http://x/y 'title'",
    "http://x/y <http://x/y> www.x.org me@x.org",
    "a\tb\x0bc\x85d\u2029e",
    f"{HOME}/data/train on {HOST} and {HOST}.example.org",
]

ANCHOR = "qzx"  # marks the user's text, to find it again


SAVED = Path(__file__).parent.parent / "saved"
FULL = max(SAVED.glob("v1-*.json"))
"""The saved result with the most in it: every kind of evidence."""

CHOICES = {"state", "finding", "gain_basis", "judged_by", "kind", "on", "alters", "outcome"}
"""Fields that hold one of a few words; a file with another one is refused."""
MEANT = {"source", "mode", "seen"}
"""Keys of evidence whose known words alone are shown, or whose texts are positions."""

COMMAND = re.compile(r"^\s*::[\w-]+|##\[", re.MULTILINE)
ACTING = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def with_ranks(result: Result) -> Result:
    """The result as one of a job of many ranks."""
    many = make_ranks_result(4, slow=3)
    return replace(result, ranks=many.ranks, evidence=replace(result.evidence, ranks=many.evidence.ranks))


def filled(value, text: str):
    """Return a record, or a part of one, with `text` before every text in it, free keys included."""
    if is_dataclass(value) and not isinstance(value, Interval):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(
            value, **{name: item if name in CHOICES | MEANT else filled(item, text) for name, item in held.items()}
        )
    if isinstance(value, (list, tuple)):
        return type(value)(filled(item, text) for item in value)
    if isinstance(value, dict):
        return {key: item if key in MEANT else filled(item, text) for key, item in value.items()}
    return f"{ANCHOR} {text} {value}" if isinstance(value, str) else value


@cache
def hostile(text: str) -> Result:
    """The full result with `text` in every field, its free parts under keys of that text too."""
    result = filled(with_ranks(load(FULL)), text)
    for part in ("environment", "pipeline"):
        named = {f"{ANCHOR} {text} {key}": value for key, value in getattr(result, part).items()}
        result = replace(result, **{part: {**getattr(result, part), **named}})
    gained = [replace(advice, gain=Interval(1.5, 1.2, 1.8), gain_basis="measured") for advice in result.advice]
    return replace(result, advice=tuple(gained))


@cache
def hostile_tuning(text: str) -> TuningResult:
    """A tuning with `text` in all that it says itself; that of its diagnoses is found above."""
    tuning = make_tuning()
    told = filled(replace(tuning, before=None, after=None), text)
    return replace(told, before=tuning.before, after=tuning.after)


def harmless(text: str) -> str:
    """A text of as many lines with nothing in them: a verdict and a remedy may have several."""
    return "\n".join("x" if line.strip() else "" for line in text.splitlines())


@cache
def documents(text: str, form: str) -> tuple[str, ...]:
    """Every report of this form that there is."""
    result = hostile(text)
    elsewhere = filled(result.environment, text)
    other = replace(result, pipeline={**result.pipeline, "batch_size": text}, environment=elsewhere)
    labels = f"{ANCHOR} {text} base", f"{ANCHOR} {text} head"
    compared = compare(result, other, labels=labels, force=True)
    tuned = hostile_tuning(text)
    made = (render(result, form), render(compared, form), render(tuned, form))
    return (*made, render(result, "markdown", compared)) if form == "markdown" else made


class Structure(HTMLParser):
    """Counts the elements of a document, attributes included, and checks that they nest."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attributes):
        self.elements[tag, tuple(name for name, _ in attributes)] += 1
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements[tag, tuple(name for name, _ in attributes)] += 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def structure(document: str) -> Structure:
    parser = Structure()
    parser.feed(document)
    parser.close()
    assert parser.open == []
    return parser


@pytest.mark.parametrize("text", HOSTILE)
def test_html_has_the_elements_and_attributes_of_a_harmless_page(text):
    for dangerous, plain in zip(documents(text, "html"), documents(harmless(text), "html"), strict=True):
        assert ANCHOR in dangerous
        assert structure(dangerous).elements == structure(plain).elements
        assert not ACTING.search(dangerous)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_terminal_and_a_log_are_told_nothing_to_do(text):
    for report in (*documents(text, "text"), *documents(text, "markdown")):
        assert not ACTING.search(report)
        assert not COMMAND.search(report)


# --- markdown, as a separate renderer understands it --------------------------------------------------------

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OWN_TAGS = re.compile(r"(</?(details|summary|sub)>\s*)+")
INLINE = {"text", "text_special", "code_inline", "softbreak", "strong_open", "strong_close", "html_inline", "entity"}


def blocks(tokens: list[Token]) -> list[tuple[str, str, int]]:
    """The blocks of a report in the order of its source, without what they say."""
    return [(token.type, token.tag, token.level) for token in tokens]


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_has_the_blocks_of_a_harmless_report_and_no_element_of_the_users(text):
    own = {child.type for token in PARSER.parse(documents("x", "markdown")[0]) for child in token.children or ()}
    for dangerous, plain in zip(documents(text, "markdown"), documents(harmless(text), "markdown"), strict=True):
        tokens = PARSER.parse(dangerous)
        assert blocks(tokens) == blocks(PARSER.parse(plain))
        for token in tokens:
            if token.type == "html_block":
                assert all(OWN_TAGS.fullmatch(tag) for tag in re.findall(r"<[^>]*>", token.content))
            for child in token.children or ():
                assert child.type in INLINE | own
                assert child.type != "html_inline" or OWN_TAGS.fullmatch(child.content)


@pytest.mark.parametrize("text", HOSTILE)
def test_every_row_of_a_table_has_as_many_cells_as_its_head(text):
    # In the source: the parser fills up rows that are too short and cuts those that are too long.
    for report in documents(text, "markdown"):
        for table in re.findall(r"(?:^\|.*\n)+", report, flags=re.MULTILINE):
            head, _, *rows = table.splitlines()
            assert "\\|" not in table
            assert {row.count("|") for row in rows} <= {head.count("|")}


# --- documents and the command line -----------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_json_says_it_to_the_letter(text):
    result = hostile(text)
    assert from_json(render(result, "json")) == result
    assert "\x1b" not in render(result, "json")


@pytest.mark.parametrize("text", HOSTILE)
def test_the_summary_of_a_step_and_errors_act_on_nothing(text, tmp_path, monkeypatch, capsys):
    path, base, summary = tmp_path / "result.json", tmp_path / "base.json", tmp_path / "summary.md"
    result = hostile(text)
    save(result, path)
    save(replace(result, environment={**result.environment, "device": f"{text} other"}), base)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert run(["report", str(path), "--github-summary"]) == 0
    assert summary.read_text(encoding="utf-8") == render(result, "markdown") + "\n"
    assert run(["compare", str(base), str(path)]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("Error: The results are not from one job on one machine: ")
    assert shown.err.count("\n") == 1
    for stream in (shown.out, shown.err):
        assert not ACTING.search(stream)
        assert not COMMAND.search(stream)


# --- one text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["markdown", "html"])
def test_nothing_private_is_posted(format):
    report = render(hostile(f"{HOME}/data on {HOST}.example.org, {HOST.upper()}"), format)
    assert HOME not in report
    assert HOST not in report.lower()
    assert "example.org" not in report
    assert "~/data" in report.replace("\\~", "~")


def test_secrets_are_hidden():
    result = make_result(
        environment={"HF_TOKEN": "abc123", "nested": {"api_key": "abc123"}},
        pipeline={"url": "s3://user:abc123@bucket/x", "note": "ghp_abcdefghijklmnopqrstuvwxyz012345"},
    )
    for format in ("markdown", "html"):
        report = render(result, format)
        assert "abc123" not in report
        assert "ghp_" not in report
        assert "hidden" in report


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada/x", "~/x"),
        ("/home/ada", "~"),
        ("file:///home/ada/x", "file://~/x"),
        ("/home/adam/x", "~/x"),  # somebody else's: the result may come from another machine
        ("/Users/eve/x", "~/x"),
        (r"C:\Users\eve\x", r"~\x"),
        ("/data/home/ada/x", "/data/home/ada/x"),
        ("build-agent-17", "[host]"),
        ("build-agent-170", "build-agent-170"),
        ("BUILD-AGENT-17.example.org:80", "[host]:80"),
        ("https://u:p@host/x", "https://[hidden]@host/x"),
        ("a plain sentence.", "a plain sentence."),
    ],
)
def test_public(text, shown):
    assert sanitize.public(text) == shown


@pytest.mark.parametrize("name", ["augment", "localhost", "device"])
def test_a_machine_that_is_called_like_a_stage_garbles_nothing(monkeypatch, name):
    monkeypatch.setattr("socket.gethostname", lambda: name)
    assert sanitize.public(f"the {name} stage") == f"the {name} stage"


def test_no_home_directory_is_no_obstacle(monkeypatch):
    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", unknown)
    assert sanitize.public("/data/x") == "/data/x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("before_augment", "before_augment"),
        ("__init__", r"\_\_init\_\_"),
        ("2.15.0", "2.15.0"),
        ("1. one", "&#49;. one"),
        ("# one", "&#35; one"),
        ("- one", "&#45; one"),
        ("a|b", "a&#124;b"),
        ("a @b #3", "a @&#8203;b #&#8203;3"),
        ("a & <b>", "a &amp; &lt;b&gt;"),
        ("a\nb\x1b[1m  c", "a b c"),
        ("*a* `b` [c] $d ~e \\", r"\*a\* \`b\` \[c\] \$d \~e " + "\\\\"),
    ],
)
def test_markdown_escapes(text, shown):
    assert sanitize.markdown(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("augment", "`augment`"), ("@decode <b>", "`@decode <b>`"), ("a`b", r"a\`b"), ("a|b", "a&#124;b"), ("", "")],
)
def test_markdown_code(text, shown):
    assert sanitize.markdown_code(text) == shown


def test_a_block_of_code_cannot_be_left():
    block = sanitize.markdown_block("x\n````\n# out\n```")
    assert block == "`````\nx\n````\n# out\n```\n`````"
