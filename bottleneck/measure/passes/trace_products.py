"""In what types and layouts the traced steps multiply and convolve, as the profiler notes for each operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bottleneck.measure.passes.chrome_trace import Call, Trace
from bottleneck.measure.passes.trace_summary import CONVOLUTION, MATRIX, Steps

_TYPES = {"float": "float32", "double": "float64", "c10::BFloat16": "bfloat16", "c10::Half": "float16"}


def computed_types(steps: Steps) -> dict[str, int]:
    """Count the matrix products and convolutions of each floating-point type, over all steps.

    Only the innermost counts: autocast shows as an operator on float32 around the same one on a smaller type.
    """
    counted: Counter[str] = Counter()
    for call in _products(steps.trace):
        types = call.arguments.get("Input type")
        first = next((_TYPES[name] for name in types if name in _TYPES), None) if isinstance(types, list) else None
        if first is not None:
            counted[first] += 1
    return dict(counted)


def convolves_channels_last(steps: Steps) -> bool | None:
    """Whether most convolutions get their input or weight with the channels innermost; None where that is unknown."""
    votes = [vote for call in _products(steps.trace) if "conv" in call.name for vote in _layouts(call)]
    return None if not votes else 2 * sum(votes) > len(votes)


def _layouts(call: Call) -> Iterator[bool]:
    shapes, strides = call.arguments.get("Input Dims"), call.arguments.get("Input Strides")
    if not isinstance(shapes, list) or not isinstance(strides, list):
        return
    found = [
        stride[1] == 1
        for shape, stride in zip(shapes[:2], strides[:2], strict=False)
        # With one channel, or one pixel, both layouts are the same.
        if len(shape) == len(stride) == 4 and shape[1] > 1 and shape[2] * shape[3] > 1
    ]
    if found:
        yield any(found)


def _products(trace: Trace) -> list[Call]:
    """Return the innermost matrix products and convolutions."""
    found = [call for call in trace.of_kind("operator") if MATRIX.search(call.name) or CONVOLUTION.search(call.name)]
    outer = {around for call in found for around in call.around}
    return [call for call in found if call not in outer]
