"""Observations of samples as they are made: lines, transforms, repetition, garbage, and reads over a network."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.results.values import Count, Quantity, left_out, null


@dataclass(frozen=True, kw_only=True)
class TransformSeen:
    """Calls of a single transform."""

    stage: str | None = None
    path: str | None = None
    """Path in the dataset."""
    name: str | None = None
    calls_per_sample: Quantity | None = None
    wall_s_per_call: Quantity | None = None
    cpu_s_per_call: Quantity | None = None
    share: Quantity | None = None
    waiting_share: Quantity | None = left_out()
    output: str | None = None


@dataclass(frozen=True, kw_only=True)
class LineSeen:
    """A line of the code that makes batches, on which a stage spends time."""

    stage: str | None = None
    path: str | None = None
    """Path; relative to the working directory if inside it."""
    line: Count | None = None
    function: str | None = None
    code: str | None = None
    """Text of the line; None if the file cannot be read."""
    calls: str | None = None
    """Module and function that it calls for most of its time; None for code in C."""
    share: Quantity | None = None
    waiting_share: Quantity | None = None
    library: bool | None = None
    """True if it belongs to an installed package, and no line of the user's code is active."""


@dataclass(frozen=True, kw_only=True)
class ConstructionSeen:
    """An object that the code of batches makes again and again, with the same arguments."""

    stage: str | None = None
    name: str | None = None
    """Class of the object, or module and function that makes it."""
    path: str | None = None
    """Path of the calling line; relative to the working directory if inside it."""
    line: Count | None = None
    code: str | None = None
    """Text of the line; None if the file cannot be read."""
    share: Quantity | None = None
    seen: Count | None = None
    """Samples of the dataset, or collations, in which it was at work when a worker was looked at."""
    looked_at: Count | None = None
    """Those in which the stage was."""


@dataclass(frozen=True, kw_only=True)
class CollectionsSeen:
    """Python's garbage collections of all objects, in the processes that make batches."""

    count: Count | None = None
    """Number in all workers, while blocks with everything real were measured; None without workers."""
    share: Quantity | None = None
    """Share of that time."""
    seconds_each: Quantity | None = None
    """Duration of one collection of all objects."""
    objects: Quantity | None = None
    """Objects that a process examines."""


@dataclass(frozen=True, kw_only=True)
class SamplerSeen:
    """The sampler, which chooses the order of the samples in the main process."""

    name: str | None = None
    """Class of the sampler."""
    choices: Quantity | None = None
    """Samples from which it chooses; None if unknown."""
    draws: Quantity | None = None
    """Samples that it chooses in an epoch; None if unknown."""
    replacement: bool | None = None
    """True if it may choose a sample twice; None if unknown."""
    line: LineSeen | None = None
    """Line of the user's code that takes most of its first choice."""


@dataclass(frozen=True, kw_only=True)
class AmplifiedSeen:
    """Data that a stage reads, unpacks or decodes per sample, and the part that is kept: medians of some samples."""

    source: str | None = None
    """Kind of storage, such as `parquet`; `read`: all bytes that the worker reads."""
    stage: str | None = None
    unit: str | None = None
    """`bytes` or `frames`."""
    touched_per_sample: Quantity | None = None
    kept_per_sample: Quantity | None = None
    """Part that the caller took, or else of which the stage's output, or the sample, consists."""
    rows_per_sample: Quantity | None = left_out()
    samples: Count | None = left_out()
    opens: Count | None = left_out()
    """Number of times that files were opened for all samples together."""
    opened_files: Count | None = left_out()
    """Number of different files."""
    share: Quantity | None = left_out()
    """Share of the stage's time spent in the library."""
    opening_share: Quantity | None = left_out()
    """Share of that spent on opening."""


@dataclass(frozen=True, kw_only=True)
class RepeatedSeen:
    """Work that gives the same result for an index each time, although it is repeated."""

    samples: Count | None = None
    """Samples that were made twice, or batches of a dataset that fetches whole ones; None if none could be."""
    stages: tuple[str, ...] = ()
    """Stages that gave the same result without random numbers, in the order of execution."""
    bytes_per_sample: Quantity | None = None
    """Size of the last one's output."""
    seconds_per_sample: Quantity | None = None
    """Time of a worker up to there."""


@dataclass(frozen=True, kw_only=True)
class DistinctSeen:
    """Different data among that of samples with different indices."""

    stage: str | None = None
    """Stage that gave the data, and before which all others belong to it; None for whole samples."""
    samples: Count | None = None
    """Samples that were compared."""
    different: Count | None = None
    seen_once: Count | None = None
    """Those of the different ones that came only once, or in samples that follow each other."""
    bytes_each: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class NetworkPace:
    """Requests over the network with a number of workers, each of which makes batches as fast as it can.

    Times are means over the requests; rates are those of all workers together.
    """

    num_workers: Count | None = None
    requests: Count | None = None
    samples_per_s: Quantity | None = None
    requests_per_s: Quantity | None = None
    bytes_per_s: Quantity | None = None
    """Bytes received."""
    in_flight: Quantity | None = None
    """Requests open at once, on average."""
    first_byte_s: Quantity | None = None
    """Time from a request to the first byte of its answer."""
    transfer_s: Quantity | None = None
    """Time from there to the last byte."""
    refused: Count | None = None
    """Requests answered with status 429 or 503."""


@dataclass(frozen=True, kw_only=True)
class NetworkSeen:
    """Requests that workers send over the network for their samples, by Python's sockets."""

    stage: str | None = None
    """Stage that sends most of them."""
    requests_per_sample: Quantity | None = None
    bytes_per_sample: Quantity | None = None
    connections_per_request: Quantity | None = None
    """New connections."""
    connecting_s: Quantity | None = None
    """Time to open a connection."""
    share: Quantity | None = None
    """Share of the workers' time in which at least one request is open."""
    computing_share: Quantity | None = None
    """CPU time of the worker in that time, as a share of it."""
    job: NetworkPace = null(NetworkPace())
    """The workers of the job."""
    more: NetworkPace = null(NetworkPace())
    """More workers, in a trial; empty if not tried."""
