"""Hostile text in every field of a result that holds text, found by walking the records: it stays text everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from test_hostile_text import ANCHOR, HOSTILE, structure

from bottleneck.analysis.comparison import compare
from bottleneck.cli.main import run
from bottleneck.reports.render import render
from bottleneck.results.json import from_json, load, save
from bottleneck.results.records import Interval, Result
from bottleneck.results.tuning import TuningResult
from tests.support.rank_results import make_ranks_result
from tests.support.tuning_factory import make_tuning

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
    """A record, or a part of one, with `text` in front of every text in it, keys of what is free included."""
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


def texts(value) -> Iterator[str]:
    """Every text in a record but for the words that are chosen."""
    if is_dataclass(value):
        for field in fields(value):
            if field.name not in CHOICES | MEANT:
                yield from texts(getattr(value, field.name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in MEANT:
                yield from texts(item)
    elif isinstance(value, str):
        yield value


def shortened(value):
    """A record, or a part of one, with two items of each list of what is measured many times."""
    if is_dataclass(value) and not isinstance(value, Interval):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(
            value, **{name: item[:2] if name == "blocks" and item else shortened(item) for name, item in held.items()}
        )
    if isinstance(value, tuple):
        return tuple(shortened(item) for item in value)
    if isinstance(value, dict):
        return {key: item[:2] if isinstance(item, list) else shortened(item) for key, item in value.items()}
    return value


@cache
def hostile(text: str) -> Result:
    """The full result with `text` in every field, its free parts under keys of that text too."""
    result = filled(shortened(with_ranks(load(FULL))), text)
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


def test_every_text_of_the_result_is_hostile():
    found = list(texts(hostile("<hostile>")))
    assert len(found) > 100
    assert all(text.startswith(f"{ANCHOR} <hostile>") for text in found)


@pytest.mark.parametrize("text", HOSTILE)
def test_html_has_the_elements_and_attributes_of_a_harmless_page(text):
    for dangerous, plain in zip(documents(text, "html"), documents(harmless(text), "html"), strict=True):
        assert structure(dangerous).elements == structure(plain).elements
        assert not ACTING.search(dangerous)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_terminal_and_a_log_are_told_nothing_to_do(text):
    for report in (*documents(text, "text"), *documents(text, "markdown")):
        assert not ACTING.search(report)
        assert not COMMAND.search(report)


# --- markdown, as a renderer of its own understands it ------------------------------------------------------

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
    assert shown.err.startswith("Error: The results are unlike: ")
    assert shown.err.count("\n") == 1
    for stream in (shown.out, shown.err):
        assert not ACTING.search(stream)
        assert not COMMAND.search(stream)
