"""Records from parsed JSON of version 1: one function a record, every key checked."""

from __future__ import annotations

import math
from typing import Any, cast

from bottleneck.results.node import MAX_COUNT, Node
from bottleneck.results.records import (
    SCHEMA_VERSION,
    Advice,
    Block,
    Cost,
    Experiment,
    Finding,
    GainBasis,
    Interval,
    JudgedBy,
    Rate,
    Result,
    Stage,
    State,
    Tool,
    Verdict,
    Warning,
    Without,
)


def read_result(root: Node) -> Result:
    """The result in a document whose version has been checked.

    Raises:
        ResultFileError: A key is missing or has a value of the wrong type.
    """
    tool = root.key("tool")
    return Result(
        schema_version=SCHEMA_VERSION,
        tool=Tool(tool.key("name").text(), tool.key("version").text()),
        created=root.key("created").text(),
        environment=root.key("environment").mapping(),
        pipeline=root.key("pipeline").mapping(),
        experiments=root.key("experiments").items(_read_experiment),
        without=root.key("without").items(_read_without),
        stages=root.key("stages").items(_read_stage),
        verdict=_read_verdict(root.key("verdict")),
        advice=root.key("advice").items(_read_advice),
        evidence=root.key("evidence").mapping(),
        warnings=root.key("warnings").items(_read_warning),
        cost=_read_cost(root.key("cost")),
    )


def _read_interval(node: Node) -> Interval:
    return Interval(node.key("estimate").number(), node.key("low").number(), node.key("high").number())


def _read_rate(node: Node) -> Rate:
    samples_per_s = node.key("samples_per_s").amount()
    seconds_per_batch = node.key("seconds_per_batch").amount()
    samples_per_batch = samples_per_s * seconds_per_batch
    return Rate(
        samples_per_s=samples_per_s,
        low=node.key("low").number(),
        high=node.key("high").number(),
        seconds_per_batch=seconds_per_batch,
        blocks=node.key("blocks").items(lambda block: _read_block(block, samples_per_batch)),
    )


def _read_block(node: Node, samples_per_batch: float) -> Block:
    usual = _read_usual_block(node.value)
    if usual is not None:
        return usual
    samples = node.key("samples").count()
    batches = node.optional_key("batches").maybe(Node.count)
    if batches is None:
        # The contract promises round, samples and seconds; the rate beside them says how large a batch is.
        batches = _estimate_batches(samples, samples_per_batch)
    return Block(
        round=node.key("round").count(),
        samples=samples,
        seconds=node.key("seconds").amount(),
        batches=batches,
        first_half_seconds=node.optional_key("first_half_seconds").maybe(Node.amount),
        queue_before=node.optional_key("queue_before").maybe(Node.count),
        queue_after=node.optional_key("queue_after").maybe(Node.count),
        device_clock_hz=node.optional_key("device_clock_hz").maybe(Node.amount),
    )


def _read_usual_block(value: Any) -> Block | None:
    """The block, where nothing is wrong with it or left out; there are many, and most are so."""
    if type(value) is not dict or value.get("device_clock_hz") is not None:
        return None
    number, samples, batches = value.get("round"), value.get("samples"), value.get("batches")
    seconds, first_half = value.get("seconds"), value.get("first_half_seconds")
    if not (type(number) is type(samples) is type(batches) is int and type(seconds) is type(first_half) is float):
        return None
    if value.get("queue_before") is not None or value.get("queue_after") is not None:
        return None
    right = (
        0 <= number <= MAX_COUNT
        and 0 <= samples <= MAX_COUNT
        and 0 <= batches <= MAX_COUNT
        and 0 <= seconds < math.inf
        and 0 <= first_half < math.inf
    )
    return Block(number, samples, seconds, batches, first_half) if right else None


def _estimate_batches(samples: int, samples_per_batch: float) -> int:
    if samples == 0:
        return 0
    # At least one; and a batch holds at least one sample, whatever rounding made of the rate.
    return max(1, round(samples / max(1.0, samples_per_batch)))


def _read_experiment(node: Node) -> Experiment:
    return Experiment(
        name=node.key("name").text(),
        available=node.key("available").flag(),
        reason=node.key("reason").maybe(Node.text),
        coupled=node.key("coupled").maybe(_read_rate),
        drained=node.key("drained").maybe(_read_rate),
        workers=node.optional_key("workers").maybe(_read_rate),
        serving=node.optional_key("serving").maybe(_read_rate),
    )


def _read_without(node: Node) -> Without:
    return Without(
        stage=node.key("stage").text(),
        coupled=node.key("coupled").maybe(_read_rate),
        workers=node.optional_key("workers").maybe(_read_rate),
    )


def _read_stage(node: Node) -> Stage:
    finding = node.key("finding").choice("real", "within_noise", "undecided")
    return Stage(
        name=node.key("name").text(),
        inner=node.key("inner").maybe(Node.text),
        outer=node.key("outer").text(),
        cost_s_per_batch=node.key("cost_s_per_batch").maybe(_read_interval),
        exposed_s_per_batch=node.key("exposed_s_per_batch").maybe(_read_interval),
        exposed_share=node.key("exposed_share").maybe(_read_interval),
        gain_if_free=node.key("gain_if_free").maybe(_read_interval),
        finding=cast("Finding", finding),
        wall_s_per_batch=node.optional_key("wall_s_per_batch").maybe(Node.amount),
        cpu_s_per_batch=node.optional_key("cpu_s_per_batch").maybe(Node.amount),
    )


def _read_verdict(node: Node) -> Verdict:
    state = node.key("state").choice("input_bound", "device_bound", "undecided")
    return Verdict(
        state=cast("State", state),
        bottleneck=node.key("bottleneck").maybe(Node.text),
        contributors=node.key("contributors").items(Node.text),
        efficiency=node.key("efficiency").maybe(_read_interval),
        headroom=node.key("headroom").maybe(_read_interval),
        sentence=node.key("sentence").text(),
        further_rounds=node.optional_key("further_rounds").maybe(Node.count),
        epoch_efficiency=node.optional_key("epoch_efficiency").maybe(_read_interval),
        judged_by=node.optional_key("judged_by").maybe(_read_judged_by) or "efficiency",
    )


def _read_judged_by(node: Node) -> JudgedBy:
    return cast("JudgedBy", node.choice("efficiency", "epoch_efficiency"))


def _read_advice(node: Node) -> Advice:
    return Advice(
        id=node.key("id").text(),
        stage=node.key("stage").maybe(Node.text),
        title=node.key("title").text(),
        why=node.key("why").text(),
        how=node.key("how").text(),
        evidence=node.key("evidence").mapping(),
        gain=node.optional_key("gain").maybe(_read_interval),
        gain_basis=node.optional_key("gain_basis").maybe(_read_gain_basis),
    )


def _read_gain_basis(node: Node) -> GainBasis:
    return cast("GainBasis", node.choice("measured", "estimated"))


def _read_warning(node: Node) -> Warning:
    return Warning(node.key("id").text(), node.key("message").text())


def _read_cost(node: Node) -> Cost:
    return Cost(
        seconds=node.key("seconds").amount(),
        batches=node.key("batches").count(),
        samples=node.key("samples").count(),
        cache_bytes=node.key("cache_bytes").count(),
    )
