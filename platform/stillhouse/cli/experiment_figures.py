"""`stillhouse evaluate MODEL` without `--suite`: measure a model on an experiment's own dev or test suite."""

from argparse import Namespace
from typing import Any

from stillhouse.cli.against import compare_suites, models_of, results_against
from stillhouse.cli.documents_by import report_of, show_beside
from stillhouse.cli.parsed_values import embedding_of, experiment_from
from stillhouse.cli.published_suites import refuse_suite_flags
from stillhouse.cli.run import on_ray, write_results
from stillhouse.core.console import say, show
from stillhouse.core.errors import BadInput
from stillhouse.sweeps.begun import teacher_in_sweep
from stillhouse.sweeps.measuring import measure_models


def evaluate_experiment(options: Namespace) -> None:
    """Prepare the experiment's data, measure the model, and print and write the figures."""
    if not options.model:
        raise BadInput(
            "`evaluate` needs a model: give a sweep's or a stage's name or folder, an export in any form, a "
            "model's name, or --suite with --from-run."
        )
    refuse_suite_flags(options)
    experiment = experiment_from(options)
    with on_ray(options) as (workspace, device):
        found = measure_models(
            experiment,
            models_of(options),
            workspace,
            embedding_of(options, device),
            final=options.final,
            documents_by=options.documents_by,
            head=(options.pooling, options.normalize),
            refresh=options.refresh,
        )
    split, model = found.split, found.sources[0]
    report: dict[str, Any] = {"model": options.model, "title": model.title, "split": split}
    report["data"] = dict(found.facts)
    identities = {source.name: source.identity() for source in found.sources}
    notes = [found.facts["collection_notes"]] if "collection_notes" in found.facts else []
    about = {"identity": identities[model.name], "split": split, "notes": notes}
    report["about"] = {**about, "figures": dict(found.about)}
    show(f"model: {model.title}, identity {identities[model.name][:16]}")
    teacher = teacher_in_sweep(options.begun, experiment, final=options.final) if options.begun else {}
    known = [name for name in found.figures if teacher.get(name, 0) > 0]
    more_is_better = [name for name in known if not name.endswith("_alignment")]
    shares = {name: found.figures[name] / teacher[name] for name in more_is_better}
    for name, value in found.figures.items():
        kept = f"   teacher {teacher[name]:.4f}, kept {shares[name]:.1%}" if name in shares else ""
        show(f"  {name:<36} {value:.4f}{kept}")
    for start, fact in found.about.items():
        show(f"  {start}: {fact['split']} split, {fact['count']:,} {fact['unit']}, data {fact['data'][:8]}")
    if teacher:
        report |= {"teacher": teacher, "kept": shares}
    if (by := found.documents_by) is not None:
        show_beside(split, {split: by.figures}, by.source.title, model.title, digits=4)
        for label, made in by.embedded.items():
            say(f"documents of {label}: {'embedded once, now' if made else 'found in the workspace'}")
        report["documents_by"] = report_of(by.source, {split: {split: by.figures}})
    if found.calibration:
        report["calibration"] = found.calibration
    for source, other in zip(found.sources[1:], found.suite[1:], strict=True):
        titles = (model.title, source.title)
        compared = compare_suites(split, found.suite[0], other, options, titles)
        against = results_against(options, {split: compared}, titles)
        report["against"] = against | {"identity": identities[source.name]}
    write_results(options, {**report, "metrics": dict(found.figures)})
