"""The pages in a real browser: they open from disk, ask for nothing, fit, and can be read by everybody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from test_hostile import HOSTILE, hostile

from bottleneck.analysis.comparison import compare
from bottleneck.reports.document import Document, Section, Step, Steps
from bottleneck.reports.html import render_html
from bottleneck.reports.render import render
from bottleneck.results.comparison import Comparison
from bottleneck.results.evidence import FunctionSeen
from tests.support.browser import Page, find_chromium, open_browser
from tests.support.page_results import make_page_result
from tests.support.rank_results import make_ranks_result
from tests.support.results_factory import make_device_bound_result, make_empty_result, make_result
from tests.support.tuning_factory import make_tuning

PROGRAM = find_chromium()
needs_chromium = pytest.mark.skipif(
    PROGRAM is None, reason="no Chromium is installed (Debian: apt-get install chromium)"
)

NARROW, PHONE, WIDE = 360, 390, 1280
DRAWINGS = (Path(__file__).parent.parent / "support" / "drawings.js").read_text(encoding="utf-8")
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SETTLED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
UNFOLD = "document.querySelectorAll('details').forEach(part => { part.open = true; })"


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with open_browser(PROGRAM or "") as opened:
        yield opened


@pytest.fixture
def page(tab: Page) -> Page:
    """The tab as it was at first, for a screen in the light."""
    tab.emulate()
    return tab


@pytest.fixture
def report(page: Page, tmp_path: Path) -> Page:
    """The page of a result that has every part, in a wide window, unfolded."""
    page.open(written(tmp_path, make_page_result()), width=WIDE)
    unfold(page)
    return page


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core. Its package would drive another browser, which is not imported."""
    found = find_spec("axe_playwright_python")
    assert found is not None, "install the development dependencies: make lint"
    return Path(*found.submodule_search_locations, "axe.min.js").read_text(encoding="utf-8")


def violations(page: Page, axe: str) -> dict[str, list[str]]:
    """The rules of axe-core that the page breaks, each with where."""
    page.evaluate(f"{axe};0")
    run = f"axe.run({{runOnly: {WCAG}, resultTypes: ['violations']}})"
    where = "r.violations.map(v => [v.id, v.nodes.map(n => n.failureSummary + n.html.slice(0, 120))])"
    return dict(page.evaluate(f"{run}.then(r => {where})"))


def make_comparison() -> Comparison:
    return compare(make_result(), make_device_bound_result(), labels=("main", "pr"), force=True)


def unfold(page: Page) -> None:
    """Open every part, and wait until their content has been laid out."""
    page.evaluate(UNFOLD)
    page.evaluate(SETTLED)


def written(folder: Path, result, name: str = "report.html") -> Path:
    path = folder / name
    path.write_text(result if isinstance(result, str) else render(result, "html"), encoding="utf-8")
    return path


def overflowing(page: Page) -> list[str]:
    """Return the elements that reach out of the window, and are in nothing that scrolls."""
    return page.evaluate(
        "[...document.body.querySelectorAll(':not(svg *)')].filter(e => !e.closest('.wide, pre') "
        "&& e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80))"
    )


def cut_off(page: Page) -> list[str]:
    """Texts that reach out of their chart."""
    return page.evaluate(
        "[...document.querySelectorAll('svg.chart text')].filter(t => { const b = t.getBBox(), v = "
        "t.ownerSVGElement.viewBox.baseVal; return b.x < 0 || b.y < -3 || b.x + b.width > v.width + 0.5 "
        "|| b.y + b.height > v.height + 3; }).map(t => t.textContent)"
    )


@needs_chromium
@pytest.mark.leaks("one browser serves the tests of this class; the last test of this file sees to its end")
class TestInOneBrowser:
    def test_the_page_opens_without_errors_and_asks_for_nothing(self, report):
        assert report.errors == []
        assert len(report.requests) == 1
        assert report.requests[0].startswith("file:///")

    def test_every_part_is_there_and_has_a_size(self, report):
        titles = report.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
        assert titles == [
            "Step", "What if", "Warnings", "What to do next", "Contents", "Ladder",
            "Cost, exposure and gain of each stage", "Time on the device", "Single transforms",
            "Costliest lines", "Functions with the most own time",
            "Waiting and reading", "What one batch holds",
            "Cores, disk, network and device in each experiment", "Blocks, round by round",
            "Not measured", "Environment", "Pipeline",
        ]  # fmt: skip
        sizes = report.evaluate(
            "[...document.querySelectorAll('svg')].map(s => { const r = s.getBoundingClientRect(); "
            "return [r.width, r.height]; })"
        )
        assert len(sizes) == 1
        assert all(width > 500 and 50 < height < 600 for width, height in sizes)

    @pytest.mark.parametrize("width", [NARROW, WIDE])
    @pytest.mark.parametrize(
        "make", [make_page_result, make_empty_result, make_ranks_result, make_tuning, make_comparison]
    )
    def test_nothing_reaches_out_of_the_window(self, page, tmp_path, width, make):
        page.open(written(tmp_path, make()), width=width)
        unfold(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert overflowing(page) == []
        assert cut_off(page) == []
        assert page.errors == []

    @pytest.mark.parametrize(("width", "dark"), [(WIDE, False), (PHONE, True)])
    @pytest.mark.parametrize("make", [make_page_result, make_tuning, make_ranks_result])
    def test_everybody_can_read_and_reach_it(self, page, tmp_path, axe, make, width, dark):
        page.emulate(dark=dark)
        page.open(written(tmp_path, make()), width=width)
        unfold(page)
        assert violations(page, axe) == {}
        assert page.evaluate(DRAWINGS) == []

    def test_parts_are_folded_and_links_and_the_button_open_them(self, page, tmp_path):
        opened = "[...document.querySelectorAll('details[open]')].map(part => part.id)"
        page.open(written(tmp_path, make_page_result()))
        assert page.evaluate(opened) == []
        page.click("nav a[href='#ladder']")
        page.evaluate(SETTLED)
        assert page.evaluate(opened) == ["ladder"]
        page.click(".unfold")
        assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
        page.open(written(tmp_path, make_page_result(), "other.html"), fragment="#environment")
        assert page.evaluate(opened) == ["environment"]

    def test_the_page_of_a_tuning_has_its_parts_behind_anchors(self, page, tmp_path):
        page.open(written(tmp_path, make_tuning()), fragment="#tried-and-not-kept")
        titles = page.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
        assert titles == [
            "Warnings", "The ladder in numbers", "Change these lines", "What limits the job now", "Contents",
            "Tried and not kept", "Not applicable", "What to do next", "The job before",
            "Environment", "Pipeline",
        ]  # fmt: skip
        page.evaluate(SETTLED)
        assert page.evaluate("[...document.querySelectorAll('details[open]')].map(p => p.id)") == ["tried-and-not-kept"]
        page.evaluate("window.copied = []; navigator.clipboard.writeText = async t => { window.copied.push(t); }")
        page.click("#change-these-lines .copy")
        assert page.evaluate("window.copied") == ["\n".join(make_tuning().lines)]
        assert page.errors == []

    def test_a_fix_is_copied_as_it_is_to_be(self, page, tmp_path):
        steps = (Step("one", "", "a\nb"), Step("two", "why", "-old(1)\n+new(1)\n same", "train.py:3", is_diff=True))
        page.open(written(tmp_path, render_html(Document((Section("Fixes", (Steps(steps),), folded=False),)))))
        page.evaluate("window.copied = []; navigator.clipboard.writeText = async t => { window.copied.push(t); }")
        for at in range(2):
            page.evaluate(f"document.querySelectorAll('.copy')[{at}].click()")
        assert page.evaluate("window.copied") == ["a\nb", "new(1)\nsame"]
        assert page.evaluate("[...document.querySelectorAll('ins, del')].map(l => l.textContent)") == [
            "-old(1)\n", "+new(1)\n",
        ]  # fmt: skip

    def test_in_print_everything_is_there_but_the_controls(self, report):
        assert report.pdf().startswith(b"%PDF")
        report.emulate(dark=True, medium="print")
        assert report.evaluate("getComputedStyle(document.querySelector('.unfold')).display") == "none"
        report.evaluate("document.querySelectorAll('details').forEach(part => { part.open = false; })")
        assert report.evaluate("document.querySelector('#ladder table').getBoundingClientRect().height") > 100
        assert report.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        report.resize(680)  # what A4 leaves between its margins
        scrolling = "[...document.querySelectorAll('.wide')].filter(w => w.scrollWidth > w.clientWidth + 1).length"
        assert report.evaluate(scrolling) == 0

    def test_a_hostile_page_runs_nothing(self, page, tmp_path):
        attack = '</script></style><img src=x onerror="window.hit=1"><script>window.hit=1</script>`|'
        result = hostile(attack)
        functions = tuple(
            FunctionSeen(function=text, file=text, line=1, stage=attack, own_share=0.1) for text in (attack, *HOSTILE)
        )
        shown = make_page_result(functions).evidence
        evidence = replace(result.evidence, profile=shown.profile, utilisation=shown.utilisation)
        page.open(written(tmp_path, replace(result, evidence=evidence)), width=NARROW)
        assert page.evaluate("window.hit") is None
        assert page.evaluate("document.querySelectorAll('img, iframe, link, script').length") == 1  # our script
        assert page.evaluate("[...document.querySelectorAll('a')].every(a => a.getAttribute('href')[0] === '#')")
        unfold(page)
        assert (page.errors, len(page.requests)) == ([], 1)
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW

    def test_the_policy_stops_what_escaping_would_miss(self, page, tmp_path):
        broken = render(make_page_result(), "html").replace(
            "<body>", "<body><img src=x.png onerror='window.hit=1'><script>window.hit=1</script>"
        )
        page.open(written(tmp_path, broken))
        assert page.evaluate("window.hit") is None
        assert any("x.png" in url for url in page.requests)
        assert page.refused == len(page.requests) - 1
        assert len(page.errors) >= 2  # the browser says that it refused the image and the script
        assert page.evaluate("document.querySelectorAll('.unfold:not(.hidden)').length") == 1  # ours runs


@needs_chromium
def test_of_a_browser_nothing_is_left():
    with open_browser(PROGRAM or "") as page:
        folder = page.home
        assert any(process_mentions(child, str(folder)) for child in psutil.Process().children())
    assert not folder.exists()
    running = [process for process in psutil.process_iter() if process_mentions(process, str(folder))]
    assert running == []


def process_mentions(process: psutil.Process, text: str) -> bool:
    try:
        return any(text in argument for argument in process.cmdline())
    except psutil.Error:
        return False
