"""Shares of the terms in the gradient of the first steps, and searched hyper-parameters that do nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stillhouse.reports.trials import short

NEGLIGIBLE = 0.01
"""Share of the gradient below which a term decides nothing."""
HEADING = "Gradient of the first steps"

Shares = Mapping[str, Mapping[str, float]]
"""Stage by label to term to share, of one plan; without stages that have a single term or did not begin."""


@dataclass(frozen=True)
class TermShare:
    """The smallest and the largest share of one term of a stage over the trials that measured it."""

    stage: str
    term: str
    low: float
    high: float
    trials: int


@dataclass(frozen=True)
class Inert:
    """A searched hyper-parameter that does nothing.

    Attributes:
        name: The hyper-parameter.
        terms: The terms through which alone it acts, as ``stage: term``.
        share: Their largest share of the gradient in any trial.
        trials: Number of trials that measured it.
        preset: Its value in the preset, which it keeps if it is not searched.
    """

    name: str
    terms: tuple[str, ...]
    share: float
    trials: int
    preset: object

    @property
    def sentence(self) -> str:
        """The message to the user."""
        fixed = f"leave it out of the search (--set {self.name}={_option(self.preset)})"
        trials = f"all {self.trials} trials" if self.trials > 1 else "the one trial that measured it"
        return (
            f"{self.name} was searched but acts only through {' and '.join(self.terms)}, at most "
            f"{percent(self.share)} of the gradient in {trials}: {fixed}."
        )


def over_trials(trials: Sequence[Shares]) -> list[TermShare]:
    """Summarise the shares of all trials, by stage and term in their order."""
    found: dict[tuple[str, str], list[float]] = {}
    for shares in trials:
        for stage, terms in shares.items():
            for term, share in terms.items():
                found.setdefault((stage, term), []).append(share)
    return [TermShare(*key, min(values), max(values), len(values)) for key, values in found.items()]


def inert(
    effects: Mapping[str, frozenset[tuple[str, str]] | None],
    trials: Sequence[Shares],
    presets: Mapping[str, object],
) -> list[Inert]:
    """List the searched hyper-parameters that act only through terms below `NEGLIGIBLE`.

    One that acts in several stages is listed only if its terms were measured in each of them. For ``effects``
    see `search.effects.effects`; ``presets`` are the preset's values by name.
    """
    found = []
    for name, effect in effects.items():
        if not effect:
            continue
        stages = {stage for stage, _ in effect}
        measured = [shares for shares in trials if stages & set(shares)]
        known = {stage for shares in measured for stage in shares}
        sums = [
            sum(share for term, share in shares[stage].items() if (stage, term) in effect)
            for shares in measured
            for stage in stages & set(shares)
        ]
        if stages <= known and max(sums) < NEGLIGIBLE:
            terms = tuple(f"{stage}: {term}" for stage, term in sorted(effect))
            found.append(Inert(name, terms, max(sums), len(measured), presets[name]))
    return found


def shares_line(shares: Shares) -> str:
    """Format the shares of one plan in a line; empty if none of its stages has several terms."""
    stages = [
        f"{stage} {', '.join(f'{term} {percent(share)}' for term, share in terms.items())}"
        for stage, terms in shares.items()
        if terms
    ]
    return f"gradient of the first steps: {'; '.join(stages)}" if stages else ""


def range_line(found: Sequence[TermShare]) -> str:
    """Format the shares over the trials in a line; empty if none was measured."""
    stages: dict[str, list[str]] = {}
    for each in found:
        stages.setdefault(each.stage, []).append(f"{each.term} {_range(each)}")
    text = "; ".join(f"{stage} {', '.join(terms)}" for stage, terms in stages.items())
    return f"gradient of the first steps, over the trials: {text}" if text else ""


def share_cells(found: Sequence[TermShare]) -> tuple[list[str], list[list[str]]]:
    """Return the header and one row per stage and term."""
    rows = [
        [each.stage, each.term, percent(each.low), percent(each.high), str(each.trials)] for each in found
    ]
    return ["stage", "term", "lowest share", "highest share", "trials"], rows


def percent(share: float) -> str:
    """Format a share: 0.998 becomes ``99.8 %``, 0.0011 ``0.11 %``, and 1e-6 ``< 0.01 %``."""
    if 0 < share < 1e-4:
        return "< 0.01 %"
    return f"{100 * share:.2f} %" if 0 < share < 0.01 else f"{100 * share:.1f} %"


def _range(each: TermShare) -> str:
    low, high = percent(each.low), percent(each.high)
    return high if low == high else f"{low} to {high}"


def _option(value: object) -> str:
    """A value as `--set` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ",".join(str(item) for item in value) + "]"
    return short(value) if isinstance(value, float) and abs(value) < 1000 else str(value)
