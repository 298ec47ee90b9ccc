"""The notebook runs from its first cell to its last, and its kept outputs are of the same kind."""

import json

import pytest
import torch

from docs.make.notebook import NOTEBOOK, execute

KEPT = json.loads(NOTEBOOK.read_text(encoding="utf-8"))


@pytest.fixture
def threads():
    given = torch.get_num_threads()
    yield
    torch.set_num_threads(given)


def kinds(notebook):
    """Return the output of each code cell: a stream, or the formats of a value."""
    return [
        [sorted(output.get("data", ["stream"])) for output in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.mark.integration
@pytest.mark.untimed
def test_every_cell_runs(threads):
    run = execute(KEPT, **{'budget="20s"': 'budget="3s"'})
    assert kinds(run) == [[], [], [["stream"]], [["text/html", "text/plain"]], [["text/plain"]]]


def test_the_kept_outputs_show_the_report_inline():
    assert kinds(KEPT) == [[], [], [["stream"]], [["text/html", "text/plain"]], [["text/plain"]]]
    [page] = [
        "".join(output["data"]["text/html"])
        for cell in KEPT["cells"]
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    assert page.startswith("<iframe srcdoc=")
    assert "Bottleneck: augment" in "".join(KEPT["cells"][5]["outputs"][0]["text"])
