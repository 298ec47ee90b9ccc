"""The loop of a script, where the device limits the job at 30 ms a step."""

from dataclasses import replace

from bottleneck.results.records import Warning
from tests.analysis.rule_case import WORKERS, RuleCase, held_by
from tests.analysis.simulated import DEVICE_BOUND, measure

SEEN = {
    "batches": 200, "until_optimizer_s": 0.027, "optimizer_s": 0.002, "after_optimizer_s": 0.001,
    "other_loaders_s": 0.0, "steps": 400, "others": [], "saves": 0, "saving_s": 0.0,
    "watched_s": 0.03, "input_s": 0.0005, "after_device_s": 0.0, "lines": [],
}  # fmt: skip
LOGGING = {
    "stage": "after", "path": "train.py", "line": 31, "function": "main", "code": "writer.add_histogram(name, weight)",
    "calls": "tensorboardX.writer.add_histogram", "share": 0.6, "waiting_share": 0.0, "library": False,
}  # fmt: skip
NORMALISING = {**LOGGING, "stage": "input", "line": 20, "code": "images = augment(images)", "calls": None, "share": 0.9}
ENCODING = [
    {**NORMALISING, "line": 5, "function": "encode", "code": "words = text.lower()", "share": 0.4},
    {**NORMALISING, "line": 6, "function": "encode", "code": "return [ids[word] for word in words]", "share": 0.5},
]
EMA = {**LOGGING, "line": 8, "function": "update_ema", "code": "s.mul_(d).add_(p, alpha=1 - d)", "calls": None}
READING = {**EMA, "line": 6, "code": "current = model.state_dict()", "share": 0.3}
STEPPING = {**LOGGING, "code": "check(weights)", "calls": None}
COPYING = {
    **LOGGING, "stage": "step", "line": 25, "code": "history = copy.deepcopy(hops)", "calls": "copy.deepcopy",
    "share": 0.5,
}  # fmt: skip
FORWARD = {**COPYING, "line": 26, "code": "loss = model(history).mean()", "calls": "torch.nn.modules.linear.forward"}
VALIDATION = {
    "dataset": "Images", "path": "train.py", "line": 12, "num_workers": 2, "persistent_workers": False,
    "passes": 20, "evaluations": 20, "evaluating_s": 6.0, "starting_s": 4.0, "waiting_s": 0.5,
}  # fmt: skip
FEW = {**VALIDATION, "evaluating_s": 2.9, "starting_s": 1.9, "waiting_s": 1.0, "later_batches": 20}
PAIRED = {**VALIDATION, "passes": 400, "evaluations": 0, "evaluating_s": 0.0}
AGAIN = {
    "dataset": "TensorDataset", "path": "train.py", "line": 9, "num_workers": 2, "persistent_workers": True,
    "passes": 1, "evaluations": 1, "evaluating_s": 1.0, "starting_s": 0.011, "waiting_s": 0.01, "first_s": 0.01,
    "later_batches": 63, "is_training_set": True,
}  # fmt: skip
ENDS = {"ends": 1, "batches": 64, "seconds": 1.01, "each_epoch_share": 1.0, "saves": 0, "saving_s": 0.0}
"""A script whose first epoch was left to end."""
PLOTTING = {**LOGGING, "stage": "between", "line": 40, "code": "plot(model)", "calls": "matplotlib.pyplot.plot"}
SLOW_LOADER = replace(DEVICE_BOUND, drained={**DEVICE_BOUND.drained, "raw": 0.0298})


def looping(seen=(), job=DEVICE_BOUND, device="cpu", pipeline=(), **evidence):
    """A script whose loop was seen as above, but for these values."""
    return replace(
        job,
        pipeline={**WORKERS, "source": "script", **dict(pipeline)},
        environment={"device": device},
        evidence={"wait_s": {"mean": 0.0003}, "loop": {**SEEN, **dict(seen)}, **evidence},
    )


def pair(id, seen, healthy, stage="compute", **more):
    """An entry whose healthy twin differs by some values of what was seen."""
    return RuleCase(id, looping(seen, **more), looping({**seen, **healthy}, **more), stage)


def with_breaks(job):
    """The same where steps in which it validates count."""
    return replace(measure(job), warnings=(Warning("loop-breaks-off", ""),))


def crowded(cores):
    """Return the cores, of two, that the job itself keeps busy."""
    raw = {"name": "raw", "mode": "coupled", "cores_main": 0.8, "cores_workers": cores - 0.8}
    return {"utilisation": {"cores": {"usable": 2}, "experiments": [raw]}}


def epochs_of(batches):
    """Workers that start again after so many batches."""
    return {"epoch_gap": {"seconds": 0.5, "low_s": 0.5, "high_s": 0.5, "started_anew": True, "batches": batches}}


def traced(busy):
    """A device that computes for a part of the step."""
    return {"trace": {"device": {"device_busy_share": busy, "device_busy_s_per_step": busy * 0.03}}}


_LOGS = {"until_optimizer_s": 0.008, "after_optimizer_s": 0.020, "lines": [LOGGING]}
_CHECKS = {**_LOGS, "lines": [STEPPING]}
_PREPARES = {"input_s": 0.012, "lines": [NORMALISING]}
_SAVES = {"after_optimizer_s": 0.01, "saves": 20, "saving_s": 4.0}
_VALIDATES = {"others": [VALIDATION]}
_RESTARTS = {"restarts": 3, "restarting_step_s": 0.2}

CASES = (
    pair("after-step", _CHECKS, {"until_optimizer_s": 0.027, "after_optimizer_s": 0.001}),
    pair("after-step", {**_CHECKS, "lines": []}, {"after_optimizer_s": 0.001}),
    # What has a remedy is told by its line, and a schedule is a part of the training.
    pair("after-step", _CHECKS, {"lines": [LOGGING]}),
    pair("after-step", _CHECKS, {"lines": [{**STEPPING, "code": "scheduler.step()"}]}),
    pair("after-step", _CHECKS, {"lines": [{**STEPPING, "share": 0.1}, {**LOGGING, "share": 0.9}]}),
    # In each part of a step, a line goes by what it calls.
    pair("loop-line", _LOGS, {"lines": [STEPPING]}),
    pair("loop-line", _LOGS, {"until_optimizer_s": 0.027, "after_optimizer_s": 0.001}),
    pair("loop-line", {**_LOGS, "lines": [{**LOGGING, "code": "writer.add_scalar('lr', scheduler.get_last_lr()[0])"}]},
         {"lines": [{**STEPPING, "code": "scheduler.step()"}]}),
    pair("loop-line", {"lines": [COPYING]}, {"lines": [FORWARD]}),
    pair("loop-line", {"lines": [COPYING]}, {"lines": [{**COPYING, "share": 0.1}]}),
    pair("loop-line", {"lines": [COPYING]}, {"lines": [{**COPYING, "library": True}]}),
    pair("loop-line", {**_PREPARES, "lines": [{**COPYING, "stage": "input"}]}, {"lines": [NORMALISING]}),
    pair("loop-line", {**_LOGS, "lines": [{**STEPPING, "code": "gc.collect()"}]}, {"lines": [STEPPING]}),
    pair("loop-line", {**_LOGS, "lines": [{**STEPPING, "code": "torch.cuda.empty_cache()"}]}, {"lines": [STEPPING]}),
    # Averages of weights; an optimizer of the user's own, and a layer, keep averages too.
    pair("loop-line", {**_LOGS, "lines": [EMA, READING]}, {"lines": [{**EMA, "share": 0.1}]}),
    pair("loop-line", {"lines": [{**EMA, "stage": "step"}]}, {"lines": [{**EMA, "stage": "step", "function": "step"}]}),
    pair("loop-line", {**_LOGS, "lines": [{**EMA, "code": "ema.update(model)", "calls": "timm.utils.ema.update"}]},
         {"lines": [{**EMA, "code": "state.update(model)", "calls": None}]}),
    # A concatenation may be a layer's.
    pair("loop-line", {**_PREPARES, "lines": [{**COPYING, "code": "rows = frame.iloc[ids]", "stage": "input",
                                               "calls": "pandas.core.indexing.__getitem__"}]},
         {"lines": [{**COPYING, "code": "x = torch.cat([x, y], 1)", "calls": None, "stage": "input"}]}),
    # What a device hides costs nothing, and a loader that could not supply more is waited for then.
    RuleCase("loop-line", looping({"lines": [COPYING]}, device="cuda:0", **traced(0.5)),
             looping({"lines": [COPYING]}, device="cuda:0", **traced(0.98)), "compute"),
    RuleCase("loop-line", looping({"lines": [COPYING]}), looping({"lines": [COPYING]}, SLOW_LOADER), "compute"),
    # There the host waits for the device, or the device hides what the host does.
    pair("after-step", {**_CHECKS, "after_device_s": 0.019}, {"after_device_s": 0.001}, device="cuda:0"),
    pair("after-step", {**_CHECKS, "after_device_s": 0.019}, {"watched_s": 0.049}, device="cuda:0"),
    # The loader could not supply more.
    RuleCase("after-step", looping(_CHECKS), looping(_CHECKS, SLOW_LOADER), "compute"),
    pair("input-in-loop", _PREPARES, {"input_s": 0.0005}),
    pair("input-in-loop", _PREPARES, {"lines": [{**NORMALISING, "code": "images = images.to(device)"}]}),
    pair("input-in-loop", {**_PREPARES, "lines": [{**NORMALISING, "code": "tokens = split(texts).to(device)"}]},
         {"lines": [{**NORMALISING, "code": "x, y = batch['x'].to(device), batch['y'].to(device)"}]}),
    # Where a move copies, the line takes its time for that.
    pair("input-in-loop", {**_PREPARES, "lines": [{**NORMALISING, "code": "tokens = split(texts).to(device)"}]},
         {"lines": [{**NORMALISING, "code": "x = x.to(device) / 255"}]}, device="cuda:0", **traced(0.5)),
    pair("input-in-loop", {**_PREPARES, "lines": ENCODING},
         {"lines": [ENCODING[0], {**ENCODING[1], "code": "batch = {k: v.to(device) for k, v in batch.items()}"}]}),
    pair("input-in-loop", _PREPARES, {"lines": [{**NORMALISING, "library": True}]}),
    RuleCase(
        "input-in-loop",
        looping(_PREPARES, device="cuda:0", **traced(0.5)),
        looping(_PREPARES, device="cuda:0", **traced(0.98)),
        "compute",
    ),
    RuleCase(
        "input-in-loop", looping(_PREPARES), looping(_PREPARES, pipeline={"num_workers": 0}), "compute"
    ),
    RuleCase(
        "input-in-loop", looping(_PREPARES, **crowded(1.2)), looping(_PREPARES, **crowded(1.95)), "compute"
    ),
    # What is sent costs more already than what the loop does.
    RuleCase(
        "input-in-loop",
        looping(_PREPARES, job=held_by("handoff", slow_s=0.005)),
        looping(_PREPARES, job=held_by("handoff", slow_s=0.020)),
        "compute",
    ),
    pair("one-iterator", _RESTARTS, {"restarting_step_s": 0.031}, None),
    pair("one-iterator", _RESTARTS, {"restarts": 1}, None),
    # What begins the epochs stays.
    RuleCase("one-iterator", looping(_RESTARTS, **epochs_of(32)), looping(_RESTARTS, **epochs_of(1.5))),
    RuleCase("one-iterator", looping(_RESTARTS), looping(_RESTARTS, **epochs_of(1))),
    RuleCase("one-iterator", looping(_RESTARTS), looping(_RESTARTS, pipeline={"num_workers": 0})),
    pair("workers-in-step", {"others": [PAIRED]}, {"others": [{**PAIRED, "passes": 1, "starting_s": 0.05}]}),
    pair("workers-in-step", {"others": [PAIRED]}, {"others": [{**PAIRED, "num_workers": 0}]}),
    pair("validation", _VALIDATES, {"others": [{**VALIDATION, "evaluating_s": 0.9, "starting_s": 0.5}]}, None),
    pair("validation", _VALIDATES, {"others": [{**VALIDATION, "evaluations": 1, "passes": 1}]}, None),
    # A first batch that takes as long as the others is no start of workers.
    pair("validation", {"others": [FEW]}, {"others": [{**FEW, "first_s": 1.8}]}, None),
    # Those that stay are given no workers to keep.
    pair(
        "validation",
        {"others": [{**VALIDATION, "persistent_workers": True}]},
        {"others": [{**VALIDATION, "evaluating_s": 0.9}]},
        None,
    ),
    RuleCase("validation", with_breaks(looping(_VALIDATES)), with_breaks(looping())),
    # After an epoch that was left to end before the loop was fed; validated in every tenth epoch only.
    pair("validation", {"between": {**ENDS, "others": [AGAIN]}}, {"between": {**ENDS, "others": []}}, None),
    pair(
        "validation",
        {"between": {**ENDS, "others": [{**AGAIN, "is_training_set": None}]}},
        {"between": {**ENDS, "others": [{**AGAIN, "every": 10}]}},
        None,
    ),
    # Workers that stay start once.
    pair(
        "validation",
        {"between": {**ENDS, "others": [AGAIN]}},
        {"between": {**ENDS, "others": [{**AGAIN, "starting_s": 0.9}]}},
        None,
    ),
    pair(
        "between-epochs",
        {"between": ENDS, "lines": [PLOTTING]},
        {"between": {**ENDS, "each_epoch_share": 0.1}},
        None,
    ),
    pair("between-epochs", {"between": ENDS, "lines": [PLOTTING]}, {"lines": []}, None),
    pair("checkpoints", {"between": {**ENDS, "saves": 1, "saving_s": 0.9}}, {"between": {**ENDS, "saving_s": 0.9}}),
    pair("checkpoints", _SAVES, {"saving_s": 0.4}),
    pair("checkpoints", _SAVES, {"saves": 1}),
    RuleCase(
        "switch-left-on", looping(switches=["torch.autograd.set_detect_anomaly(True)"]), looping(switches=[]), "compute"
    ),
    pair("switch-left-on", {"hooked": 12, "hooks_s": 0.009}, {"hooks_s": 0.001}),
    RuleCase("switch-left-on", looping(switches=["sys.monitoring (cProfile)"]), looping(), "compute"),
)  # fmt: skip
