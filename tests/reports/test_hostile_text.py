"""Text of the user's shows as text: it becomes no markup, no command to the terminal, and no leak."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bottleneck.analysis.comparison import compare
from bottleneck.reports import sanitize
from bottleneck.reports.render import render
from bottleneck.results.comparison import Comparison
from bottleneck.results.records import Advice, Result, Tool, Warning
from tests.reports.report_machine import HOME, HOST
from tests.support.results_factory import EVIDENCE, make_result

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


def everywhere(text: str) -> Result:
    """A result with `text` in every field that user code, or a file, can fill."""
    text = f"{ANCHOR} {text}"
    line = " ".join(text.split())
    result = make_result()
    experiments = tuple(
        replace(e, name=f"{text} {e.name}", reason=text if e.reason else None) for e in result.experiments
    )
    stages = tuple(
        replace(s, name=f"{text} {s.name}", inner=s.inner and f"{text} {s.inner}", outer=f"{text} {s.outer}")
        for s in result.stages
    )
    verdict = replace(
        result.verdict,
        bottleneck=f"{text} augment",
        contributors=(f"{text} load",),
        sentence=f"{line} is the bottleneck.",
    )
    named = ("stage", "path", "name", "output")
    payload = {
        "bytes": 8,
        "tensors": [{"path": text, "shape": [4], "dtype": text, "bytes": 4}, {"bytes": 4}],
        "savings": [{"path": text, "what": text, "how": text, "bytes_saved": 2}],
    }
    transforms = [{**row, **dict.fromkeys(named, text)} for row in EVIDENCE["transforms"]]
    return make_result(
        tool=Tool(text, text),
        created=text,
        environment={text: text, "nested": {text: [text]}},
        pipeline={text: text, "length": 3},
        experiments=experiments,
        without=tuple(replace(w, stage=text) for w in result.without),
        stages=stages,
        verdict=verdict,
        advice=(
            Advice(text, text, text, text, line, {text: text}),
            Advice("b", None, text, text, f"a\n{text}", {}),
        ),
        evidence={"transforms": transforms, "transforms_note": text, "payload": payload},
        warnings=(Warning(text, text),),
    )


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


def compared(text: str) -> Comparison:
    """A comparison with `text` wherever a file can bring it in, its name among them."""
    base = everywhere(text)
    head = replace(base, pipeline={"batch_size": text}, environment={**base.environment, "torch": "2"})
    label = f"{ANCHOR} {text}"
    base = replace(base, pipeline={"batch_size": "1"}, environment={**base.environment, "torch": text})
    return compare(base, head, labels=(label, f"{label} head"), force=True)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_comparison_keeps_its_structure(text):
    html = [structure(render(compared(each), "html")) for each in (text, "x")]
    assert html[0].elements == html[1].elements
    markdown = [render(compared(each), "markdown") for each in (text, "x")]
    assert block_structure(markdown[0]) == block_structure(markdown[1])
    prose = without_code(markdown[0])
    assert "<" not in re.sub(r"</?(?:details|summary)>", "", prose)
    assert not re.search(r"@\w", prose)
    for format in ("text", "markdown", "html"):
        report = render(compared(text), format)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u2028\u202a-\u202e\ufeff\ud800-\udfff]", report)


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_holds_no_markup_of_the_users(text):
    prose = without_code(render(everywhere(text), "markdown"))
    allowed = r"</?(?:details|summary|sub)>"
    assert "<" not in re.sub(allowed, "", prose)
    assert not re.search(r"@\w", prose)
    assert not re.search(r"(?<!&)#\d|GH-\d", prose)
    assert not re.search(r"(?<!\\)!?\[[^\]]*(?<!\\)\]\(", prose)


def test_a_line_of_the_verdict_is_a_paragraph_and_no_more():
    undecided = replace(make_result().verdict, state="undecided")
    verdict = replace(undecided, sentence="answer\n# x\n- y\n1. z\n---\n```\n<b>")
    lines = render(make_result(verdict=verdict), "markdown").split("| stage")[0].split("\n\n")
    assert lines[2:] == ["answer", "&#35; x", "&#45; y", "&#49;. z", "&#45;--", r"\`\`\`", "&lt;b&gt;", ""]


@pytest.mark.parametrize("format", ["markdown", "html"])
def test_nothing_private_is_posted(format):
    report = render(everywhere(f"{HOME}/data on {HOST}.example.org, {HOST.upper()}"), format)
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


def test_a_home_directory_at_the_root_hides_no_slashes(monkeypatch):
    monkeypatch.setattr("pathlib.Path.home", lambda: __import__("pathlib").Path("/"))
    assert sanitize.public("/data/x") == "/data/x"


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
    [
        ("augment", "`augment`"),
        ("@decode <b>", "`@decode <b>`"),
        ("a`b", r"a\`b"),
        ("a|b", "a&#124;b"),
        ("", ""),
    ],
)
def test_markdown_code(text, shown):
    assert sanitize.markdown_code(text) == shown


def test_a_block_of_code_cannot_be_left():
    block = sanitize.markdown_block("x\n````\n# out\n```")
    assert block == "`````\nx\n````\n# out\n```\n`````"


def without_code(report: str) -> str:
    """The report without fenced blocks and code spans, where nothing has a meaning."""
    report = re.sub(r"^ *(`{3,})[^\n]*\n.*?\n *\1 *$", "", report, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(?<![\\`])`[^`\n]+`(?!`)", "", report)


def block_structure(report: str) -> list[str]:
    """What begins each line, and how many cells a row has: text must change neither."""
    shape, fence = [], ""
    for line in report.splitlines():
        opened = re.match(r" *(`{3,})", line)
        if fence:
            if line.strip() == fence:
                shape.append("end")
                fence = ""
            continue
        if opened:
            fence = opened.group(1)
            shape.append("code")
        elif line.startswith("|"):
            cells = len(re.findall(r"(?<!\\)\|", line))
            shape.append(f"row of {cells}")
        else:
            start = re.match(r"( *- |<\w+>|</\w+>|\*\*|_|#|\d+\.|>|=|)", line).group(0)
            shape.append(start or ("text" if line else ""))
    return shape
