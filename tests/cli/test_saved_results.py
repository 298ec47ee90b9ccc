"""Results of earlier versions can be read for ever; other files are refused in a line, never by a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bottleneck.analysis.comparison import compare
from bottleneck.cli.main import run
from bottleneck.errors import ExitStatus
from bottleneck.reports.render import FORMATS, render
from bottleneck.results.json import load, save, to_json
from bottleneck.results.records import SCHEMA_VERSION
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
    """Yield the places at which `saved` differs from `kept`."""
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


# --- other files ------------------------------------------------------------------------------------------

RESULT = to_json(make_result())
DEEP = '{"schema_version": 1, "environment": ' + '{"a": ' * 50_000 + "1" + "}" * 50_001
FOREIGN = {
    "nothing": b"",
    "text": b"Epoch 1: 640 samples/s\n",
    "zeros": bytes(4096),
    "UTF-16": RESULT.encode("utf-16"),
    "a trace": json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X", "ts": 1, "dur": 2}]}).encode(),
    "a comparison": render(compare(make_result(), make_result()), "json").encode(),
    "a later version": RESULT.replace('"schema_version": 1', '"schema_version": 2').encode(),
    "an infinite number": RESULT.replace('"seconds": 47.3', '"seconds": Infinity').encode(),
    "a key twice": RESULT.replace('"seconds": 47.3', '"seconds": 47.3, "seconds": 1').encode(),
    "cut off": RESULT[:5000].encode(),
    "two documents": (RESULT + RESULT).encode(),
    "deep": DEEP.encode(),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_result_is_refused_in_one_line_wherever_it_is_given(content, good, tmp_path, capsys):
    path = tmp_path / "foreign.json"
    path.write_bytes(content)
    for arguments in (
        ["report", str(path)],
        ["plan", str(path)],
        ["compare", str(good), str(path), "--force"],
        ["report", str(good), "--base", str(path), "--format", "markdown"],
    ):
        assert run(arguments) == ExitStatus.USAGE
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith(f"Error: {path} ")
        assert shown.err.count("\n") == 1
        assert len(shown.err) < 400 + len(str(path))
