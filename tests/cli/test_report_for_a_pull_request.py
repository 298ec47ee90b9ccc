import pytest
from test_compare import slowed

from bottleneck.cli.main import run
from bottleneck.results.json import save
from tests.support.results_factory import make_device_bound_result, make_result


@pytest.fixture
def files(tmp_path):
    save(make_result(), tmp_path / "base.json")
    save(slowed(make_result(), 1.1), tmp_path / "head.json")
    return str(tmp_path / "base.json"), str(tmp_path / "head.json")


def test_it_begins_with_what_changed_and_folds_all_but_the_verdicts(files, capsys):
    base, head = files
    assert run(["report", head, "--format", "markdown", "--base", base]) == 0
    report = capsys.readouterr().out
    assert report.startswith("### 🔴 ImageFolder is 1.10x slower (648 → 589 samples/s)\n")
    before_the_folds = report.split("<details>")[0]
    assert sum(line.startswith("|:--|") for line in before_the_folds.splitlines()) == 2
    assert "| `samples/s` | 648 | 589 |\n| `one step` | " in before_the_folds
    assert "Bottleneck: augment, " in before_the_folds
    assert "before_augment" in report.split("<details>")[2]


def test_a_screen_is_enough_before_the_folds(files, capsys):
    base, head = files
    run(["report", head, "--format", "markdown", "--base", base])
    open_parts = [part.split("</details>")[-1] for part in capsys.readouterr().out.split("<details>")]
    assert sum(bool(line.strip()) for part in open_parts for line in part.splitlines()) <= 40


def test_the_html_says_it_first_and_holds_the_whole_report(files, capsys):
    base, head = files
    assert run(["report", head, "--format", "html", "--base", base]) == 0
    page = capsys.readouterr().out
    before, _, after = page.partition("<h2>Step</h2>")
    assert "<h2>Before and after</h2>\n<p>head is slower than base: 0.91x" in before
    assert "The input pipeline holds this job" in before
    assert "<h2>Environment</h2>" in after
    assert page.count("<h1>") == 1


def test_unlike_results_need_force(tmp_path, files, capsys):
    save(make_device_bound_result(), tmp_path / "other.json")
    arguments = ["report", files[1], "--format", "markdown", "--base", str(tmp_path / "other.json")]
    assert run(arguments) == 2
    assert "unlike" in capsys.readouterr().err
    assert run([*arguments, "--force"]) == 0
    assert "Unlike results were compared" in capsys.readouterr().out


def test_files_beside_the_result_are_linked(tmp_path, files, capsys):
    (tmp_path / "flames of head").mkdir()
    for name in ("report.html", "flames of head/worker-0.svg", "flames of head/worker-1.svg", "notes.txt"):
        (tmp_path / name).write_text("x")
    url = "https://example.org/runs/42/"
    assert run(["report", files[1], "--format", "markdown", "--link-prefix", url]) == 0
    links = capsys.readouterr().out.splitlines()[-1]
    assert links == (
        "[Report with charts](https://example.org/runs/42/report.html) · "
        "[Flamegraph of a worker](https://example.org/runs/42/flames%20of%20head/worker-0.svg)"
    )


@pytest.mark.parametrize("url", ["example.org", "javascript:alert(1)", "https://x/)<img>", "file:///etc", "https://"])
def test_what_is_no_address_is_refused(files, url, capsys):
    assert run(["report", files[1], "--format", "markdown", "--link-prefix", url]) == 2
    assert "is not an address" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--base", "base.json"], ["--link-prefix", "https://example.org"]])
def test_other_formats_have_no_such_part(files, option, capsys):
    assert run(["report", files[1], *option]) == 2
    assert "is for markdown" in capsys.readouterr().err


def test_the_summary_of_a_step_is_appended_to(tmp_path, files, monkeypatch, capsys):
    summary = tmp_path / "summary.md"
    summary.write_text("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert run(["report", files[1], "--github-summary"]) == 0
    assert summary.read_text().startswith("# before\n### 🔴 ImageFolder waits")
    assert capsys.readouterr().out.startswith("INPUT-BOUND")  # the text report, as ever


def test_outside_of_github_there_is_no_summary(files, monkeypatch, capsys):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert run(["report", files[1], "--github-summary"]) == 2
    assert "GITHUB_STEP_SUMMARY" in capsys.readouterr().err
