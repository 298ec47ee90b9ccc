"""Counts of what makes code tiring to read: `python -m tests.house.census [REVISION ...]`, side by side.

Lines and files, code lines per function, private helpers with one reference, docstrings that begin with a question
word, phrases of a private idiom, layout that only saves lines, branches that a design should have made needless.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUESTION_WORDS = ("What", "Whether", "How", "Of", "Why", "Where", "Who", "Which")
IDIOMS = {
    "what is": r"\bwhat is\b",
    "None where": r"\bNone where\b",
    "where there is / it is / they are": r"\bwhere (there is|it is|they are)\b",
    "as it is / as they are": r"\bas (it is|they are)\b",
    "of its own": r"\bof its own\b",
    "holds the job": r"\bholds? (the|this|a) job\b",
    "by itself": r"\bby itself\b",
    "of the user's": r"\bof the user's\b",
    "whatever / whoever / wherever": r"\b(whatever|whoever|wherever)\b",
    "put back": r"\bputs? back\b",
    "surely": r"\bsurely\b",
    "nobody": r"\bnobody\b",
    "of ours": r"\bof ours\b",
    "to speak of / for want of / whence": r"\b(to speak of|for want of|whence)\b",
    "MOST / FEWEST / LONGEST / SHORTEST / LEAST": r"\b_?(MOST|FEWEST|LONGEST|SHORTEST|LEAST)_",
}
LAYOUT = {
    "fmt: skip": r"#\s*fmt:\s*skip",
    "multiple assignment to self": r"^\s*self\.\w+, self\.\w+",
    "packing": r"\*\((\w+, )+\w*\),",
}
BRANCHES = {"group is None": r"\bgroup is (not )?None\b"}


def sources(folder: str, revision: str | None = None) -> dict[str, str]:
    """Return the Python files of a folder by path, of the working tree or of a revision."""
    if revision is None:
        return {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in sorted((ROOT / folder).rglob("*.py"))}
    listed = _git("ls-tree", "-r", "--name-only", revision, "--", folder).splitlines()
    return {path: _git("show", f"{revision}:{path}") for path in listed if path.endswith(".py")}


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


# --- functions ---------------------------------------------------------------------------------------------

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.Module) -> Iterator[Function]:
    """Yield all functions of a module, nested ones included."""
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def code_lines(text: str) -> set[int]:
    """Return the numbers of the lines that hold code: no comments, docstrings, blanks or imports."""
    tree = ast.parse(text)
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            found.update(range(token.start[0], token.end[0] + 1))
    return {line for line in found - left_out if line <= text.count("\n")}


def body_lines(function: Function, code: set[int]) -> int:
    """Return the lines of code of a function without its signature."""
    first = function.body[0].lineno
    return sum(first <= line <= (function.end_lineno or first) for line in code)


def single_helpers(files: Mapping[str, str], longest: int | None = None) -> list[tuple[str, str]]:
    """Return (path, name) of the private functions that are named once beside their definition, in their file.

    Args:
        files: Source by path.
        longest: Of at most that many lines of code; None: of any length.
    """
    found = []
    for path, text in files.items():
        code = code_lines(text)
        for function in functions(ast.parse(text)):
            name = function.name
            if not name.startswith("_") or name.startswith("__") or function.decorator_list:
                continue
            is_short = longest is None or body_lines(function, code) <= longest
            if is_short and len(re.findall(rf"\b{re.escape(name)}\b", text)) == 2:
                found.append((path, name))
    return found


# --- prose -------------------------------------------------------------------------------------------------


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring: of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        values = [statement.value for statement in node.body if isinstance(statement, ast.Expr)]
        for value in values:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, value.value.strip()


def questions(files: Mapping[str, str]) -> list[str]:
    """Return `path:line: first words` of the docstrings that begin with a question word."""
    return [
        f"{path}:{line}: {' '.join(said.split()[:6])}"
        for path, text in files.items()
        for line, said in docstrings(text)
        if said.split(maxsplit=1)[:1] and said.split(maxsplit=1)[0] in QUESTION_WORDS
    ]


def count(files: Mapping[str, str], pattern: str, *, files_only: bool = False) -> int:
    """Count matches of a pattern in all files, or the files that have one."""
    found = [len(re.findall(pattern, text, re.MULTILINE)) for text in files.values()]
    return sum(map(bool, found)) if files_only else sum(found)


# --- the table ---------------------------------------------------------------------------------------------


def census(revision: str | None = None) -> dict[str, str]:
    """Return what is counted, by name."""
    package, tests = sources("bottleneck", revision), sources("tests", revision)
    every = [(function, code_lines(text)) for text in package.values() for function in functions(ast.parse(text))]
    bodies = [body_lines(function, code) for function, code in every]
    all_code = sum(len(code_lines(text)) for text in package.values())
    lengths = Counter(text.count("\n") > 400 for text in package.values())
    rows = {
        "files of bottleneck/": len(package),
        "lines of bottleneck/": sum(text.count("\n") for text in package.values()),
        "files over 400 lines": lengths[True],
        "files of tests/": len(tests),
        "lines of tests/": sum(text.count("\n") for text in tests.values()),
        "functions": len(every),
        "code lines per function": f"{all_code / max(1, len(every)):.1f}",
        "mean body": f"{sum(bodies) / max(1, len(bodies)):.1f}",
        "functions with a body over 30 lines": sum(body > 30 for body in bodies),
        "private functions with one reference": len(single_helpers(package)),
        "the same under six lines": len(single_helpers(package, longest=5)),
        "docstrings": sum(1 for text in package.values() for _ in docstrings(text)),
        "docstrings that begin with a question word": len(questions(package)),
        **{f"'{name}'": count(package, pattern) for name, pattern in IDIOMS.items()},
        **{name: count(package, pattern) for name, pattern in LAYOUT.items()},
        **{name: count(package, pattern) for name, pattern in BRANCHES.items()},
        "files that name cold": count(package, r"\b_?(cold|COLD|Cold)", files_only=True),
        "files outside results/ that word a warning": sum(
            bool(re.search(r"\.warn\(\s*\"|\bWarning\(", text))
            for path, text in package.items()
            if not path.startswith("bottleneck/results")
        ),
    }
    return {name: str(value) for name, value in rows.items()}


if __name__ == "__main__":
    columns = {revision: census(revision) for revision in sys.argv[1:]} | {"now": census()}
    names = next(iter(columns.values()))
    print(f"| {'':48} | {' | '.join(f'{name[:10]:>10}' for name in columns)} |")
    print(f"|:{'-' * 49}|{'|'.join('-' * 11 + ':' for _ in columns)}|")
    for name in names:
        print(f"| {name:48} | {' | '.join(f'{column[name]:>10}' for column in columns.values())} |")
