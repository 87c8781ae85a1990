"""A sweep's findings on its own search: the gradient of each term, what does nothing, what decides."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.experiments.teacher_weights import is_weight, weights_of
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.reports.gradient_shares import (
    HEADING,
    Inert,
    TermShare,
    inert,
    over_trials,
    range_line,
    share_cells,
)
from stillhouse.reports.importances import (
    Importances,
    importance_cells,
    importance_note,
    importances,
    load_study,
)
from stillhouse.reports.layout import markdown_table
from stillhouse.reports.pages import Section, Table
from stillhouse.search.effects import effects
from stillhouse.search.records import TrialRecord
from stillhouse.search.space import Space
from stillhouse.search.trial import Context
from stillhouse.training.term_gradients import shares_of


@dataclass(frozen=True)
class Findings:
    """The findings of a search, in every form in which they are reported."""

    shares: Sequence[TermShare]
    inert: Sequence[Inert]
    importances: Importances

    def lines(self) -> list[str]:
        """Lines for the terminal."""
        return [line for line in (range_line(self.shares), *self.sentences()) if line]

    def sentences(self) -> list[str]:
        """One sentence per hyper-parameter that does nothing."""
        return [each.sentence for each in self.inert]

    def markdown(self) -> str:
        """Sections of the Markdown report."""
        parts = []
        if self.shares or self.inert:
            parts += [f"## {HEADING}", *self.sentences()]
            parts += [markdown_table(*share_cells(self.shares), {0, 1})] if self.shares else []
        parts += ["## Importances", importance_note(self.importances)]
        if self.importances.shares:
            parts.append(markdown_table(*importance_cells(self.importances), {0, 3}))
        return "\n\n".join(parts)

    def sections(self) -> list[Section]:
        """Sections of the page; the importances have a figure there, see `reports.plots`."""
        if not self.shares and not self.inert:
            return []
        tables = (Table(*share_cells(self.shares), left={0, 1}),) if self.shares else ()
        return [Section(HEADING, " ".join(self.sentences()), tables)]

    def report(self) -> dict[str, Any]:
        """Entries of the JSON report."""
        return {
            "gradient_shares": [dataclasses.asdict(each) for each in self.shares],
            "inert": [{**dataclasses.asdict(each), "sentence": each.sentence} for each in self.inert],
            "importances": dataclasses.asdict(self.importances),
        }


def findings_of(context: Context, space: Space, records: Sequence[TrialRecord], study: Path) -> Findings:
    """Gather the findings of a search from its plans, the logs of its stages and the file of its study.

    Trials that were stopped or failed count as far as they came.
    """
    workspace = context.workspace
    plans = (context.planned(record.hyper_parameters) for record in records)
    trials = [shares_of(plan, workspace) for plan in plans if plan is not None]
    preset = hyper_parameters(load_method(context.method), dict(space.fixed), context.preset)
    weights = weights_of(context.setting)
    values = {name: weights[name] if is_weight(name) else getattr(preset, name) for name in space.domains}
    return Findings(
        over_trials(trials),
        inert(effects(context, space), trials, values),
        importances(load_study(study)),
    )
