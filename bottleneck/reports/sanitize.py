"""User text made safe to show: one line, no control characters, nothing private, escaped.

Names of stages, reasons, warnings and descriptions come from user code, or from a file that somebody sent.
"""

from __future__ import annotations

import html
import re
import socket
import unicodedata
from pathlib import Path
from typing import Literal

MAX_TEXT = 2_000
"""Characters of one text that are shown; a report is for reading."""

# A machine may be called like a stage; to strip its name would then garble the report and hide nothing.
_NOT_PRIVATE = {
    *("", "localhost", "bottleneck", "device", "host", "raw", "compute", "copy", "handoff"),
    *("collate", "finish", "augment", "load", "fetch", "other", "linux", "cpu", "cuda", "torch", "python"),
}

MAX_NAME = 60
"""Characters of a name that are shown in markdown, if names may be many."""

_ZERO_WIDTH_SPACE = "&#8203;"

# Terminal sequences: CSI ('[31m'), OSC and other strings (titles, links), and the two-character ones.
_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
)
_SECRET = re.compile(
    r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA)[A-Za-z0-9_-]{12,}"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"
)
SECRET_KEY = re.compile(r"token|secret|passw|credential|api_?key", re.IGNORECASE)
"""Key names of values that others must not see."""
_OTHER_HOME = re.compile(r"(?<![\w.~-])(?:/(?:home|Users)/[^\s/\\:'\"]+|[A-Za-z]:[\\/]Users[\\/][^\s/\\:'\"]+)")


# What GitHub's runner takes for a command in a log: the first at the start of a line, where a wrapped text may put it,
# the second anywhere. A result may come from a fork, and its report be printed where there are secrets.
_WORKFLOW_COMMAND = re.compile(
    r"::(?=(?:set-output|set-env|add-path|save-state|add-mask|error|warning|notice|debug|group|endgroup"
    r"|stop-commands|echo|(?:add|remove)-matcher)(?:::|\s|$))|##(?=\[)",
    re.IGNORECASE,
)


def lines(text: str) -> list[str]:
    """Return the lines of a text, without anything that a terminal or a log would act on; indentation is kept."""
    text = _clip(_ESCAPE_SEQUENCE.sub("", text).expandtabs(4))
    shown = (_visible(line).rstrip() for line in text.splitlines())
    return [_WORKFLOW_COMMAND.sub(lambda found: " ".join(found.group(0)), line) for line in shown]


def one_line(text: str, limit: int = MAX_TEXT) -> str:
    """Return a text as one line of at most `limit` characters, without anything that a terminal would act on."""
    return _clip(" ".join(" ".join(lines(text)).split()), limit)


def public(text: str) -> str:
    """Return a text for a report that gets posted: no home directory, no host name, nothing like a secret."""
    home, host = _private_names()
    if home:
        text = re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])", "~", text)
    text = _OTHER_HOME.sub("~", text)
    if host:
        text = re.sub(rf"(?<!\w){re.escape(host)}(?:\.[a-z][\w-]*)*(?!\w)", "[host]", text, flags=re.IGNORECASE)
    return _SECRET.sub("[hidden]", text)


def shown(text: str, limit: int = MAX_TEXT) -> str:
    """Return a text as one line of at most `limit` characters, for a report that gets posted."""
    return _clip(public(one_line(text)), limit)


def markdown(text: str, limit: int = MAX_TEXT) -> str:
    """Return a text as one line of GitHub markdown that shows unchanged: no markup, no HTML, no mentions.

    Of it, `limit` characters are shown; escaped, each can take eight.
    """
    text = public(one_line(text, limit))
    # An underscore inside a word is no emphasis; unescaped, names stay readable in the source.
    text = re.sub(r"[\\`*\[\]~$]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    # Renderers disagree on a backslash before a pipe in a table; none splits a cell at the entity.
    text = html.escape(text, quote=False).replace("|", "&#124;")
    # GitHub looks for mentions and references in the rendered text, so that escaping alone does not help.
    text = text.replace("@", "@" + _ZERO_WIDTH_SPACE)
    text = re.sub(r"((?<!&)#|\bGH-)(?=\d)", rf"\1{_ZERO_WIDTH_SPACE}", text)
    return re.sub(r"^([#+=-]|\d+(?=[.)](?:\s|$)))", _escape_start, text)


def markdown_code(text: str, limit: int = MAX_NAME) -> str:
    """Return a name as a code span of GitHub markdown, or escaped if a code span cannot hold it in a table."""
    text = public(one_line(text, limit))
    return markdown(text) if not text or re.search(r"[`|\\]", text) else f"`{text}`"


def markdown_block(text: str, language: Literal["", "diff", "python"] = "") -> str:
    """Return a text of several lines as a fenced block of GitHub markdown."""
    content = public("\n".join(lines(text)))
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{content}\n{fence}"


def _escape_start(match: re.Match[str]) -> str:
    # At the start of a line these open a heading or a list; the dot after a number cannot be escaped here.
    start = match.group(0)
    return f"&#{ord(start[0])};{start[1:]}"


def _clip(text: str, limit: int = MAX_TEXT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _visible(line: str) -> str:
    # Cc: control characters. Cf: invisible ones, among them those that reverse the order of text.
    # Cs: halves of characters, which cannot be printed. Zl, Zp: line ends of another kind.
    if line.isprintable():  # holds none of these, as nearly every line
        return line
    return "".join(c for c in line if unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp"})


def _private_names() -> tuple[str, str]:
    try:
        home = str(Path.home())
    except RuntimeError:  # no home directory can be found
        home = ""
    host = socket.gethostname().split(".")[0]
    return (home if len(home) > 1 else "", "" if host.lower() in _NOT_PRIVATE else host)
