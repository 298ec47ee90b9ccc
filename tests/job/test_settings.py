import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottleneck.errors import UsageError
from bottleneck.job.settings import parse_duration, parse_setting, parse_settings, parse_size


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("num_workers=8", ("num_workers", 8)),
        ("num-workers = 8", ("num_workers", 8)),
        ("batch_size=none", ("batch_size", None)),
        ("pin_memory=true", ("pin_memory", True)),
        ("pin_memory=No", ("pin_memory", False)),
        ("drop_last=1", ("drop_last", True)),
        ("timeout=1.5", ("timeout", 1.5)),
        ("device=cuda:1", ("device", "cuda:1")),
        ("device='cpu'", ("device", "cpu")),
        ("device=0", ("device", 0)),
        ("augment=dataset.transform", ("augment", "dataset.transform")),
        ("augment=['transform', 'loader']", ("augment", ("transform", "loader"))),
        ("multiprocessing_context=spawn", ("multiprocessing_context", "spawn")),
        ("collate_fn=none", ("collate_fn", None)),
    ],
)
def test_values_get_the_type_of_their_field(text, setting):
    assert parse_setting(text) == setting


def test_the_last_of_a_key_counts():
    assert parse_settings(["num_workers=1", "num_workers=2"]) == {"num_workers": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num_workers", "not KEY=VALUE"),
        ("=3", "not KEY=VALUE"),
        ("batchsize=3", "'batch_size'"),
        ("zzz=3", "What can be set: batch_size"),
        ("num_workers=many", "whole number, not 'many'.*num_workers=4"),
        ("num_workers=2.5", "whole number, not 2.5"),
        ("num_workers=true", "whole number, not True"),
        ("num_workers=none", "whole number, not None"),
        ("num_workers=", "whole number, not ''"),
        ("pin_memory=2", "true or false, not 2"),
        ("pin_memory=maybe", "true or false"),
        ("timeout=long", "number of seconds"),
        ("device=", "must be text"),
        ("device=[1]", "must be text"),
        ("model=resnet18", "Python object"),
        ("model=none", "Python object"),
        ("sampler=[1]", "Python object"),
    ],
)
def test_what_is_no_setting_is_refused(text, words):
    with pytest.raises(UsageError, match=words):
        parse_setting(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("2m", 120),
        ("1m30s", 90),
        ("1h 2min 3s", 3723),
        ("120", 120),
        ("1.5m", 90),
        (" 500ms ", 0.5),
        (".5", 0.5),
        (45, 45),
        (1.5, 1.5),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "2x",
        "m",
        "-5",
        "0",
        "0s",
        "1m30",
        "1.2.3s",
        "5 days",
        None,
        True,
        -1,
        0,
        float("nan"),
        "inf",
    ],
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(UsageError, match=r"(is not a duration|must be more than 0)\. .*1m30s"):
        parse_duration(text)


@given(st.text(max_size=30))
def test_any_text_is_a_finite_duration_or_refused(text):
    try:
        seconds = parse_duration(text)
    except UsageError:
        seconds = 1.0
    assert 0 < seconds < float("inf")


@given(st.text(max_size=30).filter(lambda text: "=" not in text[4:]))
def test_any_text_without_a_known_key_is_refused(text):
    with pytest.raises(UsageError):
        parse_setting(text)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1000", 1000), ("1B", 1), ("20 kB", 20_000), ("500MB", 500 * 10**6), ("2gb", 2 * 10**9), ("1TB", 10**12),
        ("1KiB", 1024), ("1.5 MiB", 3 << 19), ("8GiB", 8 << 30), (" .5TiB ", 1 << 39),
        ("9007199254740991", 2**53 - 1),
    ],
)  # fmt: skip
def test_an_amount_of_memory_is_bytes(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text", ["", "0", "0.1", "-5", "8G", "8 Gigabytes", "GiB", "1e9", "1.2.3GB", "9" * 400, "8192TiB", "٣GB"]
)
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(UsageError, match=r"is not an amount of memory. Write for example 8GiB or 500MB"):
        parse_size(text)


@given(st.text(max_size=30))
def test_any_text_is_an_amount_of_memory_or_refused(text):
    with contextlib.suppress(UsageError):
        assert 1 <= parse_size(text) < 2**53
