"""Scripts that exist in Python's cache of source lines alone."""

import itertools
import linecache
import textwrap

_numbers = itertools.count()


def written(source):
    """Return the name and the code of a script."""
    name, text = f"/home/user/train{next(_numbers)}.py", textwrap.dedent(source)
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return name, compile(text, name, "exec")
