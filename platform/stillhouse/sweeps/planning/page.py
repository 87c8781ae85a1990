"""A plan in lines."""

from collections.abc import Iterator

from stillhouse.core.console import duration
from stillhouse.reports.layout import table_lines
from stillhouse.sweeps.planning.arithmetic import PARTS
from stillhouse.sweeps.planning.plan import Plan


def lines_of(plan: Plan) -> Iterator[str]:
    """The lines that the command prints."""
    share = "" if plan.share >= 1 else f" (estimated from {plan.share:.2%} of the text to distil on)"
    yield f"text{share}"
    cells = [[each.label, each.what, f"{each.rows:,}", f"{each.tokens:,}"] for each in plan.texts]
    yield from _table(["table", "tokens of", "rows", "tokens"], cells, {0, 1})
    yield "on the disk"
    cells = [
        [each.name, f"{each.count:,}", size(each.gigabytes), "" if each.stays else "gone at the end"]
        for each in plan.made
    ]
    stay = sum(each.gigabytes for each in plan.made if each.stays)
    yield from _table(
        ["what", "number", "size", ""], [*cells, ["in all, at the end", "", size(stay), ""]], {0, 3}
    )
    yield "memory of a process: " + ", ".join(f"{name} {size(gb)}" for name, gb in plan.memory_gb.items())
    yield f"rates of {plan.nodes}"
    for name, rates in plan.rates.items():
        if rates.embedding:
            yield f"  {name}: the teacher embeds {rates.embedding:,.0f} tokens per second and process"
        for label, rate in rates.training.items():
            yield f"  {name}: {label} trains {rate.examples_per_second:,.1f} examples per second and process"
        yield f"  {name}: {rates.source}"
    at_once = f"{plan.trials} trials, {plan.estimate.at_once} at once; " if plan.trials else ""
    yield f"time: {at_once}{plan.estimate.teachers} teachers at once"
    for part in PARTS:
        seconds = plan.estimate.seconds.get(part, 0.0)
        if seconds >= 1:
            yield f"  {part}: {duration(seconds)}"
    yield f"  in all: {duration(plan.estimate.total)} ({plan.estimate.total / 3600:.2f} h)"
    if plan.estimate.cost is not None:
        yield f"cost: {plan.estimate.cost:,.2f}"
    for remark in plan.remarks:
        yield f"  {remark}"


def size(gigabytes: float) -> str:
    """``1.2 GB``."""
    return f"{gigabytes:,.1f} GB" if gigabytes >= 0.1 else f"{1e3 * gigabytes:,.1f} MB"


def _table(names: list[str], cells: list[list[str]], left: set[int]) -> Iterator[str]:
    for line in table_lines(names, cells, left):
        yield f"  {line}".rstrip()
