"""Remedies by what a line calls: for lines of the code that makes batches, and for those of a script's own loop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bottleneck.analysis.settings import MOSTLY
from bottleneck.results.evidence import LineSeen


@dataclass(frozen=True)
class Remedy:
    """A remedy for a line."""

    how: str
    """Instructions; for work that is not needed in each step, how often to do it."""
    title: str = ""
    """Title; empty if the title names the line."""
    stores: bool = False
    """True if it is to make the line's output once, beforehand."""
    waits: bool = False
    """It is for a line that waits; one that computes has another cause."""
    in_loops: bool = True
    """True if it also holds in a loop that trains, whose lines may look the same for another reason."""
    of_function: bool = False
    """It is for all of the function that the line is in."""


_OPEN_ONCE = "open the file once in each worker, at its first sample, and keep it"
_COPIED = Remedy("copy only what the sample changes: dict(record) copies one level, array[a:b].copy() a part")
_GROUPED = Remedy(
    "group once in __init__: groups = {key: part.to_numpy() for key, part in frame.groupby(column)}, and take a group "
    "by its key"
)
_ONE_SERVER = Remedy(
    "one process serves all workers, however many: keep shared data in a tensor (tensor.share_memory_()), or fetch it "
    "once, when each worker starts"
)
_ONE_WRITER = Remedy(
    "it writes to a database that lets one process write at a time: the workers wait for each other, and more of them "
    "do not help. Read without writing (SELECT ... WHERE id IN (...)), or give each connection its own "
    "table: CREATE TEMP TABLE",
    waits=True,
)
_ONE_AT_A_TIME = Remedy(
    "one process at a time gets this lock: the workers wait for each other, and more of them do not help. Read "
    "without it, from each worker's own file or connection, and lock only what is written",
    waits=True,
)
_WRITES = r"\.execute(many|script)?\(.*\b(CREATE(?! TEMP)|INSERT|UPDATE|DELETE|REPLACE|DROP|BEGIN|COMMIT|VACUUM)\b"
_LOCKS = (
    r"^(filelock|portalocker|fasteners)\.|^multiprocessing\.synchronize\.|\bfcntl\.(flock|lockf)\("
    r"|\b\w*lock\w*\.acquire\(|^with .*lock\w*\b"
)
_AVERAGES = (
    r"(?:\b|_)(?:ema|swa)(?:_\w*)?(?:\.(?:update\w*|step))?\(|\bupdate_parameters\(|lerp_\("
    r"|\.mul_\(.*\.add_\(|\b1(?:\.0?)? ?- ?[\w.]*(?:decay|momentum)"
)
_NO_AVERAGE = ("step", "forward")
"""Functions in which an optimizer, or a layer, keeps its own averages."""
_COLLECTS = r"\bgc\.collect\(|\bempty_cache\("
_LOGS = (
    r"\b(wandb|mlflow|neptune|comet_ml|tensorboardX?|SummaryWriter)\b|\b\w*(writer|logger)\w*\.\w+\(|\bprint\("
    r"|\.add_(scalars?|histogram|images?|figure|text|video)\(|\.log(_\w+)?\(\s*[f{\"']|\.set_(postfix|description)"
)
_DRAWS = r"\b(plt|matplotlib|seaborn)\b|\b(savefig|imsave|imwrite|save_image|make_grid)\("
_SCORES = r"\b(sklearn\.metrics|torchmetrics)\b|\b\w*(f1|accuracy|precision|recall|auc|iou|confusion)_?\w*\("
EVERY_N = "if step % 100 == 0:"
"""Condition that precedes a line that can be done in some of the steps."""
_OF_LOOPS: dict[str, Remedy] = {
    _AVERAGES: Remedy(
        "make one call for all tensors, on lists that are made once: torch._foreach_lerp_(averages, weights, 1 - decay)"
        " (torch.optim.swa_utils.AveragedModel does, with multi_avg_fn=get_ema_multi_avg_fn(decay)); or do it every N "
        "steps, with decay**N",
        title="Average the weights in one call, or every N steps",
        of_function=True,
    ),
    _COLLECTS: Remedy(
        "if step % 1000 == 0:  # or never: Python collects automatically",
        title="Collect garbage every N steps, or never",
    ),
    _LOGS: Remedy(EVERY_N, title="Log every N steps"),
    _DRAWS: Remedy(EVERY_N, title="Draw every N steps"),
    _SCORES: Remedy(EVERY_N, title="Compute scores every N steps"),
}
"""Remedies for work besides the training, in the loop itself."""
_IN_SAMPLES: dict[str, Remedy] = {
    r"\bcopy\.deepcopy\b": _COPIED,
    r"^pandas\.core\..*\.(__getitem__|__getattr__|xs|iterrows|itertuples)$": Remedy(
        "make arrays once in __init__ (frame.to_numpy(), or one for each column), and index those"
    ),
    r"^pandas\.core\..*\.(new_method|query|isin|get_group|_getitem_bool_array)$": _GROUPED,
    r"^(zipfile|gzip|bz2|lzma|_compression)\b.*\._?read\w*$|\b(gzip|zlib|bz2|lzma)\.decompress\(": Remedy(
        "unpack it once beforehand, and store arrays: np.save, and np.load with mmap_mode", stores=True
    ),
    r"^(pathlib|glob|os)\b.*\.(\w*glob\w*|iterdir|scandir|walk)$|\b(glob|os)\.(i?glob|listdir|scandir)\(": Remedy(
        "list the folder once in __init__, and keep the paths, in a dict by their lookup key"
    ),
    r"^tarfile\b": Remedy(
        "open the archive once in each worker, at its first sample, and keep {member.name: member for member in "
        "archive.getmembers()}: finding one by name goes through all of them"
    ),
    r"^(h5py|zipfile)\b.*\.(__init__|_?open\w*)$": Remedy(_OPEN_ONCE),
    r"^(pyarrow|zarr)\b.*\.(__init__|_?open\w*|_?read\w*|load\w*)$": Remedy(
        f"{_OPEN_ONCE}, with what was read last; then ask for samples in the order of the file, or store them in "
        "smaller groups"
    ),
    r"^multiprocessing\.managers\.": _ONE_SERVER,
    _WRITES: _ONE_WRITER,
    _LOCKS: _ONE_AT_A_TIME,
    r"^(librosa|torchaudio|scipy|resampy|soxr)\..*resample|\bresampl\w*\(": Remedy(
        "resample once beforehand, and store the result", stores=True
    ),
    r"^(json|pickle|yaml)\.|\b(pickle|orjson|ujson)\.loads?\(": Remedy(
        "parse it once beforehand, and store arrays: np.save, and np.load with mmap_mode", stores=True
    ),
    r"^(transformers|tokenizers)\..*(token|encode)|\btokenizer?(\.\w+)?\(": Remedy(
        "tokenize once beforehand, and store the ids (dataset.map(tokenize, batched=True) of Hugging Face datasets): a "
        "collate function then only pads them",
        stores=True,
    ),
    r"^PIL\.\w+\.(open|load|convert|draft)$|\bImage\.open\(|\bcv2\.im(read|decode)\(|^torchvision\.io\.image\.": Remedy(
        "decode once beforehand, and keep the pixels as bytes: np.save, and np.load with mmap_mode; or store smaller "
        "files, which decode in less time",
        stores=True,
    ),
    r"^scipy\.ndimage\.|\bmap_coordinates\(": Remedy(
        "interpolate linearly (order=1 takes a fraction of the time of order=3), and only what is kept: crop before it"
    ),
    r"\b(np|numpy)\.random\.(normal|randn|standard_normal)\(": Remedy(
        "draw 32-bit numbers from a generator that each worker makes once: rng = np.random.default_rng(), "
        "rng.standard_normal(shape, dtype=np.float32)"
    ),
    r"^(networkx|sklearn)\.": Remedy("compute it once beforehand, and store its result as arrays", stores=True),
    r"^subprocess\.": Remedy("do it in the worker with a library, or once beforehand: it starts a process each time"),
    r"^(_strptime|dateutil|pandas\.core\.tools\.datetimes)\.|\bstrptime\(": Remedy(
        "parse dates once in __init__, into an array of datetime64", stores=True
    ),
    r"\b(\w+) = (np|numpy|torch)\.(append|concatenate|cat|[vh]stack)\([\[(]?\s*\1\b": Remedy(
        "collect the parts in a list, and join them once, after the loop: each call copies everything again",
        in_loops=False,
    ),
    r"^for .*:$|^while .*:$|^(return |[\w.]+ = )?[\[{(].* for .* in |\bmath\.\w+\(": Remedy(
        "that is plain Python, element by element: compute it on whole arrays (NumPy or torch), or compile the loop "
        "(numba.njit)",
        in_loops=False,
    ),
}
"""Function called, or text of the line if that is C code -> remedy."""
_COPIES = re.compile(r"\bloads\(\s*[\w.]*\bdumps\(")
"""A copy made by pickling, whatever it calls for its parts."""
_MASKED = re.compile(r"\b([\w.]+?)(\.loc)?\[\(*\1[.\[]")
"""A frame is searched for the rows that fulfil a condition."""


def remedy_of(line: LineSeen, *, waits: bool) -> Remedy | None:
    """Return the remedy for a line of the code that makes batches; None if its call has none.

    Args:
        line: Line of the user's own code.
        waits: It spends most of its time without computing.
    """
    calls, code = line.calls or "", line.code or ""
    if calls.startswith("pandas.core.") and _MASKED.search(code):
        return _GROUPED
    if _COPIES.search(code):
        return _COPIED
    # What a module calls says less than the name that the user gave the module.
    seen = [calls, code] if not calls or calls.endswith((".forward", ".__call__")) else [calls]
    found = _first(_IN_SAMPLES, seen)
    return None if found is None or (found.waits and not waits) else found


_OF_DATASETS = (
    ("in each worker, at its first sample", "before the loop"),
    ("in __init__", "before the loop"),
    ("the sample changes", "the step changes, or once, before the loop"),
)
"""Words of remedies, and their replacements for a loop."""


def is_served_in_turn(line: LineSeen) -> bool:
    """Return True if only one worker at a time gets what a line asks for, so that more workers do not help."""
    mostly_waits = (line.waiting_share or 0.0) > MOSTLY
    return remedy_of(line, waits=mostly_waits) in (_ONE_SERVER, _ONE_WRITER, _ONE_AT_A_TIME)


def remedy_in_loop(line: LineSeen) -> Remedy | None:
    """Return the remedy for a line of a script's loop, in any part of a step; None if there is none.

    Forward and backward pass and the optimizer's step have none: they are what the loop is for.
    """
    calls, code = line.calls or "", line.code or ""
    for pattern, remedy in _OF_LOOPS.items():
        if re.search(pattern, f"{code}\n{calls}(", re.IGNORECASE if pattern == _AVERAGES else 0):
            return None if pattern == _AVERAGES and line.function in _NO_AVERAGE else remedy
    found = remedy_of(line, waits=True)
    if found is None or not found.in_loops:
        return None
    how = found.how
    for of_dataset, of_loop in _OF_DATASETS:
        how = how.replace(of_dataset, of_loop)
    return replace(found, how=how)


def _first(table: dict[str, Remedy], seen: Sequence[str]) -> Remedy | None:
    return next((remedy for pattern, remedy in table.items() if any(re.search(pattern, one) for one in seen)), None)
