"""From what the workers found out to how the dataset is cut: which stages there are, and how each is served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from bottleneck.job.marks import is_mark, name_of, site_of
from bottleneck.loader import modes
from bottleneck.loader.recording.record import ItemTimes, Report, undisturbed
from bottleneck.loader.recording.replay import Verification


@dataclass(frozen=True)
class MarkPlan:
    """The way in which marked stages are served; the same in all workers.

    Attributes:
        sample: Sites within `__getitem__` or `__iter__`, in the order of execution.
        collate: The same within the collate function.
        sample_alone: The stages of an item work without the code around them.
        collate_alone: The same for a batch.
    """

    sample: tuple[str, ...] = ()
    collate: tuple[str, ...] = ()
    sample_alone: bool = False
    collate_alone: bool = False

    @property
    def sites(self) -> tuple[str, ...]:
        return (*self.sample, *self.collate)

    def bit(self, site: str) -> int:
        """The bit of a mode that skips a site."""
        return modes.skip_bit(self.sites.index(site))

    def bits(self, sites: Iterable[str]) -> int:
        """The bits of a mode that skip all of some sites."""
        return sum(self.bit(site) for site in sites)

    def skipped(self, sites: Iterable[str], mode: int) -> frozenset[str]:
        return frozenset(site for site in sites if mode & self.bit(site))


def plan_marks(
    sample: Iterable[tuple[str, ...]],
    collate: Iterable[tuple[str, ...]],
    unusable: dict[str, str],
    taken: Iterable[str] = (),
) -> tuple[MarkPlan, dict[str, str]]:
    """Decide which marked stages are measured, and why the others are not.

    Args:
        sample: The orders in which sites were called within items.
        collate: The same within batches.
        unusable: Sites that cannot be used, and why.
        taken: Names of other stages that are measured; a marked stage cannot have the same.
    """
    groups = [{tuple(dict.fromkeys(filter(is_mark, order))) for order in orders} for orders in (sample, collate)]
    in_sample, in_collate = ({site for order in orders for site in order} for orders in groups)
    refused = {site: why for site, why in unusable.items() if is_mark(site)}
    refused |= dict.fromkeys(in_sample & in_collate, "it is called both in __getitem__ and in collate_fn")
    refused |= {site_of(name): f"another stage is called {name}" for name in taken if site_of(name) in in_collate}
    room, kept = modes.MAX_MARKS, list[tuple[str, ...]]()
    for orders in groups:
        refused |= dict.fromkeys(_disordered(orders), "it is called in another order from item to item")
        sites = [site for site in _merge(orders) if site not in refused]
        refused |= dict.fromkeys(sites[room:], f"there are more than {modes.MAX_MARKS} marked stages")
        kept.append(tuple(sites[:room]))
        room -= len(kept[-1])
    return MarkPlan(kept[0], kept[1]), refused


def _disordered(orders: set[tuple[str, ...]]) -> set[str]:
    """Sites that come now before and now after another."""
    before = {(a, b) for order in orders for n, a in enumerate(order) for b in order[n + 1 :]}
    return {site for a, b in before if (b, a) in before for site in (a, b)}


def _merge(orders: set[tuple[str, ...]]) -> list[str]:
    """Put all sites into one order that agrees with each of some orders."""
    follows: dict[str, set[str]] = {}
    for order in sorted(orders, key=len, reverse=True):
        for number, site in enumerate(order):
            follows.setdefault(site, set()).update(order[:number])
    placed: list[str] = []
    while len(placed) < len(follows):
        free = [site for site in follows if site not in placed and follows[site] <= set(placed)]
        # Sites that were refused for their disorder may wait for each other.
        placed.append((free or [site for site in follows if site not in placed])[0])
    return placed


Strategy = Literal["template", "replay", "marks", "fetch"]

# Code outside the cuts that takes less than this share of an item's time is not worth a separate stage. Near such a
# limit a job would change its stages from run to run: it is no way to decide which kinds of stages there are.
_NEGLIGIBLE_SHARE = 0.03
_NEGLIGIBLE_S = 20e-6
# A function with a name such as `open_archive` that does less than this share of the work is not what loads.
_WORTH_CUTTING_SHARE = 0.1


@dataclass(frozen=True)
class Caveats:
    """Facts about cuts, or about marked stages, that the user should know.

    Attributes:
        unused_cuts: Cuts that cannot be used, and why.
        uncalled_cuts: Cuts that the user named and that no recorded item called.
        recorded_items: Number of recorded items.
        rest_share: Share of a sample's time in code after its augmentation, which counts as loading; 0 if negligible.
        undivided: Reason why `__getitem__` is one stage although there are cuts; empty otherwise.
        copied_arguments: Cuts that change their arguments in place -> seconds that a copy of these takes.
        unused_marks: Marked stages that are not measured, and why.
        copied_marks: Marked stages whose output later code changes in place -> seconds that a copy of it takes.
        lazy: Values that are read when they are used, and the stages that do; see `READ_BY_COPY`.
        checked_less: True if there was no time to check that whole samples stay the same.
    """

    unused_cuts: Mapping[str, str] = field(default_factory=dict)
    uncalled_cuts: tuple[str, ...] = ()
    recorded_items: int = 0
    rest_share: float = 0.0
    undivided: str = ""
    copied_arguments: Mapping[str, float] = field(default_factory=dict)
    unused_marks: Mapping[str, str] = field(default_factory=dict)
    copied_marks: Mapping[str, float] = field(default_factory=dict)
    lazy: tuple[tuple[str, str], ...] = ()
    checked_less: bool = False


@dataclass(frozen=True)
class Plan:
    """The way in which recorded data is served; the same in all workers.

    Attributes:
        strategy: `template`: the augmentation is called with its recorded arguments and its output put into the
            recorded sample. `replay`: `__getitem__` runs, and its cuts, which load, serve their recorded outputs.
            `marks`: as `replay`, with the stages that the user marked. `fetch`: no cut inside.
        sites: The sites in use.
        copy_arguments: Sites that change their arguments and get a copy each time.
        copy_outputs: Sites whose output is copied each time it is served, because later code changes it.
        copy_samples: Collation changes the samples.
        keeps_samples: Collation puts them into the batch, or parts of them.
        copy_batches: The train step may change a batch that no queue has copied.
        within_sample: The stages inside `__getitem__`, from the device outwards.
        reason: The reported reason why `__getitem__` is not cut; empty if it is.
        caveats: Those of cuts, followed by those of marked stages.
        marks: How the stages that the user marked are served.
        uncalled: Names of marked stages that neither the dataset nor the collate function called, each with the modules
            of what was marked.
    """

    strategy: Strategy
    sites: frozenset[str] = frozenset()
    copy_arguments: frozenset[str] = frozenset()
    copy_outputs: frozenset[str] = frozenset()
    copy_samples: bool = True
    keeps_samples: bool = False
    copy_batches: bool = True
    within_sample: tuple[str, ...] = ("fetch",)
    reason: str = ""
    caveats: tuple[Caveats, ...] = ()
    marks: MarkPlan = field(default_factory=MarkPlan)
    uncalled: Mapping[str, frozenset[str]] = field(default_factory=dict)
    batch_sizes: tuple[int, ...] = field(default=())
    has_samples: bool = True
    has_collated: bool = True
    recorded_bytes: int = 0


def make_plan(reports: list[Report], *, iterable: bool) -> Plan:
    """Decide how the dataset is cut, from one report per worker that recorded anything."""
    marked = _make_marked_plan(reports)
    if marked.strategy == "marks" or marked.reason:
        return marked
    recorded = [item for report in reports for item in report.items]
    items = undisturbed(recorded)
    orders = {order for report in reports for order in report.orders}
    unusable = {site: why for report in reports for site, why in report.sites.unusable.items() if not is_mark(site)}
    called = {site for order in orders for site in order}
    stages_of = {s: stage for report in reports for s, stage in report.sites.stages.items() if stage}
    usable = {site for site in called if site in stages_of and site not in unusable}
    augment = frozenset(site for site in usable if stages_of[site] == "augment")
    load = frozenset(site for site in usable if stages_of[site] == "load")
    strategy, within, reason = _choose(items, recorded, orders, reports, augment, load, iterable=iterable)
    sites = augment | load if strategy != "fetch" else frozenset()
    copies_s = {site: copy_s for report in reports for site, copy_s in report.sites.changes_arguments.items()}
    changing = augment.intersection(copies_s)
    chosen = frozenset().union(*(report.sites.chosen for report in reports))
    # Where a function that augments by its name was refused, what follows the others may be its work.
    has_rest = strategy == "template" and not any(stages_of.get(site) == "augment" for site in unusable)
    lazy = {found for report in reports for found in report.lazy}
    decodes = any(stage == "augment" for _, stage in lazy)  # to decode an image is to change it
    verified = [report.verification for report in reports if report.verification is not None]
    caveats = Caveats(
        unused_cuts=dict(sorted(unusable.items())),
        uncalled_cuts=tuple(sorted(chosen - called - unusable.keys())),
        recorded_items=len(recorded),
        rest_share=_rest_share(items) if has_rest else 0.0,
        undivided=reason if strategy == "fetch" and (augment | load) - _guessed(reports) else "",
        copied_arguments={s: copies_s[s] for s in sorted(changing)} if strategy != "fetch" and not decodes else {},
        lazy=tuple(sorted(found for found in lazy if strategy != "fetch" or found[1] == "collate")),
        checked_less=strategy != "fetch" and not all(v.checked for v in verified),
    )
    changed = any(not is_mark(site) for report in reports for site in report.sites.changed_outputs)
    copies = marked.copy_samples or changed or not verified or not all(v.checked for v in verified)
    return replace(
        marked,
        strategy=strategy,
        sites=sites,
        copy_arguments=marked.copy_arguments | changing,
        copy_outputs=marked.copy_outputs | (sites if copies else frozenset()),
        within_sample=within,
        reason=reason,
        caveats=(caveats, *marked.caveats),
    )


def _make_marked_plan(reports: list[Report]) -> Plan:
    """Plan with the stages that the user marked as the only cuts; of strategy `fetch` where there are none."""
    unusable = {site: why for report in reports for site, why in report.sites.unusable.items()}
    sample = {order for report in reports for order in report.orders}
    collate = {order for report in reports for order in report.collate_orders}
    marked = any(report.sites.marked for report in reports)
    plan, refused = plan_marks(sample, collate, unusable, () if marked else ("load", "augment"))
    alone = all(report.sample_alone for report in reports), all(report.collate_alone for report in reports)
    plan = replace(plan, sample_alone=alone[0], collate_alone=alone[1])
    copies_s = {s: copy_s for report in reports for s, copy_s in report.sites.changed_outputs.items() if is_mark(s)}
    called = {site for order in (*sample, *collate) for site in order} | unusable.keys()
    names = sorted({name for report in reports for name in report.mark_names})
    lazy = {found for report in reports for found in report.lazy}
    caveats = Caveats(
        unused_marks={name_of(site): why for site, why in sorted(refused.items())},
        copied_marks={name_of(site): copies_s[site] for site in sorted(copies_s.keys() & set(plan.sites))},
        lazy=tuple(sorted(lazy)) if marked else (),
    )
    return Plan(
        strategy="marks" if plan.sample else "fetch",
        copy_arguments=frozenset(site for r in reports for site in r.sites.changes_arguments if is_mark(site)),
        copy_outputs=frozenset(copies_s),
        copy_samples=any(report.changes_samples for report in reports),
        keeps_samples=any(report.keeps_samples for report in reports),
        within_sample=("other", *(name_of(site) for site in reversed(plan.sample))) if plan.sample else ("fetch",),
        reason="none of its marked stages can be served from a recording" if marked and not plan.sample else "",
        caveats=(caveats,),
        marks=plan,
        uncalled={
            name: frozenset().union(*(report.mark_names.get(name, ()) for report in reports))
            for name in names
            if site_of(name) not in called
        },
        batch_sizes=tuple(size for report in reports for size in report.batch_sizes),
        has_samples=all(report.has_samples for report in reports),
        has_collated=all(report.has_collated for report in reports),
        recorded_bytes=max((report.recorded_bytes for report in reports), default=0),
    )


def _choose(
    items: list[ItemTimes],
    recorded: list[ItemTimes],
    orders: set[tuple[str, ...]],
    reports: list[Report],
    augment: frozenset[str],
    load: frozenset[str],
    *,
    iterable: bool,
) -> tuple[Strategy, tuple[str, ...], str]:
    """Return the strategy, the stages inside `__getitem__` from the device outwards, and why it is not cut."""
    verified = [report.verification for report in reports if report.verification is not None]
    times = ItemTimes.sum(items)
    # Of samples of two speeds the quicker half may load little; of interrupted ones all of them may seem to.
    reason = _why_no_cut(orders, (times, ItemTimes.sum(recorded)), verified, augment, load)
    if not reason and not augment and load <= _guessed(reports):
        reason = _why_no_load(times, load, _negligible_s(times, len(items)))
    if reason:
        return "fetch", ("fetch",), reason
    if augment:
        if all(report.sample_alone for report in reports):
            return "template", ("augment", "load"), ""
        return "fetch", ("fetch",), "its augmentation did not replay to what the direct path gives"
    if iterable:
        return "fetch", ("fetch",), "its items cannot be asked for again, and it has no augmentation that could be cut"
    if not all(v.checked for v in verified):
        return "fetch", ("fetch",), "its items take too long to check, in the time that there is, whether they replay"
    if not all(v.replay for v in verified):
        return "fetch", ("fetch",), "its recorded calls did not replay to what the direct path gives"
    # Only the loading is cut: what the dataset does with what was loaded is its augmentation.
    return "replay", ("augment", "load"), ""


def _guessed(reports: list[Report]) -> frozenset[str]:
    return frozenset().union(*(report.sites.guessed for report in reports))


def _negligible_s(times: ItemTimes, items: int) -> float:
    """Time that is not worth a separate stage, over all items."""
    return max(_NEGLIGIBLE_SHARE * times.total_s, _NEGLIGIBLE_S * items)


def _rest_share(items: list[ItemTimes]) -> float:
    """Return the share of the time of samples in code after the augmentation; 0 if it is negligible."""
    times = ItemTimes.sum(items)
    return times.rest_s / times.total_s if times.rest_s > _negligible_s(times, len(items)) else 0.0


def _why_no_load(times: ItemTimes, load: frozenset[str], negligible_s: float) -> str:
    """Return why functions that take an index, whose names say nothing, are not what loads; empty if they are."""
    if times.total_s - times.load_s > negligible_s:
        return ""
    names = ", ".join(f"`{site}`" for site in sorted(load))
    return f"{names} does all of its work, and nothing in it separates loading from augmentation"


def _why_no_cut(
    orders: set[tuple[str, ...]],
    sums: tuple[ItemTimes, ...],
    verified: list[Verification],
    augment: frozenset[str],
    load: frozenset[str],
) -> str:
    """Return what rules out any cut inside `__getitem__`; empty if nothing does."""
    if not augment and not load:
        return "no augmentation or loader was found on the dataset"
    if len(orders) > 1 and not augment:
        return "its cuts are called in another order or number for each item"
    if any(not v.recorded for v in verified):
        return "recording its calls changed what it returns"
    if not augment and all(times.load_s < _WORTH_CUTTING_SHARE * times.total_s for times in sums):
        return "no augmentation was found on the dataset, and its loader does little of the work"
    return ""
