"""What earlier versions saved can be read for ever; what is no result is refused in a line, never by a traceback."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bottleneck.analysis.comparison import compare
from bottleneck.cli.main import run
from bottleneck.errors import ExitStatus, ResultFileError
from bottleneck.reports.render import FORMATS, render
from bottleneck.results.json import from_json, load, save, to_json
from bottleneck.results.records import SCHEMA_VERSION, Result
from tests.support.no_longer_read import without_what_nobody_reads
from tests.support.results_factory import make_result

SAVED = sorted((Path(__file__).parent.parent / "saved").glob("*.json"))


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.json"
    save(make_result(), path)
    return path


# --- what earlier versions saved --------------------------------------------------------------------------


def test_every_schema_version_is_among_the_saved_results():
    versions = {json.loads(path.read_bytes())["schema_version"] for path in SAVED}
    assert versions == set(range(1, SCHEMA_VERSION + 1))
    told = (SAVED[0].parent / "README.md").read_text(encoding="utf-8")
    assert all(f"`{path.name}`" in told for path in SAVED)


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_nothing_that_was_saved_is_lost_but_what_nobody_reads(path):
    saved, kept = json.loads(path.read_bytes()), json.loads(to_json(load(path)))
    without_what_nobody_reads(saved["evidence"])
    assert missing(saved, kept) == []


def missing(saved, kept, place="") -> list[str]:
    """Places of what is in `saved` and not, or otherwise, in `kept`."""
    if isinstance(saved, dict) and isinstance(kept, dict):
        return [found for key, value in saved.items() for found in missing(value, kept.get(key), f"{place}.{key}")]
    if isinstance(saved, list) and isinstance(kept, list) and len(saved) == len(kept):
        pairs = enumerate(zip(saved, kept, strict=True))
        return [found for index, pair in pairs for found in missing(*pair, f"{place}[{index}]")]
    return [] if saved == kept else [place]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_a_saved_result_has_a_report_in_every_format(path, form, capsys):
    assert run(["report", str(path), "--format", form]) == ExitStatus.OK
    shown = capsys.readouterr()
    assert shown.err == ""
    assert (load(path).verdict.bottleneck or "device") in shown.out


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_a_saved_result_can_be_compared_with_todays(path, good, capsys):
    for form in FORMATS:
        assert run(["compare", str(path), str(good), "--force", "--format", form]) == ExitStatus.OK
    assert run(["report", str(good), "--base", str(path), "--force", "--format", "markdown"]) == ExitStatus.OK
    assert capsys.readouterr().err == ""


# --- what is no result ------------------------------------------------------------------------------------

RESULT = to_json(make_result())
DEEP = '{"schema_version": 1, "environment": ' + '{"a": ' * 50_000 + "1" + "}" * 50_001
FOREIGN = {
    "nothing": b"",
    "white space": b" \n\t ",
    "a number": b"1",
    "NaN": b"NaN",
    "a list": b"[1, 2]",
    "text": b"Epoch 1: 640 samples/s\n",
    "a web page": b"<!doctype html><title>404</title>",
    "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}q\x00.",
    "an archive": b"PK\x03\x04\x14\x00\x08\x00",
    "zeros": bytes(4096),
    "UTF-16": RESULT.encode("utf-16"),
    "UTF-16 without its mark": RESULT.encode("utf-16-le"),
    "UTF-32": RESULT.encode("utf-32"),
    "another tool's": json.dumps(
        {"version": "1.0", "benchmarks": [{"metadata": {}, "runs": [{"values": [1.0]}]}]}
    ).encode(),
    "a trace": json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X", "ts": 1, "dur": 2}]}).encode(),
    "a comparison": render(compare(make_result(), make_result()), "json").encode(),
    "a later version": RESULT.replace('"schema_version": 1', '"schema_version": 2').encode(),
    "version nought": RESULT.replace('"schema_version": 1', '"schema_version": 0').encode(),
    "a version that is a list": RESULT.replace('"schema_version": 1', '"schema_version": [1]').encode(),
    "a version of many digits": RESULT.replace('"schema_version": 1', '"schema_version": ' + "1" * 4000).encode(),
    "an infinite number": RESULT.replace('"seconds": 47.3', '"seconds": Infinity').encode(),
    "a number beyond floats": RESULT.replace('"seconds": 47.3', '"seconds": 1e999').encode(),
    "a key twice": RESULT.replace('"seconds": 47.3', '"seconds": 47.3, "seconds": 1').encode(),
    "cut off": RESULT[:5000].encode(),
    "cut off in a character": (RESULT[:30] + '"é').encode()[:-1],
    "two documents": (RESULT + RESULT).encode(),
    "deep": DEEP.encode(),
    "deep and cut off": b"[" * 200_000,
    "a comment": b"// saved\n" + RESULT.encode(),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_result_is_refused_in_one_line_wherever_it_is_given(content, good, tmp_path, capsys):
    path = tmp_path / "foreign.json"
    path.write_bytes(content)
    for arguments in (
        ["report", str(path)],
        ["compare", str(good), str(path), "--force"],
        ["report", str(good), "--base", str(path), "--format", "markdown"],
    ):
        assert run(arguments) == ExitStatus.USAGE
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith(f"Error: {path} ")
        assert shown.err.count("\n") == 1
        assert len(shown.err) < 400 + len(str(path))


def test_a_later_version_is_refused_with_what_to_do(good, capsys):
    good.write_text(good.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    assert run(["report", str(good)]) == ExitStatus.USAGE
    assert capsys.readouterr().err == (
        f"Error: {good} has schema_version 2, and this version of bottleneck reads 1. "
        "Update it with `pip install -U torch-bottleneck`, or write the result again with this version.\n"
    )


# --- what may be anything ---------------------------------------------------------------------------------

DOCUMENTS = [json.loads(RESULT), *(json.loads(path.read_bytes()) for path in SAVED)]
WHOLE = [0, 1, 7, 2**53, 10**18, 10**400, -1]
NUMBERS = [0.0, 5e-324, 0.5, 1e16, 1e18, 1e308, -1.5, -1e308, *WHOLE]
TEXTS = ["", "x", "a\nb", "\ud83d", "</script>", "9" * 3000]
ODD = [None, True, *NUMBERS, *TEXTS, [], {}, [[]], [1], ["x"], [None], {"a": 1}, {"a": [{}]}]


def odd_values(value):
    """Values to put into the place of another: as a rule of its kind, which get further than others."""
    kinds = {int: WHOLE, float: NUMBERS, str: TEXTS}
    alike = kinds.get(type(value), [[], {}, None])
    return st.sampled_from([*alike * 3, *ODD])


def places(value, path=()):
    """Where values stand in a document; of a list its first three items count."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from places(item, (*path, key))


def at(document, path):
    """What stands in a place; None where an earlier change took it away."""
    for key in path:
        there = isinstance(document, dict) and key in document
        there = there or (isinstance(document, list) and isinstance(key, int) and key < len(document))
        document = document[key] if there else None
    return document


@st.composite
def changed_documents(draw):
    """A result in which a few values are odd, or gone."""
    original = draw(st.sampled_from(DOCUMENTS))
    document = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, 4))):
        # By the part first, so that long parts are not all that is changed.
        part = draw(st.sampled_from(["experiments", "experiments", *original]))
        *parents, last = draw(st.sampled_from([path for path in places(original) if path[0] == part]))
        parent, value = at(document, parents), at(document, [*parents, last])
        if isinstance(parent, dict) and draw(st.integers(0, 9)) == 0:
            parent.pop(last, None)
        elif isinstance(parent, dict) or (isinstance(parent, list) and isinstance(last, int) and last < len(parent)):
            parent[last] = copy.deepcopy(draw(odd_values(value)))  # a later change may be inside of it
    return json.dumps(document)


@pytest.mark.filterwarnings("error")
@settings(max_examples=100, deadline=None)
@given(changed_documents())
def test_a_result_with_odd_values_is_shown_in_every_format_or_refused(text):
    is_shown_or_refused(text)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_damaged_file_is_shown_or_refused(data):
    content = bytearray(RESULT.encode())
    start = data.draw(st.integers(0, len(content) - 1))
    end = start + data.draw(st.integers(0, 20))
    content[start:end] = data.draw(st.binary(max_size=20) | st.sampled_from([b'"', b"}", b"[", b"1e5", b",", b"-"]))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return  # refused before it is looked at
    is_shown_or_refused(text)


def read_or_refuse(text: str) -> Result | ResultFileError:
    try:
        return from_json(text, "result.json")
    except ResultFileError as error:
        return error


def is_shown_or_refused(text: str) -> None:
    result = read_or_refuse(text)
    if isinstance(result, ResultFileError):
        assert result.exit_status == ExitStatus.USAGE
        assert str(result).startswith("result.json ")
        assert "\n" not in str(result)
        assert len(str(result)) < 400
        return
    base = make_result()
    compared = [compare(base, result, force=True), compare(result, base, force=True)]
    for form in FORMATS:
        assert render(result, form).encode()
        for each in compared:
            assert render(each, form).encode()
    assert len(render(result, "markdown", compared[0])) < 65_536
    assert from_json(render(result, "json")) == result
