"""The end of a sweep: the best student is tested against its teacher, exported and registered."""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from stillhouse.cluster.resources import Need
from stillhouse.core.artifacts import (
    MANIFEST,
    Workspace,
    read_manifest,
    sha256_of,
    write_atomically,
    write_json,
)
from stillhouse.core.console import doing, job_clock, say, show, tell, warn
from stillhouse.core.devices import usable_device
from stillhouse.core.identity import fingerprint
from stillhouse.core.integrity import FILES
from stillhouse.core.machine import describe_machine
from stillhouse.core.notes import EXPORT_NOTE, read_note, write_note
from stillhouse.core.types import Encoder, Scorer
from stillhouse.evaluation.items import as_data
from stillhouse.evaluation.paired import Paired
from stillhouse.evaluation.serving_cost import cost, pairs_per_second
from stillhouse.evaluation.suites import figure_facts
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.preparation import Prepared
from stillhouse.methods import load_method
from stillhouse.reports.model_card import Card
from stillhouse.reports.plots import write_figures
from stillhouse.reports.reuse import Reuse, reuse, reuse_table, reuse_table_markdown
from stillhouse.reports.sweep_tables import (
    comparison_table,
    comparison_table_markdown,
    data_line,
    headline,
    sweep_description,
    title_of,
    trial_table,
    trial_table_markdown,
)
from stillhouse.reports.trials import front, second_name, varied
from stillhouse.search.observer import Observer
from stillhouse.search.records import TrialRecord, best_record
from stillhouse.search.space import Space
from stillhouse.search.study_backup import STUDY
from stillhouse.search.trial import Context
from stillhouse.students.export.folder_modules import STOCK, TOWERS
from stillhouse.students.sizes import sizes
from stillhouse.sweeps.baseline import Tried
from stillhouse.sweeps.checks import labelled_rows
from stillhouse.sweeps.contenders import (
    Candidate,
    Contenders,
    asks,
    figures_of,
    scoring_teacher,
    teacher,
    teacher_of,
)
from stillhouse.sweeps.costs import costs_of
from stillhouse.sweeps.dev_apart import against_best, apart_lines
from stillhouse.sweeps.findings import Findings, findings_of
from stillhouse.sweeps.refit import chosen_student, refit_remark
from stillhouse.sweeps.room import Room
from stillhouse.sweeps.stage_export import (
    CARD,
    card_of_best,
    checksums_of_export,
    damage_of_export,
    export_stage,
)
from stillhouse.sweeps.test_log import record_test_use
from stillhouse.sweeps.verdict import Verdict, figure_on_test, verdict_on, word_of
from stillhouse.training.facts import read_facts
from stillhouse.training.models import form_of
from stillhouse.values.data import Teacher
from stillhouse.values.stage import Stage

_WHEREVER = Need()
_TESTED = {
    "student": "best student",
    "trial": "best trial's student",
    "baseline_trial": "baseline's best trial",
    "untrained": "untrained student",
}


def deliver(
    name: str,
    register_as: str,
    prepared: Prepared,
    context: Context,
    folder: Path,
    records: list[TrialRecord],
    baseline: Tried | str,
    observer: Observer,
    *,
    need: Need = _WHEREVER,
    register_anyway: bool = False,
    space: Space,
    refits: Callable[[], tuple[Sequence[Candidate], Sequence[Candidate]]] = lambda: ((), ()),
) -> dict[str, Any]:
    """Print the trials, test, export and register the best student, draw the figures; skip what exists.

    A student that is worse than the baseline or than the untrained student on the test split, beyond chance,
    is exported but not registered, unless ``register_anyway``. ``baseline`` is its search, or why there is
    none. What ``refits`` trains, once the trials have been printed, is delivered if it is better on dev; so
    is the baseline's student chosen. Models are measured and exported, and figures drawn, where one worker of
    ``need``, a trial's resources, has room.

    Returns:
        The content of `--json`. ``student`` is None when no trial ran to its end.
    """
    workspace = context.workspace
    room = Room(workspace, need, prepared.setting)
    show()
    trial = _choose(records, context, workspace)
    teacher_dev = _teacher_dev(prepared, context, folder, trial, room)
    against = _show_trials(records, trial, context, teacher_dev)
    observer.compared(records, against)
    reused = reuse((context.plan(dict(r.hyper_parameters)) for r in records if r.values), workspace)
    findings = findings_of(context, space, records, folder / STUDY)
    trials = [_trial(record, against.get(record.number)) for record in records]
    stages = [dataclasses.asdict(kind) for kind in reused]
    if trial is None:
        _say_details(records, reused, findings)
        say("no trial ran to its end: see the reasons above.")
        no_models = dict.fromkeys(("student", "teacher", "baseline", "untrained"))
        return {**no_models, "trials": trials, "front": [], "stages": stages, **findings.report()}
    again, others = refits()
    contenders = _contenders(trial, again, baseline, others, prepared, context)
    best, rows = contenders.best, [*records, *(refit.record for refit in again)]
    tested = _tested(contenders, workspace, folder, observer, room)
    _tell_how_trained(tested, contenders, len(records), baseline, workspace)
    verdict = _verdict(tested, context.quality, contenders)
    about = _about(contenders, workspace)
    means = baseline if isinstance(baseline, str) else means_of(tested, contenders.of_equal_work)
    judged = [*verdict.sentences(), means]
    remarks = [
        *refit_remark(best.record, trial.record, context.quality),
        *judged,
        *([line] if (line := data_line(prepared.facts)) else []),
        *_measured_on(about["test"]),
    ]
    export, parity = _export(name, context, contenders, tested, folder, room, judged)
    first = headline(tested, verdict.figure)
    show(f"\n{first}\n" if first else "")
    show(comparison_table(tested))
    for remark in remarks:
        show(remark)
    _say_details(records, reused, findings)
    show(f"exported: {export} ({_form_of(export)}, lowest cosine to the evaluated student {parity:.7f})")
    report = {
        **_report(tested, contenders, export, trials, baseline),
        "about": about,
        "refits": [_trial(refit.record) for refit in again],
        "front": [record.number for record in front(records)],
        "stages": stages,
        "verdict": verdict.report(),
        "headline": first,
        "apart": apart_lines(trial.record, against),
        "remarks": remarks,
        "registered_as": register_as if register_anyway or not verdict.worse_than else None,
        **findings.report(),
    }
    for record, figures in costs_of(rows, best, tested["student"]["cost"], context, folder, room):
        observer.costs(record, figures)
    observer.report(report, teacher_dev)
    _track(observer, best, report, teacher_dev, rows, folder, verdict, findings, room)
    _register(observer, report, verdict)
    return report


def _say_details(records: Sequence[TrialRecord], reused: Sequence[Reuse], findings: Findings) -> None:
    """Print what explains the search: stages that were reused, shares of gradients, the Pareto front."""
    if reused:
        show(f"\n{reuse_table(reused)}")
    for line in findings.lines():
        show(line)
    if best := front(records):
        show(f"Pareto front, {second_name(records)}: trials {', '.join(str(r.number) for r in best)}")


def _contenders(
    trial: Candidate,
    refits: Sequence[Candidate],
    baseline: Tried | str,
    others: Sequence[Candidate],
    prepared: Prepared,
    context: Context,
) -> Contenders:
    """Choose the best student and the baseline's by dev; their trials are tested where they are refits."""
    best = chosen_student(trial, refits, context.quality)
    found = Contenders(best, None, prepared, context.where.device, trial if best.record.refit else None)
    if isinstance(baseline, str):
        return found
    start = _choose(baseline.records, baseline.context, context.workspace)
    assert start is not None, "a baseline has a trial that ran to its end"
    other = chosen_student(start, others, context.quality, baseline.title)
    alone = other.record.refit and not best.record.refit
    return dataclasses.replace(found, baseline=other, baseline_trial=start if alone else None)


def _tell_how_trained(
    tested: dict[str, dict[str, Any]],
    contenders: Contenders,
    trials: int,
    baseline: Tried | str,
    workspace: Workspace,
) -> None:
    """Add to each student what it had: trials to be chosen from, examples, labelled rows, a refit."""
    if isinstance(baseline, Tried):
        tested["baseline"]["title"] = baseline.title
    for who, each in contenders.students.items():
        tried = isinstance(baseline, Tried) and who.startswith("baseline")
        tested[who] |= {
            "trials": len(baseline.records) if tried else trials,  # type: ignore[union-attr]
            "refitted": each.record.refit,
            "examples": each.stage.examples_in_all,
            "labelled": labelled_rows(workspace, each.stage),
        }
    tested["untrained"] |= {"examples": 0, "labelled": 0}


def _verdict(tested: dict[str, dict[str, Any]], quality: str, contenders: Contenders) -> Verdict:
    """Compare the models by the items of the test figure, which are not kept any longer."""
    titles = {who: title_of(who, tested) for who in tested}
    found = verdict_on(tested, quality, titles, contenders.of_equal_work)
    for each in tested.values():
        each.pop("items", None)
    return found


def means_of(tested: Mapping[str, Mapping[str, Any]], rows: tuple[str, str]) -> str:
    """Say what the two rows that the verdict on the method rests on had."""
    own, other = (tested[who] for who in rows)
    trials = f"{own['trials']} and {other['trials']} trials"
    work = [f"{row['examples']:,} examples and {row['labelled']:,} labelled rows" for row in (own, other)]
    again = "a refit, " * (own["refitted"] and other["refitted"])
    names = f"The {title_of(rows[0], tested)} and the {title_of(rows[1], tested)}".replace("The its", "Its")
    if work[0] != work[1]:
        return f"{names} had {work[0]} against {work[1]}, chosen from {trials}."
    if own["trials"] == other["trials"]:
        return f"{names} had equal means: {own['trials']} trials, {again}{work[0]}."
    return f"{names} had equal work ({again}{work[0]}), but were chosen from {trials}."


def _form_of(export: Path) -> str:
    form = form_of(export)
    return f"two {STOCK} folders" if form == TOWERS else form


def _tested(
    contenders: Contenders, workspace: Workspace, folder: Path, observer: Observer, room: Room
) -> dict[str, dict[str, Any]]:
    """Run the test suite once for these models; the results are kept in the sweep's folder."""
    path = folder / f"test-{contenders.fingerprint}.json"
    kept: dict[str, dict[str, Any]] | None = read_note(path, "The test suite is run again.")
    if kept is not None:
        return kept
    suite = contenders.prepared.test.opens
    before = record_test_use(workspace, suite, f"sweep {observer.name}")
    observer.opened(suite, before)
    times = {0: "for the first time", 1: "once before"}.get(before, f"{before} times before")
    say(f"test split, opened {times}")
    quality = observer.context.quality
    tested = room.call("testing the models", _test_all, contenders, quality, workspace)
    if contenders.prepared.setting.get(Claims) is not None:
        order = {
            f"fever_{name.removeprefix('tfidf_test_')}": value
            for name, value in contenders.prepared.facts.items()
            if name.startswith("tfidf_test_")
        }
        tested["TF-IDF"] = {"metrics": order, "cost": {}}
    write_note(path, tested)
    return tested


def _test_all(contenders: Contenders, quality: str, workspace: Workspace) -> dict[str, dict[str, Any]]:
    """Measure each model by name: its figures, its cost, and the machine that it was measured on.

    Of the students that the verdict compares, the items of the figure that selects are kept.
    """
    tested = {}
    found = contenders.found_in(workspace).encoders(workspace)
    job_clock().step(0, len(found))
    for number, (who, (encoder, module)) in enumerate(found.items(), start=1):
        with doing(f"testing the {who}"):
            figures, items = figures_of(contenders.prepared.test, encoder, workspace)
            if not figures and module is None:
                continue
            measured = _cost(encoder, module, contenders.prepared)
        machine = describe_machine(int(measured["threads"])) if "threads" in measured else {}
        tested[who] = {"metrics": figures, "cost": measured, "machine": machine}
        if who != "teacher" and (kept := items.get(figure_on_test(quality, figures))):
            tested[who]["items"] = as_data(kept)
        job_clock().step(number, len(found))
        tell(f"tested the {_TESTED.get(who, who)}, {number} of {len(found)} models")
    return tested


def _cost(encoder: Any, module: nn.Module | None, prepared: Prepared) -> dict[str, float]:
    """Measure size and speed; for a ranking model also the pairs scored per second.

    A teacher that is there by its vectors alone has a dimension and nothing else.
    """
    if module is None:
        return {"dim": float(prepared.setting.teacher_dim)}
    pairs = prepared.setting.get(Claims) is not None and isinstance(encoder, Scorer)
    speed = {"pairs_per_second": pairs_per_second(encoder)} if pairs else {}
    if not isinstance(encoder, Encoder):
        return {**sizes(module), **speed}
    dim = encoder.encode(["dimension"]).shape[1]
    return {"dim": float(dim), **cost(encoder, module), **speed}


def _export(
    name: str,
    context: Context,
    contenders: Contenders,
    tested: dict[str, dict[str, Any]],
    folder: Path,
    room: Room,
    verdict: Sequence[str],
) -> tuple[Path, float]:
    export, note, best = folder / "export", folder / EXPORT_NOTE, contenders.best
    sha256 = read_manifest(best.folder)["weights_sha256"]
    made = read_note(note, "The student is exported again.")
    if made is not None and made["weights_sha256"] == sha256 and export.is_dir():
        damaged = damage_of_export(export, made)
        if not damaged:
            return export, float(made["parity"])
        warn(f"{export}: {'; '.join(damaged)}. The student is exported again.")
    method, values = load_method(context.method), dict(best.record.hyper_parameters)
    workspace = context.workspace
    card = card_of_best(name, method, contenders.prepared, best.stage, values, tested, workspace, verdict)
    write_note(folder / CARD, card.as_json())
    parity = room.fill("exporting the best student", export, _write_export, context, best.stage, card)
    files = checksums_of_export(export)
    write_note(note, {"weights_sha256": sha256, "parity": parity, "stage": str(best.folder), FILES: files})
    return export, parity


def _write_export(export: Path, context: Context, stage: Stage, card: Card) -> float:
    return export_stage(context.workspace.path(stage), export, card=card).parity


def _track(
    observer: Observer,
    best: Candidate,
    report: dict[str, Any],
    teacher_dev: dict[str, float],
    records: list[TrialRecord],
    folder: Path,
    verdict: Verdict,
    findings: Findings,
    room: Room,
) -> None:
    """Log the figures and the report to the sweep's run."""
    write_json(folder / "report.json", report)
    others = ("trial", "teacher", "baseline", "baseline_trial", "untrained", "TF-IDF")
    tested = {**{who: report[who] for who in others if report.get(who)}, "student": report["student"]}
    reused = [Reuse(**kind) for kind in report["stages"]]
    tables = [
        comparison_table_markdown(tested),
        trial_table_markdown(records, observer.context.quality, teacher_dev),
        *([reuse_table_markdown(reused)] if reused else []),
        findings.markdown(),
    ]
    first = report["headline"]
    said = [*([f"{first[0].upper()}{first[1:]}."] if first else []), *report["remarks"]]
    said += [f"{line[0].upper()}{line[1:]}." for line in report["apart"]]
    text = "\n\n".join([f"# Sweep {observer.name}", *said, *tables])
    write_atomically(folder / "report.md", f"{text}\n".encode())
    observer.tracker.artifact(observer.key, folder / "report.md")
    given = {
        "teacher": teacher_dev,
        "tested": tested,
        "title": f"Sweep {observer.name}",
        "remarks": said,
        "facts": _facts_of(observer.context, report),
        "links": {"the exported student": f"../{Path(report['student']['export']).name}/README.md"},
        "shares": findings.importances,
        "findings": findings.sections(),
    }
    figures, study = folder / "figures", (folder / STUDY).read_bytes()
    room.fill("drawing the figures", figures, _draw, records, observer.context.quality, study, given)
    observer.tracker.artifact(observer.key, figures, "figures")
    observer.mark_best(records, best.record)
    observer.offer_views(varied(records)[0])
    note = sweep_description(
        records,
        observer.context.quality,
        tested,
        report["registered_as"] or "",
        teacher_dev,
        remarks=[*said, *findings.sentences()],
    )
    tags = {"stillhouse.worse_than": verdict.tag}
    observer.tracker.describe(observer.key, "report", tags=tags, note=note)
    observer.tracker.artifact(observer.key, folder / "report.json")


def _facts_of(context: Context, report: Mapping[str, Any]) -> list[str]:
    """Return the line below the title of a sweep's page: method, teacher and corpus."""
    facts = report["facts"]
    texts = f", {facts['sentences']:,} texts" if facts.get("sentences") else ""
    return [
        f"method {context.method}",
        f"teacher {Path(str(facts['teacher'])).name}",
        f"corpus {facts['corpus']}{texts}",
    ]


def _draw(
    folder: Path, records: list[TrialRecord], quality: str, study: bytes, given: Mapping[str, Any]
) -> None:
    """Draw a sweep's figures; its study may be on another node's disk."""
    with tempfile.TemporaryDirectory() as held:
        copy = Path(held) / STUDY
        copy.write_bytes(study)
        write_figures(folder, records, quality, study=copy, **given)


def _register(observer: Observer, report: dict[str, Any], verdict: Verdict) -> None:
    """Register the exported student, or say why it is not; its version may come when MLflow answers."""
    if report["registered_as"] is None:
        others = " and the ".join(verdict.worse_than)
        say(f"not registered, since it is worse than the {others}; --register-anyway registers it")
        return
    export = Path(report["student"]["export"])
    tags = {name: str(report["student"][name]) for name in ("trial", "weights_sha256")}
    version = observer.tracker.register(observer.key, export, report["registered_as"], tags=tags)
    registered = f"version {version}" if version else "as soon as MLflow answers"
    show(f"registered: models:/{report['registered_as']}@champion, {registered}")


def _report(
    tested: dict[str, dict[str, Any]],
    contenders: Contenders,
    export: Path,
    trials: list[dict[str, Any]],
    tried: Tried | str,
) -> dict[str, Any]:
    best, baseline = contenders.best, None
    if contenders.baseline and isinstance(tried, Tried):
        chosen = contenders.baseline.record
        baseline = {
            **tested["baseline"],
            "method": tried.context.method,
            "trial": chosen.number,
            "hyper_parameters": dict(chosen.hyper_parameters),
            "dev": dict(chosen.metrics),
            "searched": [_trial(record) for record in tried.records],
        }
    return {
        "student": {
            **tested["student"],
            "trial": best.record.number,
            "export": str(export),
            "hyper_parameters": dict(best.record.hyper_parameters),
            "refitted": best.record.refit,
            "dev": dict(best.record.metrics),
            "weights_sha256": read_manifest(best.folder)["weights_sha256"],
        },
        **{who: tested[who] for who in ("trial", "baseline_trial") if who in tested},
        "teacher": tested.get("teacher"),
        **({"TF-IDF": tested["TF-IDF"]} if "TF-IDF" in tested else {}),
        "baseline": baseline,
        "untrained": tested["untrained"],
        "trials": trials,
        "facts": contenders.prepared.facts,
    }


def _about(contenders: Contenders, workspace: Workspace) -> dict[str, Any]:
    """Return the data behind the figures, by split, and the identities of the models."""
    best, prepared = contenders.best, contenders.prepared
    taught_by = teacher_of(best.stage, prepared.setting)
    return {
        "dev": read_facts(best.folder).get("figures", {}),
        "test": figure_facts(prepared.test, workspace),
        "models": {"student": sha256_of(best.folder / MANIFEST), "teacher": fingerprint(taught_by)},
    }


def _measured_on(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the line below the table of the tested models, on the data behind the figures."""
    parts = ["{} {count:,} {unit} (data {data:.8})".format(start, **fact) for start, fact in facts.items()]
    return [f"Measured on the test split: {', '.join(parts)}."] if parts else []


def _choose(records: list[TrialRecord], context: Context, workspace: Workspace) -> Candidate | None:
    best = best_record(records)
    if best is None:
        return None
    stage = context.plan(dict(best.hyper_parameters))
    return Candidate(best, stage, workspace.path(stage))


def _show_trials(
    records: Sequence[TrialRecord],
    trial: Candidate | None,
    context: Context,
    teacher_dev: Mapping[str, float],
) -> dict[int, Paired]:
    """Print the trials, and which of them dev does not tell apart; return how each compares with the best."""
    show(trial_table(records, context.quality, teacher_dev))
    against = {} if trial is None else against_best(records, trial.record, context)
    for line in [] if trial is None else apart_lines(trial.record, against):
        show(line)
    return against


def _trial(record: TrialRecord, against: Paired | None = None) -> dict[str, Any]:
    compared = {"verdict": word_of(against), **dataclasses.asdict(against)} if against else None
    curve = [list(point) for point in record.curve.items()]
    return {**dataclasses.asdict(record), "curve": curve, "against_best": compared}


def _teacher_dev(
    prepared: Prepared, context: Context, folder: Path, trial: Candidate | None, room: Room
) -> dict[str, float]:
    """Measure the teacher on the dev suite, once: the reference for the share that the trials keep."""
    setting = prepared.setting
    taught_by = setting.teacher if trial is None else teacher_of(trial.stage, setting)
    # Where weights of teachers are searched, further trials may end with others.
    own = "" if taught_by == setting.teacher else f"-{fingerprint(taught_by)}"
    path = folder / f"teacher-dev{own}.json"
    kept: dict[str, float] | None = read_note(path, "The teacher is measured again.")
    if kept is not None:
        return kept
    if asks(setting):
        say("the teacher is not measured: every text of the suites would be sent to its endpoint")
        return {}
    stage = None if trial is None else trial.stage
    figures = room.call("measuring the teacher on the dev split", _measure_teacher, context, taught_by, stage)
    if figures:
        write_note(path, figures)
    return figures


def _measure_teacher(context: Context, taught_by: Teacher, stage: Stage | None) -> dict[str, float]:
    """Measure the teacher on the dev suite; of rankings it is the one whose scores a stage reads."""
    setting, workspace = context.setting, context.workspace
    if setting.get(Claims) is None:
        encoder, _ = teacher(taught_by, setting.teacher_length, context.where.device)
    elif stage is not None:
        encoder = scoring_teacher(stage, workspace, usable_device(context.where.device))
    if (setting.get(Claims) is not None and stage is None) or encoder is None:
        return {}
    return figures_of(setting.dev, encoder, workspace)[0]
