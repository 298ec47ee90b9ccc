"""Reports show the operators of a trace: the terminal five of `device`, the others all of both experiments."""

import pytest

from tests.support.in_full import render_in_full
from tests.support.results_factory import EVIDENCE, make_result


def operator(name, share, **more):
    return {"name": name, "self_s_per_step": 0.0001, "device_s_per_step": 0.004, "calls_per_step": 12.0,
            "share": share, **more}  # fmt: skip


def experiment(*rows, **more):
    wait = {"name": "train.py:42", "calls_per_step": 2}
    return {
        "steps": 5,
        "seconds_per_step": 0.0112,
        "device_busy_share": 0.83,
        "top": list(rows),
        "synchronisations": [wait],
        "launches_per_step": 420.0,
        **more,
    }


def report(form, **trace):
    return render_in_full(make_result(evidence={**EVIDENCE, "trace": trace}), form)


ROWS = [operator(f"aten::op_{number}", 0.12) for number in range(7)] + [operator("aten::tiny", 0.001)]


def words(text):
    return " ".join(text.split())


def test_the_terminal_shows_the_costliest_operators_of_device_and_how_busy_it_is():
    text = report("text", device=experiment(*ROWS), raw=experiment(operator("aten::copy_", 0.9)))
    assert "operators in device" in text
    assert text.count("aten::op_") == 5
    assert "aten::copy_" not in text
    assert "4.00 ms" in text
    assert "The device computes 83 % of that time and is idle 17 %." in words(text)
    assert "A step launches 420 kernels." in words(text)
    assert "The host waits for the device in: train.py:42, 2 a step." in words(text)
    assert "steps of raw" in words(text)


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_other_formats_show_all_of_both(form):
    text = report(form, device=experiment(*ROWS), raw=experiment(operator("aten::copy_", 0.9)))
    assert all(name in text for name in ("aten::op_6", "aten::copy_", "83 %", "on the device"))
    assert "tiny" not in text


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_on_the_cpu_nothing_is_said_of_a_device(form):
    row = operator("aten::mm", 0.9, device_s_per_step=None)
    unknown = dict.fromkeys(("device_busy_share", "launches_per_step"))
    text = report(form, device=experiment(row, **unknown, synchronisations=[]))
    assert "on the CPU" in text
    assert "0.10 ms" in text
    assert "The device computes" not in words(text)
    assert "launches" not in text
