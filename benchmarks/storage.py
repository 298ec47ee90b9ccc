"""Storage behind a network, each job with one planted limit: is that named, and is the gain of more at once right?

A server in another process answers requests for objects with a latency, a bandwidth or a number of requests a second;
the last two are shared by all clients. The advice is followed in plain loops: with as many workers as it names, or,
where it says that more at once do not help, with four times as many.
"""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from torch.utils.data import Dataset

from benchmarks.checks import Check, find_by_name, markdown_table
from benchmarks.datasets import Step
from benchmarks.efficiencies import run_diagnosis
from benchmarks.gains import factor_interval
from benchmarks.paired import PAIRS, PAIRS_QUICK, Realised, realise
from benchmarks.work import wait
from bottleneck.results.records import Advice, Result

MAX_OFF = 0.25
"""Part of the realised gain by which a predicted one may be off."""
IDS = ("storage-latency", "storage-bandwidth", "storage-requests", "client-computes")
_SCRIPT = Path(__file__).parent / "scripts" / "object_store.py"
_LENGTH = 1_000_000
_MORE = 4
_PIECE_BYTES = 4096
_FEATURES = 64

Read = Callable[[str], bytes]


# --- clients --------------------------------------------------------------------------------------------------


def with_urllib(url: str) -> bytes:
    """A new connection for each object."""
    with urllib.request.urlopen(url) as answer:
        data: bytes = answer.read()
        return data


def with_patience(url: str) -> bytes:
    """Ask again after a while when the server wants fewer requests."""
    while True:
        try:
            return with_urllib(url)
        except urllib.error.HTTPError:
            time.sleep(0.1)


def with_urllib_per_byte(url: str) -> bytes:
    """Decode by a loop over bytes while they arrive."""
    state = 0
    with urllib.request.urlopen(url) as answer:
        while piece := answer.read(_PIECE_BYTES):
            for byte in piece:
                state = (state * 31 + byte) & 0xFFFFFFFF
    return state.to_bytes(4, "big") * _FEATURES


@functools.cache
def _session() -> Any:
    import requests

    return requests.Session()


def with_requests(url: str) -> bytes:
    """A connection that is kept."""
    data: bytes = _session().get(url).content
    return data


def with_fsspec(url: str) -> bytes:
    """Files over HTTP, by aiohttp in a thread."""
    import fsspec

    data: bytes = fsspec.filesystem("http").cat_file(url)
    return data


async def _get(url: str) -> bytes:
    import aiohttp

    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.read()


def with_aiohttp(url: str) -> bytes:
    """A coroutine for each object."""
    return asyncio.run(_get(url))


@functools.cache
def _bucket(endpoint: str) -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=Config(signature_version=UNSIGNED))


def with_boto(url: str) -> bytes:
    """An object of a bucket."""
    endpoint, key = url.rsplit("/", 1)
    data: bytes = _bucket(endpoint).get_object(Bucket="bucket", Key=key)["Body"].read()
    return data


@functools.cache
def _client() -> Any:
    import httpx

    return httpx.Client()


def with_httpx(url: str) -> bytes:
    """A connection that is kept, of httpx."""
    data: bytes = _client().get(url).content
    return data


def with_file(path: str) -> bytes:
    """A local file, which has nothing to do with a network."""
    return Path(path.rsplit("/", 1)[0]).read_bytes()


# --- jobs -----------------------------------------------------------------------------------------------------


class Objects(Dataset[Any]):
    """Samples that are objects behind a URL."""

    def __init__(self, url: str, read: Read) -> None:
        self.url = url
        self.clients = [read]  # a function as an attribute looks like an augmentation

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> Any:
        data = self.clients[0](f"{self.url}/{index}")
        return torch.frombuffer(bytearray(data[:_FEATURES]), dtype=torch.uint8)


@dataclass(frozen=True)
class Job:
    """A job that reads from a server with one limit.

    Attributes:
        client: Reads an object.
        limit: As `scripts/object_store.py` takes it; `file` for local files.
        wanted: Id of the advice that names the limit; None: none of them.
        nbytes: Size of an object.
        batch_size: Samples.
        step_s: Time of the train step.
    """

    client: Read
    limit: str
    wanted: str | None
    nbytes: int = 1 << 14
    batch_size: int = 4
    step_s: float = 0.025

    @property
    def name(self) -> str:
        """Such as `latency, requests`."""
        return f"{self.limit}, {self.client.__name__.removeprefix('with_')}"

    def build(self, url: str, **changes: Any) -> dict[str, Any]:
        """The fields of the pipeline, as a user's `build` returns them."""
        fields = {
            "dataset": Objects(url, self.client),
            "train_step": Step(wait(self.step_s)),
            "device": "cpu",
            "batch_size": self.batch_size,
            "num_workers": 2,
            "drop_last": True,
        }
        return {**fields, **changes}

    @contextmanager
    def served(self) -> Iterator[str]:
        """A server, or a file, while the job runs; gives its address."""
        if self.limit == "file":
            with tempfile.NamedTemporaryFile() as file:
                file.write(bytes(self.nbytes))
                file.flush()
                yield file.name
            return
        arguments = (sys.executable, str(_SCRIPT), self.limit, str(self.nbytes))
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
            server.communicate()


JOBS: tuple[Job, ...] = (
    *(
        Job(client, "latency", "storage-latency")
        for client in (with_urllib, with_requests, with_httpx, with_fsspec, with_aiohttp, with_boto)
    ),
    *(
        Job(client, "bandwidth", "storage-bandwidth", nbytes=500_000)
        for client in (with_urllib, with_requests, with_fsspec)
    ),
    *(
        Job(client, "requests", "storage-requests", batch_size=2, step_s=0.05)
        for client in (with_urllib, with_requests, with_fsspec)
    ),
    Job(with_patience, "refusing", "storage-requests", batch_size=2, step_s=0.05),
    Job(with_urllib_per_byte, "none", "client-computes", nbytes=1 << 18, step_s=0.01),
    Job(with_file, "file", None, nbytes=1 << 22, step_s=0.001),
)


def find_job(name: str) -> Job:
    """The job of that name."""
    return find_by_name(JOBS, name)


@dataclass(frozen=True)
class Named:
    """A job, what was advised, and what more at once bring."""

    job: Job
    advice: Advice | None
    others: tuple[str, ...]
    """Ids of all advice."""
    realised: Realised | None
    seconds: float
    failure: str = ""

    @property
    def right(self) -> bool:
        """True if the limit was named, and no other."""
        return not self.failure and (self.advice.id if self.advice else None) == self.job.wanted

    @property
    def predicted(self) -> float:
        """The gain of more at once: that of the advice on latency; all other advice says that there is none."""
        gain = self.advice.gain if self.advice is not None and self.advice.id == "storage-latency" else None
        return gain.estimate if gain is not None else 1.0

    @property
    def holds(self) -> bool:
        """True if the predicted gain is within a quarter of the realised one."""
        return self.realised is None or abs(self.predicted / self.realised.gain.estimate - 1) <= MAX_OFF


def name_all(jobs: Iterable[Job] = JOBS, *, quick: bool = False) -> list[Named]:
    """Diagnose each job, and follow its advice in plain loops."""
    found = []
    for job in jobs:
        click.echo(f"{job.name} … ", err=True, nl=False)
        with job.served() as url:
            found.append(_name(job, url, quick=quick))
        one = found[-1]
        click.echo(f"{'right' if one.right else 'WRONG'}, {'held' if one.holds else 'OFF'}: {_advised(one)}", err=True)
    return found


def _name(job: Job, url: str, *, quick: bool) -> Named:
    result, seconds, failure = run_diagnosis(job.build(url), quick=quick)
    if result is None:
        return Named(job, None, (), None, seconds, failure)
    advice = next((advice for advice in result.advice if advice.id in IDS), None)
    realised = None
    if job.wanted is not None:
        more = {"num_workers": _workers(advice), "prefetch_factor": 2}
        realised = realise(job.build(url), job.build(url, **more), pairs=PAIRS_QUICK if quick else PAIRS)
    return Named(job, advice, _ids(result), realised, seconds)


def _ids(result: Result) -> tuple[str, ...]:
    return tuple(advice.id for advice in result.advice)


def _workers(advice: Advice | None) -> int:
    named = advice.evidence.get("workers") if advice is not None else None
    return int(named) if named is not None else 2 * _MORE


def storage_table(found: Sequence[Named]) -> str:
    """The advice on each job, in markdown."""
    rows = [
        (
            one.job.name,
            one.failure or _advised(one),
            "right" if one.right else "**wrong**",
            f"{one.predicted:.2f}x",
            "–" if one.realised is None else factor_interval(one.realised.gain),
            "held" if one.holds else "**off**",
            f"{one.seconds:.0f} s",
        )
        for one in found
    ]
    headers = ("job", "limit by the advice", "", "predicted gain of more at once", "realised (95 %)", "", "took")
    return markdown_table(headers, rows)


def _advised(one: Named) -> str:
    return one.advice.id if one.advice is not None else f"none of them ({', '.join(one.others[:2]) or 'nothing'})"


def check_storage(found: Sequence[Named]) -> list[Check]:
    """The bars on storage."""
    wrong, off = [one for one in found if not one.right], [one for one in found if not one.holds]
    return [
        Check(
            "limit of storage behind a network",
            "named, and none of them for local files",
            f"{len(found) - len(wrong)} of {len(found)}",
            not wrong,
            tuple(f"{one.job.name}: {one.failure or _advised(one)}" for one in wrong),
        ),
        Check(
            "predicted gain of more requests at once against plain loops",
            "within a quarter",
            f"{len(found) - len(off)} of {len(found)}",
            not off,
            tuple(f"{one.job.name}: {one.predicted:.2f}x, {_realised(one)}" for one in off),
        ),
    ]


def _realised(one: Named) -> str:
    return "not realised" if one.realised is None else f"realised {factor_interval(one.realised.gain)}"


if __name__ == "__main__":
    chosen = [find_job(name) for name in sys.argv[1:]] or list(JOBS)
    click.echo(storage_table(name_all(chosen)))
