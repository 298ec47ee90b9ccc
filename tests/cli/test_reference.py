"""docs/reference says what the code has: no option, name or key too few, and none too many."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path

import click
import pytest

import bottleneck
from bottleneck.cli.main import COMMANDS, cli
from bottleneck.errors import BottleneckError, ExitStatus
from bottleneck.results import comparison, evidence, monitor, plan, records, tuning, values, watched

ROOT = Path(__file__).parent.parent.parent
WRITTEN = ("cli", "api", "json", "warnings")
PAGES = {name: (ROOT / f"docs/reference/{name}.md").read_text(encoding="utf-8") for name in WRITTEN}
COMMAND_OBJECTS = {name: cli.get_command(click.Context(cli), name) for name in COMMANDS}


def section(page: str, heading: str) -> str:
    """Return the text under a heading, up to the next one."""
    found = re.search(rf"^(#+) {heading}\n(.*?)(?=^#+ |\Z)", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference/{page}.md has no heading {heading}"
    return found.group(2)


def rows(text: str) -> list[list[str]]:
    """Return the cells of the tables in a text, without their heads."""
    found, lines = [], text.splitlines()
    for above, line in pairwise(lines):
        if line.startswith("|") and above.startswith("|") and not line.startswith("|:") and not line.startswith("|--"):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def names(cell: str) -> list[str]:
    """Return the code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


# --- command line -----------------------------------------------------------------------------------------


def test_every_command_has_a_section_and_every_section_a_command():
    headed = re.findall(r"^## `bottleneck (\w+)", PAGES["cli"], flags=re.MULTILINE)
    assert headed == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_told_with_its_default_and_choices(name):
    command = COMMAND_OBJECTS[name]
    common = {"--traceback", "--help", "-h"}
    told = {}
    for option, default, meaning in rows(section("cli", rf"`bottleneck {name}[^`]*`")):
        # '`-o`, `--output FILE`': the words behind an option are its value.
        told[tuple(text.split()[0] for text in names(option))] = (default, meaning, option)
    options = [p for p in command.params if isinstance(p, click.Option) and not common & set(p.opts)]
    assert list(told) == [tuple(option.opts) for option in options]
    for option in options:
        default, meaning, shown = told[tuple(option.opts)]
        if isinstance(option.type, click.Choice):
            assert names(meaning) == list(option.type.choices)
        elif not option.is_flag:
            value = option.metavar or option.type.name.upper().removesuffix(" RANGE")
            assert shown.endswith(f" {value}`")
        if option.default not in (None, False, ()) and not str(option.default).startswith("Sentinel"):
            assert default == f"`{option.default}`"


def test_every_exit_status_is_told():
    told = [int(status) for status, _ in rows(section("cli", "Exit status"))]
    assert told == [int(status) for status in ExitStatus]
    readme = re.search(r"## Exit status\n(.*?)\n## ", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert [int(status) for status, _ in rows(readme.group(1))] == told


# --- Python -----------------------------------------------------------------------------------------------


def test_every_public_name_has_a_section_or_a_row():
    headed = set(re.findall(r"^## `(\w+)`", PAGES["api"], flags=re.MULTILINE))
    errors = {names(row[0])[0] for row in rows(section("api", "Errors"))}
    assert headed | errors == set(bottleneck.__all__)
    assert not headed & errors


@pytest.mark.parametrize(
    "name", ["diagnose", "diagnosing", "monitoring", "tune", "watch", "load", "compare", "stage", "register_recipe"]
)
def test_the_signature_of_a_function_is_that_of_the_code(name):
    signature = inspect.signature(getattr(bottleneck, name))
    bare = signature.replace(
        parameters=[p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()],
        return_annotation=inspect.Signature.empty,
    )
    returned = signature.return_annotation
    untold = ("diagnosing", "monitoring", "stage", "register_recipe")
    gives = f" -> {returned}" if returned != "None" and name not in untold else ""
    assert f"`{name}{bare}{gives}`" in section("api", f"`{name}`")


def test_every_field_and_method_of_a_pipeline_is_told():
    pipeline = bottleneck.Pipeline
    told = [names(row[0])[0] for row in rows(section("api", "`Pipeline`"))]
    held = [field.name for field in fields(pipeline)]
    methods = {name for name in vars(pipeline) if not name.startswith("_") and name not in held}
    called = {re.match(r"(?i:pipeline)\.(\w+)\(", text).group(1) for text in told if "(" in text}
    assert called == methods
    assert {text for text in told if "(" not in text} == set(held)
    signature = re.search(r"`Pipeline\((.*)\)`", section("api", "`Pipeline`")).group(1)
    assert re.findall(r"(\w+)(?:=None)?(?:, |$)", signature.replace("*, ", "", 1)) == [
        *(field for field in held if field != "loader")
    ]


def test_every_error_is_told_with_its_base_and_status():
    told = {names(row[0])[0]: (names(row[1])[0], int(row[3])) for row in rows(section("api", "Errors"))}
    kinds = [bottleneck.BottleneckError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    public = {kind.__name__: kind for kind in kinds if kind.__name__ in bottleneck.__all__}
    assert told == {name: (kind.__base__.__name__, int(kind.exit_status)) for name, kind in public.items()}
    assert BottleneckError.__name__ in told


# --- JSON -------------------------------------------------------------------------------------------------

RECORDS = {
    "The result": records.Result,
    "`tool`": records.Tool,
    r"`experiments\[\]`": records.Experiment,
    r"`without\[\]`": records.Without,
    r"`stages\[\]`": records.Stage,
    "`verdict`": records.Verdict,
    "`verdict.upper_bound`": records.UpperBound,
    r"`step\[\]`": records.StepPart,
    r"`what_if\[\]`": records.WhatIf,
    r"`advice\[\]`": records.Advice,
    r"`warnings\[\]`": records.Warning,
    "`cost`": records.Cost,
    r"`ranks\[\]`": records.Rank,
    r"`ranks\[\].experiments\[\]`": records.RankExperiment,
    "Rate": records.Rate,
    r"`blocks\[\]`": records.Block,
    "Interval": records.Interval,
    "Comparison": comparison.Comparison,
    "Side": comparison.Side,
    "Change": comparison.Change,
    r"`stages\[\]` of a comparison": comparison.StageChange,
    r"`unlike\[\]`": comparison.Difference,
    "Tuning": tuning.TuningResult,
    "Rung": tuning.Rung,
    "Trial": tuning.Trial,
    "Pair": tuning.Pair,
    "Plan": plan.PlanResult,
    r"`sources\[\]`": plan.PlanSource,
    "`per_sample`": plan.PerSample,
    "`machine`": plan.PlannedMachine,
    "Watched": watched.WatchedResult,
    "`verdict` of a watched job": watched.WatchedVerdict,
    r"`ranks\[\]` of a watched job": watched.WatchedRank,
    "`workers` of a watched job": watched.WatchedWorkers,
    r"`lines\[\]`": watched.WatchedLine,
    "`edit`": watched.WatchedEdit,
}
KINDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "State": "string"}
KINDS |= {"Count": "integer", "Amount": "number", "Number": "number"}
KINDS |= {"Outcome": "string", "Alters": "string", "ChangeOn": "string"}
KINDS |= {"Resource": "string"}
KINDS |= {"Finding": "string", "GainBasis": "string", "ChangeFinding": "string"}
LATER = {"workers", "wall_s_per_batch", "cpu_s_per_batch", "further_rounds", "gain", "gain_basis"}
LATER |= {"queue_before", "queue_after", "collecting_s"}
LATER |= {"batches", "first_half_seconds", "device_clock_hz", "serving", "epoch_efficiency", "judged_by"}
LATER |= {"patch", "place", "prove", "next", "by_clocks"}
LATER |= {"ranks", "straggler", "step", "what_if", "possible_gain", "waiting_share", "loss", "upper_bound"}


@pytest.mark.parametrize("heading", RECORDS)
def test_every_key_of_a_record_has_a_row_with_its_type(heading):
    told = {names(row[0])[0]: row[1] for row in rows(section("json", heading))}
    held = {field.name: field.type for field in fields(RECORDS[heading])}
    assert list(told) == list(held)
    for name, type_ in held.items():
        kind, _, null = type_.partition(" | ")
        assert ("or null" in told[name]) == bool(null)
        if kind in KINDS:
            assert told[name].startswith(KINDS[kind])
        elif kind.startswith("tuple"):
            assert told[name].startswith("list")
        elif kind in ("Interval", "Rate", "Side", "Change"):
            assert told[name].startswith(f"[{kind.lower()}]")


def test_the_keys_that_may_be_missing_are_those_that_a_reader_can_do_without():
    told = {
        names(row[0])[0]
        for heading in RECORDS
        for row in rows(section("json", heading))
        if row[2].startswith("*later*")
    }
    needless = {
        field.name for record in RECORDS.values() for field in fields(record)
        if record.__module__ in (records.__name__, values.__name__) and not record.__name__.startswith("Rank")
        and field.default is not MISSING
    }  # fmt: skip
    assert told == needless == LATER


PARTS_OF_THE_EVIDENCE = (
    *(
        "Epoch gap",
        "Lines",
        "Amplification",
        "Hand-off",
        "Repeated",
        "Network",
        "Training",
        "Loop",
        "Others",
        "Between epochs",
    ),
    *("Starting up", "Trace", "Evidence of ranks", "Utilisation", "Loader", "Model"),
)
FREE = {
    "environment": ["Environment"],
    "pipeline": ["Pipeline"],
    "evidence": ["Evidence", *PARTS_OF_THE_EVIDENCE],
}


def told_of(part: str) -> set[str]:
    """Return the names in the tables on a part, without their prefixes."""
    cells = [cell for heading in FREE[part] for row in rows(section("json", heading)) for cell in row]
    return {name.rpartition(".")[2] for cell in cells for name in names(cell) if re.fullmatch(r"[\w.\[\]]+", name)}


def test_every_field_of_the_evidence_is_told_and_no_other():
    kinds = [kind for kind in vars(evidence).values() if hasattr(kind, "__dataclass_fields__")]
    held = {field.name for kind in kinds for field in fields(kind)}
    assert held - told_of("evidence") == set()
    words = {"null", "__getitems__", "float32", "to_device", "train_step", "compile"}  # values, keys of other parts
    words |= {"coupled", "drained", "workers", "without", "serving"}
    assert told_of("evidence") - held - words == set()


# --- events of `monitor` ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", monitor.Event.__subclasses__(), ids=lambda kind: kind.__struct_config__.tag)
def test_every_key_of_an_event_is_told(kind):
    told = [names(row[0])[0] for row in rows(section("json", f"`{kind.__struct_config__.tag}`"))]
    common = [names(row[0])[0] for row in rows(section("json", "Events of `monitor`"))]
    assert common == ["event", *monitor.Event.__struct_fields__]
    assert told == [name for name in kind.__struct_fields__ if name not in common]


# --- warnings ---------------------------------------------------------------------------------------------


WORDED = ROOT / "bottleneck/results/warnings"
"""The package that words all warnings."""


KINDS_OF_WARNINGS = {
    "machine": "The machine was disturbed",
    "too_little": "Too little was measured",
    "disagreement": "Numbers disagree",
    "job": "The job differs from training",
    "cuts": "Stages were cut differently",
    "unseen": "Something could not be seen, or left as found",
}


@pytest.mark.parametrize("module", KINDS_OF_WARNINGS)
def test_every_warning_is_told(module):
    given = re.findall(r'\bWarning\(\s*"([a-z-]+)"', (WORDED / f"{module}.py").read_text(encoding="utf-8"))
    told = [one for row in rows(section("warnings", KINDS_OF_WARNINGS[module])) for one in names(row[0])]
    assert sorted(told) == sorted(set(given))


def test_no_warning_is_worded_elsewhere():
    assert {path.stem for path in WORDED.glob("*.py")} == {"__init__", *KINDS_OF_WARNINGS}
    modules = (path for path in (ROOT / "bottleneck").rglob("*.py") if WORDED not in path.parents)
    assert not [path for path in modules if re.search(r"\bWarning\(", path.read_text(encoding="utf-8"))]
