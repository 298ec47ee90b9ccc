"""Runs `examples/notebook.ipynb` and keeps what its cells show: `python -m docs.make.notebook`.

Each cell of code is run in one namespace, as a notebook does it; what the last expression of a cell gives is shown.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


def execute(notebook: dict[str, Any], **instead: str) -> dict[str, Any]:
    """Run all cells in order, and return the notebook with their outputs.

    Args:
        instead: A word of the code, and what stands for it in this run, such as a shorter budget.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    done, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            code = "".join(cell["source"])
            for given, other in instead.items():
                code = code.replace(given, other)
            done.append({**cell, "execution_count": count, "outputs": _run(code, names, count)})
        else:
            done.append(cell)
    return {**notebook, "cells": done}


def _run(code: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, shown = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            shown = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if shown is not None:
        data = {"text/plain": _lines(repr(shown))}
        if hasattr(shown, "_repr_html_"):
            data["text/html"] = _lines(shown._repr_html_())
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    sys.modules["__main__"].__file__ = None  # as in a notebook
    kept = execute(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    NOTEBOOK.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
