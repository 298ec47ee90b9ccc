"""Runs the tuning of docs/tune.md and writes its outputs into the page.

    python -m docs.make.tuning           measures, keeps the result, and writes the output
    python -m docs.make.tuning --kept    writes what this version prints of the result that was kept

A run that contradicts the text of the page is refused, and nothing is written.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bottleneck.results.json import saved_from_json
from bottleneck.results.tuning import TuningResult
from docs.make.page import write_anew
from docs.make.tutorial import ROOT, copied, keep, report_kept, run_all, run_command

PAGE = ROOT / "docs" / "tune.md"
EXAMPLE = ROOT / "examples" / "tuning"
KEPT = ROOT / "docs" / "pictures"
TUNING = "tuning.json"


def main() -> None:
    """Write the page, from a new run or from the kept result."""
    if sys.argv[1:] not in ([], ["--kept"]):
        sys.exit(__doc__)
    page = from_kept_result() if sys.argv[1:] else from_a_run()
    PAGE.write_text(page, encoding="utf-8")


def from_a_run(run: Callable[[str, Path], str] = run_command) -> str:
    """The page of a run of all its commands; its result is kept. `run` runs a command in a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = copied(EXAMPLE, scratch)
        printed = run_all(PAGE, folder, run)
        refuse_another_story(read(folder))
        keep(folder, (TUNING,), KEPT)
        return write_anew(PAGE.read_text(encoding="utf-8"), EXAMPLE, printed)


def from_kept_result() -> str:
    """The page with what this version says of the kept result; what the script printed stays."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = copied(EXAMPLE, scratch)
        shutil.copy(KEPT / TUNING, folder)
        return write_anew(PAGE.read_text(encoding="utf-8"), EXAMPLE, lambda command: report_kept(command, folder))


def read(folder: Path) -> TuningResult:
    """The tuning in a folder."""
    found = saved_from_json((folder / TUNING).read_text(encoding="utf-8"))
    assert isinstance(found, TuningResult)
    return found


def refuse_another_story(tuning: TuningResult) -> None:
    """End here if the page's text is not true of the tuning."""
    kept = [setting for rung in tuning.ladder for setting in rung.settings]
    claims = {
        "workers are kept": any(setting.startswith("num_workers=") for setting in kept),
        "they were promised a gain": any(rung.predicted is not None for rung in tuning.ladder),
        "something was tried and not kept": any(trial.outcome == "dropped" for trial in tuning.trials),
        "the tuned job was diagnosed": tuning.after is not None,
    }
    missing = [text for text, holds in claims.items() if not holds]
    if missing:
        sys.exit(f"The page says that {', that '.join(missing)}; this run does not. Try again on a quiet machine.")


if __name__ == "__main__":
    main()
