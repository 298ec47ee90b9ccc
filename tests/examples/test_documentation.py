"""The README, its neighbours and docs/: links lead somewhere, named things exist, promised versions are tested."""

import ast
import inspect
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

import bottleneck
from benchmarks import bench, gpu_evidence
from bottleneck.cli.main import COMMANDS, cli, run
from bottleneck.cli.options import GONE

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE_DOCS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (*(ROOT / name for name in OUTSIDE_DOCS), *sorted((ROOT / "docs").rglob("*.md")))
}
SKILLS = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "skills").glob("*/SKILL.md"))}
STORIES = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "examples" / "stories").glob("*.md"))}
TEXTS = {**PAGES, **SKILLS, **STORIES}
FENCED = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1$", flags=re.MULTILINE | re.DOTALL)
OF_OTHER_TOOLS = {
    *("--cap-add", "--ipc", "--shm-size", "--editable", "--force-reinstall", "--no-deps"),  # docker, pip
    *("--request", "--header", "--form"),  # curl
    *("--bind-to", "--map-by", "--mca", "--cpu-bind", "--signal"),  # mpirun, srun, scancel
    *("--multi_gpu", "--cpu", "--num_processes"),  # accelerate launch
    *("--noval", "--nosave", "--pid"),  # a public script, py-spy
}


def text_of(page):
    return TEXTS[page].read_text(encoding="utf-8")


def prose_of(page):
    return FENCED.sub("", text_of(page))


def anchors_of(path):
    """The anchors of a page's headings, as code hosts make them."""
    prose = FENCED.sub("", path.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links_of(page):
    return re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", prose_of(page))


def commands_of(page):
    """Return the words after `bottleneck` in the blocks of a page, without output."""
    found = []
    for _, language, body in FENCED.findall(text_of(page)):
        if language in ("", "yaml", "bash"):
            lines = body.replace("\\\n", " ").splitlines()
            found += [
                match[1] for line in lines if (match := re.match(r"(?:[\s(-]|cd \S+ && )*bottleneck ([a-z].*)", line))
            ]
    return [shlex.split(command.rstrip(")"), comments=True) for command in found]


COMMAND_LINES = [(page, words) for page in TEXTS for words in commands_of(page)]


def options_of(command):
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("page", TEXTS)
def test_every_link_within_the_repository_leads_to_a_file_and_a_heading(page):
    missing = []
    for link in filter(None, (one or other for one, other in links_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (TEXTS[page].parent / name).resolve() if name else TEXTS[page]
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            missing.append(link)
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_linked_from_the_readme(page):
    linked = {str(Path(one or other)).partition("#")[0] for one, other in links_of("README.md")}
    assert page == "README.md" or page in linked


@pytest.mark.parametrize("page", TEXTS)
def test_no_blank_line_cuts_a_table(page):
    before, lines = "", prose_of(page).splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("|") and not before.startswith("|"):
            assert re.fullmatch(r"\|[-:| ]+", after), f"no head of a table: {line}"
        before = line


def test_every_page_is_in_the_menu_of_the_site():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", menu, flags=re.MULTILINE)
    copied = {f"docs/project/{Path(name).stem.lower()}.md" for name in (*OUTSIDE_DOCS[1:], "benchmarks/RESULTS.md")}
    home = {"docs/index.md"}  # the README
    assert {f"docs/{name}" for name in listed} == (set(PAGES) - set(OUTSIDE_DOCS)) | copied | home
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(("page", "words"), COMMAND_LINES, ids=[f"{p}: {' '.join(w)}" for p, w in COMMAND_LINES])
def test_every_command_is_understood(page, words):
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    command.make_context(words[0], [word for word in words[1:] if not word.startswith("...")])
    if words[0] == "compare":
        assert sum(word.endswith(".json") for word in words) == 2


def test_the_plan_that_a_page_shows_is_what_its_command_prints(monkeypatch, capsys):
    text = text_of("docs/plan.md")
    printed = re.compile(r"`bottleneck (plan docs/[^`]+)` prints:\n\n```\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    [(command, shown)] = printed.findall(text)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(shlex.split(command)) == 0
    assert capsys.readouterr().out == shown


def test_commands_are_found_at_all():
    assert {words[0] for _, words in COMMAND_LINES} == set(COMMANDS)


@pytest.mark.parametrize("page", TEXTS)
def test_every_option_in_the_text_exists(page):
    ours = [cli.get_command(click.Context(cli), name) for name in COMMANDS] + [bench.main, gpu_evidence.main]
    known = set().union(*map(options_of, ours)) | OF_OTHER_TOOLS | {"--help", "--version", *GONE}
    named = {
        option for code in re.findall(r"`([^`\n]+)`", prose_of(page)) for option in re.findall(r"--[a-z][a-z_-]+", code)
    }
    assert named <= known


def calls_of_ours(page):
    """The calls of public names in the Python of a page, as pairs of the thing called and the call."""
    public = {f"bottleneck.{name}": getattr(bottleneck, name) for name in bottleneck.__all__}
    public |= {f"Pipeline.{name}": getattr(bottleneck.Pipeline, name) for name in vars(bottleneck.Pipeline)}
    public |= {f"bottleneck.{name}": thing for name, thing in public.items() if name.startswith("Pipeline.")}
    public |= {"Pipeline": bottleneck.Pipeline, "diagnose": bottleneck.diagnose}
    for _, language, body in FENCED.findall(text_of(page)):
        if language == "python":
            for node in ast.walk(ast.parse(body)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in public:
                    yield public[ast.unparse(node.func)], node


@pytest.mark.parametrize("page", TEXTS)
def test_python_in_a_page_is_python_and_calls_what_there_is(page):
    for thing, call in calls_of_ours(page):
        positional = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
        named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        inspect.signature(thing).bind_partial(*positional, **named)  # raises for one that is not there


def test_calls_are_found_at_all():
    called = {thing for page in PAGES for thing, _ in calls_of_ours(page)}
    assert {bottleneck.diagnose, bottleneck.Pipeline, bottleneck.compare, bottleneck.load} <= called


def test_the_python_about_comparisons_runs_on_kept_results(monkeypatch, capsys):
    (body,) = [body for _, language, body in FENCED.findall(text_of("docs/compare.md")) if language == "python"]
    monkeypatch.chdir(ROOT / "docs" / "pictures")
    exec(body, {"bottleneck": bottleneck})
    assert capsys.readouterr().out.startswith("head is faster than base")


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_in_the_text_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", prose_of(page))) <= targets


@pytest.mark.parametrize("page", SKILLS)
def test_a_skill_has_what_an_installer_reads(page):
    head, _, body = text_of(page).removeprefix("---\n").partition("\n---\n")
    told = yaml.safe_load(head)
    assert told["name"] == TEXTS[page].parent.name
    assert 0 < len(told["description"]) <= 1024
    assert "bottleneck run" in body


PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def read(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def matrix():
    return read(".github/workflows/tests.yml")["jobs"]["unit"]["strategy"]["matrix"]


def test_every_promised_python_is_tested():
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PYPROJECT)
    assert matrix()["python"] == promised
    assert f'requires-python = ">={promised[0]}"' in PYPROJECT


def test_the_oldest_promised_torch_is_tested_on_the_oldest_python():
    [oldest] = re.findall(r'"torch>=([\d.]+)"', PYPROJECT)
    tried = {(row["python"], row["torch"].split()[0]) for row in matrix()["include"]}
    assert (matrix()["python"][0], f"torch=={oldest}.*") in tried
