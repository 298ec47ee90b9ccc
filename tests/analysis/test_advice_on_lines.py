"""Advice on the costliest lines of the code that makes batches: remedies by what they call, places and gains."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse
from bottleneck.analysis.edits.edits import is_fact, place_of
from tests.analysis.rule_case import advice_of, held_by, result_of, transform, with_stage
from tests.analysis.rule_cases.general import _LOAD, _MANY_CORES, _with_client, _with_line, _with_lines
from tests.analysis.rule_cases.loading import _few
from tests.analysis.rule_cases.resources import tried
from tests.analysis.simulated import measure


def test_a_line_takes_the_place_of_general_advice_on_its_stage_and_says_where_it_is():
    job = with_stage(_with_line(_LOAD, "fetch", share=0.4), "load", "fetch")
    result = result_of(job)
    (line,) = result.advice
    assert line.title == "Line 38 of train.py takes 40 % of fetch: self.frame.iloc[index]"
    assert place_of(line, result.evidence) == "src/train.py:38"
    assert "calls pandas.core.indexing.__getitem__ and computes" in line.why
    assert line.gain.low == 1 < line.gain.estimate


GENERAL = "do its non-random part once"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "arrays once in __init__"),
        ({"calls": "pandas.core.series.to_numpy"}, GENERAL),
        ({"calls": "copy.deepcopy"}, "only what the sample changes"),
        ({"calls": "torch.storage._load_from_bytes", "code": "pickle.loads(pickle.dumps(x))"}, "only what the sample"),
        ({"calls": "gzip.read"}, "unpack it once beforehand"),
        ({"calls": "zipfile.read"}, "unpack it once beforehand"),
        ({"calls": "zipfile.__init__"}, "open the file once in each worker"),
        ({"calls": "h5py._hl.files.__init__"}, "open the file once in each worker"),
        ({"calls": "tarfile.extractfile"}, "archive.getmembers()"),
        ({"calls": "pathlib.glob"}, "list the folder once"),
        ({"calls": None, "code": "names = os.listdir(folder)"}, "list the folder once"),
        ({"calls": "pandas.core.frame.__getitem__", "code": "self.frame[self.frame.user == user]"}, "groupby"),
        ({"calls": "pandas.core.frame.__getitem__", "code": "self.frame[columns]"}, "make arrays once"),
        ({"calls": "torchaudio.transforms._transforms.forward", "code": "wave = self.resample(wave)"}, "resample once"),
        ({"calls": "mine.encode", "code": "encode(copy.deepcopy(record))"}, GENERAL),
        ({"calls": "copy.copy"}, GENERAL),
        ({"calls": "multiprocessing.managers._callmethod", "waiting_share": 0.9}, "share_memory_()"),
        ({"calls": "multiprocessing.connection.recv", "waiting_share": 0.9}, "num_workers=8"),
        ({"calls": "pyarrow.parquet.core.read_row_group"}, "once in each worker"),
        ({"calls": "h5py._hl.dataset.__getitem__"}, GENERAL),
        ({"calls": "scipy.signal._signaltools.resample_poly"}, "resample once"),
        ({"calls": "json.loads"}, "parse it once"),
        ({"calls": None, "code": "record = pickle.loads(self.records[index])"}, "parse it once"),
        ({"calls": None, "code": "total = sum(values)"}, GENERAL),
        ({"calls": None, "code": "time.sleep(0.01)", "waiting_share": 0.98}, "num_workers=8"),
        ({"calls": "requests.api.get", "waiting_share": 0.9}, "num_workers=8"),
        ({"calls": None, "code": 'db.execute(f"CREATE TABLE {name} (id)")', "waiting_share": 0.9}, "CREATE TEMP TABLE"),
        ({"calls": None, "code": 'self.db.execute("SELECT data FROM graphs")', "waiting_share": 0.9}, "num_workers=8"),
        ({"calls": None, "code": 'db.execute(f"CREATE TABLE {name} (id)")', "waiting_share": 0.1}, GENERAL),
        ({"calls": "filelock._api.acquire", "waiting_share": 0.9}, "one process at a time gets this lock"),
        ({"calls": None, "code": "with self.lock:", "waiting_share": 0.9}, "one process at a time gets this lock"),
        ({"calls": None, "code": "fcntl.flock(file, fcntl.LOCK_EX)", "waiting_share": 0.9}, "one process at a time"),
        ({"calls": "PIL.Image.convert"}, "decode once beforehand"),
        ({"calls": None, "code": "picture = cv2.imread(path)"}, "decode once beforehand"),
        ({"calls": "transformers.tokenization_utils_base.__call__"}, "tokenize once"),
        ({"calls": "scipy.ndimage._interpolation.map_coordinates"}, "order=1"),
        ({"calls": None, "code": "noise = np.random.normal(size=x.shape)"}, "dtype=np.float32"),
        ({"calls": None, "code": "values = [x * x for x in row]"}, "element by element"),
        ({"calls": None, "code": "return torch.stack([x for x in rows])"}, GENERAL),
        ({"calls": None, "code": "frames = np.append(frames, frame)"}, "join them once"),
        ({"calls": None, "code": "frames = np.append(others, frame)"}, GENERAL),
        ({"calls": "torch.serialization.load"}, GENERAL),
    ],
)  # fmt: skip
def test_a_remedy_is_that_for_what_is_called(changes, said):
    assert said in advice_of(_with_line(_LOAD, **changes))["costliest-line"].how


def test_a_line_does_not_wait_for_longer_than_its_stage():
    # Guards: decoding that took three quarters of a stage that computes was said to wait, and more workers to help.
    line = {"calls": None, "code": "picture = decode(path)", "waiting_share": 0.6, "share": 0.8}
    for cpu_s, does in ((0.019, "computes"), (0.004, "waits")):
        job = with_stage(_with_line(_LOAD, **line), "load", "load", wall_s_per_batch=0.020, cpu_s_per_batch=cpu_s)
        item = advice_of(job)["costliest-line"]
        assert item.why.startswith(f"It {does} for 80 % of load")
        assert ("num_workers" in item.how) == (does == "waits")


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("client = Client(self.bucket)", "if self.client is None: self.client = Client(self.bucket)"),
        ("return Client(self.bucket).get(key)", "if self.kept is None: self.kept = Client(...)"),
    ],
)
def test_what_samples_make_again_is_made_once_before_more_workers_do_it(code, kept):
    given = result_of(_with_client("augment", _MANY_CORES, code=code)).advice
    ids = [item.id for item in given]
    # Its own line is not advised on: that need not run at all.
    assert ids[0] == "made-again"
    assert "more-workers" in ids
    assert "costliest-line" not in ids
    assert given[0].title == "Client is made again for each sample (line 36): make it once in each worker"
    assert "88 of 110 samples" in given[0].why
    assert kept in given[0].how
    assert 1 < given[0].gain.estimate <= advice_of(_with_line(_MANY_CORES, "augment"))["costliest-line"].gain.estimate


_WRITES = {
    "calls": None, "waiting_share": 0.7,
    "code": 'self.connection.execute(f"CREATE TABLE {name} (id INTEGER)")',
}  # fmt: skip


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_a_known_cause_is_told_in_an_undecided_job_as_what_it_gains_at_most(seed):
    busy = held_by("load", slow_s=0.006)
    coupled = {**dict.fromkeys(busy.coupled, 0.010), "raw": 0.0107}
    without = {**dict.fromkeys(busy.without, 0.0107), "load": 0.0101}

    def told(**line):
        job = _with_line(replace(busy, coupled=coupled, without=without), **{**_WRITES, **line})
        result = analyse(measure(job, rounds=6, noise=0.03, seed=seed))
        return result, {item.id: item for item in result.advice}

    result, given = told()
    assert result.verdict.state == "undecided"
    item = given["costliest-line"]
    (load,) = (stage for stage in result.stages if stage.name == "load")
    assert "CREATE TEMP TABLE" in item.how
    assert "undecided" in item.why
    most = min(load.gain_if_free.high, result.verdict.headroom.high)
    assert 1.05 <= item.gain.estimate == item.gain.high <= most
    assert "costliest-line" not in told(calls="mine.crop", code="crop(image)")[1]
    assert "costliest-line" not in told(share=0.4)[1]


@pytest.mark.parametrize(
    ("seconds", "line", "is_told"),
    [
        (0.39, {}, True),
        (0.2, {}, False),  # advice of its own
        (0.39, {"calls": "mine.crop"}, False),
        (0.39, {"waiting_share": 0.9}, False),
    ],
)
def test_a_line_of_code_in_c_tells_what_a_trial_with_fewer_threads_brought(seconds, line, is_told):
    warp = {"calls": None, "code": "image = cv2.warpAffine(image, turn, size)", **line}
    given = advice_of(_with_line(tried(seconds), "augment", **warp))
    said = "libraries compute with 8 threads in each of 4 workers, on 8 cores"
    assert (said in given["costliest-line"].how) == is_told
    if is_told:
        assert re.search(r"the job was 1\.0\dx \(.*\) as fast in a trial", given["costliest-line"].how)
        assert "thread-oversubscription" not in given


def test_few_pictures_behind_many_indices_are_kept_with_their_number_and_size():
    item = advice_of(_few())["keep-distinct"]
    assert item.title == "Load about 32 different samples once, and keep them in memory (15.8 MiB)"
    assert "120 samples of different indices had about 32 different contents" in item.why
    assert "about 1.7 % of further ones" in item.why
    assert "12,800 indices" in item.why
    assert advice_of(_few(seen_once=0))["keep-distinct"].title.startswith("Load the 32 different samples")
    assert "with all of the input free" not in item.why


def test_few_different_samples_are_kept_before_their_line_unless_it_has_a_remedy_of_its_own():
    def first(**line):
        job = _few()
        lines = _with_line(_LOAD, "load", share=0.9, **line).evidence["lines"]
        return result_of(replace(job, evidence={**job.evidence, "lines": lines})).advice[0].id

    assert first(calls="mine.project", code="return project(volume)") == "keep-distinct"
    assert first(calls="gzip.read", code="file.read()") == "keep-distinct"  # whose result is to be stored, too
    assert first(calls="copy.deepcopy", code="copy.deepcopy(records[index % 32])") == "costliest-line"


def test_few_pictures_are_told_of_beside_a_bottleneck_if_loading_clearly_costs_throughput():
    job = _few(held="handoff")
    job = replace(job, drained={**job.drained, "raw": job.drained["before_augment"] + 0.002})

    def told(saved_s):
        without = {**job.without, "load": job.coupled["raw"] - saved_s}
        return advice_of(replace(job, without=without)).get("keep-distinct")

    item = told(0.0016)
    assert 1.05 < item.gain.estimate < 1.09
    assert re.search(r"handoff costs throughput, too: with all of the input free, at most 2\.\d", item.why)
    assert told(0.0) is None


def test_a_costlier_line_elsewhere_is_named_beside_what_is_made_again():
    job = _with_client(share=0.35)
    lines = [{**job.evidence["lines"][0], "share": 0.5, "function": "crop"}]
    given = advice_of(replace(job, evidence={**job.evidence, "lines": lines}))
    assert {"made-again", "costliest-line"} <= set(given)
    assert given["made-again"].gain.estimate < given["costliest-line"].gain.estimate


def test_a_line_that_gives_the_same_each_time_is_to_do_so_once():
    job = _with_line(_LOAD, calls="mine.project", code="return project(volume)")
    again = {"samples": 16, "stages": ["load"], "bytes_per_sample": 1e6, "seconds_per_sample": 0.004}
    item = advice_of(replace(job, evidence={**job.evidence, "repeated": again}))["costliest-line"]
    assert "the same for an index each time" in item.how


def test_the_gain_is_that_of_all_lines_with_the_same_remedy():
    def gain(*others):
        job = _with_line(_LOAD, share=0.3)
        lines = [*job.evidence["lines"], *({**job.evidence["lines"][0], "line": 40, **other} for other in others)]
        return advice_of(replace(job, evidence={**job.evidence, "lines": lines}))["costliest-line"]

    alone, other, like = gain(), gain({"share": 0.2, "calls": "copy.copy"}), gain({"share": 0.2})
    assert alone.gain == other.gain
    assert like.gain.estimate > 1.1 * alone.gain.estimate
    assert "it and 1 line like it (50 % together)" in like.why


def test_lines_that_take_most_only_together_are_named_by_their_function():
    line = advice_of(_with_lines("crop", "crop", "crop"))["costliest-line"]
    assert line.title == "crop of train.py takes 60 % of load, in 3 lines"
    assert line.evidence["share"] == pytest.approx(0.6)


LISTED = {"calls": None, "code": "return torch.tensor(samples, dtype=torch.float)"}


@pytest.mark.parametrize(
    ("line", "kept", "read", "said"),
    [
        ({"calls": "torch.serialization.load"}, 32_000, 32_000, "reads 32 times"),
        ({"calls": "torch.serialization.load"}, 32_000, 1_500, GENERAL),
        (LISTED, 32_000, None, "np.stack(arrays)"),
        (LISTED, 30_000_000, None, GENERAL),  # a copy of so much takes as long
        ({**LISTED, "code": "return torch.tensor(np.array(samples))"}, 32_000, None, GENERAL),
    ],
)
def test_what_a_line_takes_is_held_against_the_bytes_that_are_kept(line, kept, read, said):
    facts = {"payload": {"bytes": kept}, "reads": {"requested_bytes_per_sample": read}}
    job = _with_line(_LOAD, **line)
    assert said in advice_of(replace(job, evidence={**job.evidence, **facts}))["costliest-line"].how


@pytest.mark.parametrize("slow_s", [0.0008, 0.001, 0.004])
def test_an_input_bound_job_gets_something_to_do_however_little_it_brings(slow_s):
    job = with_stage(held_by("handoff", slow_s=slow_s, evidence={"payload": {"bytes": 4_000}}), "load", "load")
    result = result_of(job)
    assert result.verdict.state == "input_bound"
    assert any(not is_fact(item) for item in result.advice)


def test_collections_come_before_the_line_in_which_they_run():
    # Guards: lists made into tensors were named first, at twice the gain; half of their time was garbage collection.
    lists = {"stage": "load", "path": "jobs.py", "line": 9, "function": "load", "waiting_share": 0.0, "library": False}
    slow = {**lists, "code": "return copy.deepcopy(rows)", "calls": "copy.deepcopy", "share": 0.95}
    job = replace(
        held_by("load"), evidence={"lines": [slow], "collections": {"share": 0.5, "objects": 2e6, "seconds_each": 0.4}}
    )
    given = list(advice_of(job))
    assert given.index("garbage-collection") < given.index("costliest-line")


def test_what_is_made_again_comes_before_keeping_all_samples():
    client = _with_client()
    kept = {"samples": 16, "stages": ["load", "augment"], "bytes_per_sample": 1000.0, "seconds_per_sample": 0.01}
    known = {**client.pipeline, "dataset_length": 400}
    memory = {**client.environment, "memory_available_bytes": 2**33}
    given = list(
        advice_of(replace(client, evidence={**client.evidence, "repeated": kept}, pipeline=known, environment=memory))
    )
    assert given.index("made-again") < given.index("cache-dataset")


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("torchvision.transforms.transforms", "RandomApply"),
        ("albumentations.core.transforms", "a smaller p, if it has"),
    ],
)
def test_a_costly_transform_is_made_rarer_by_what_its_library_has(module, said):
    row = transform("transform.transforms[0]", "CLAHE", 0.7)
    modules = {"transform_modules": {row["path"]: module}}
    job = held_by("augment", evidence={"transforms": [row], "loader": modules}, environment={})
    assert said in advice_of(job)["costliest-transform"].how
