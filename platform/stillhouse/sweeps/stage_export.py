"""Export of a trained stage: the folder, its parity check and its model card."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stillhouse.core.artifacts import Workspace, read_json, read_manifest, sha256_of, write_atomically
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import Spec
from stillhouse.core.integrity import FILES, write_checksums
from stillhouse.core.machine import describe_machine
from stillhouse.core.notes import EXPORT_NOTE, SWEEPS, sound_note
from stillhouse.core.types import Encoder, Exportable, FloatArray, MeasuredSize, StudentHolder
from stillhouse.corpora.pydocs.licences import package_licences
from stillhouse.evaluation.serving_cost import speed
from stillhouse.evaluation.suites import figure_facts
from stillhouse.evaluation.vector_geometry import GEOMETRY
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.preparation import Prepared
from stillhouse.methods import Method
from stillhouse.reports.model_card import Card, Deployed, model_card
from stillhouse.students.export.asymmetric import QUERY_ONNX, export_asymmetric, is_router
from stillhouse.students.export.compact import is_compact
from stillhouse.students.export.folder_modules import COMPACT, ONNX, ONNX_INT8, ROUTED, STOCK, TOWERS
from stillhouse.students.export.formats import FORMATS, why_not, write_format
from stillhouse.students.export.onnx import GRAPHS, OnnxEncoder, is_onnx_export
from stillhouse.students.export.sentence_transformers import check_parity, is_stock, replacing_folder
from stillhouse.students.export.tower_folders import DESCRIPTION, export_towers, is_towers
from stillhouse.students.sizes import sizes
from stillhouse.students.static import StaticStudent
from stillhouse.students.towers import SeparateTowers
from stillhouse.sweeps.contenders import teacher_of
from stillhouse.sweeps.export_check import compared_texts, dev_change
from stillhouse.sweeps.results import Exported
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.prompts import prompts_of
from stillhouse.teachers.weights import hub_id, licence_of
from stillhouse.training.averaged import averaged
from stillhouse.training.facts import read_facts
from stillhouse.training.models import delivered, encoder_in, find_model
from stillhouse.training.rebuild import spec_of
from stillhouse.training.scorer import StudentScorer
from stillhouse.training.teacher_space import DRIFTS, space_of
from stillhouse.training.watch import versions
from stillhouse.values.data import Teacher, weighted_names
from stillhouse.values.stage import Stage

CARD = "card.json"
"""The file of a sweep's folder that keeps the card of its best student."""

_EARLIER: dict[str, Callable[[Path], bool]] = {
    STOCK: is_stock,
    ONNX: is_onnx_export,
    ONNX_INT8: is_onnx_export,
    COMPACT: is_compact,
    TOWERS: is_towers,
    ROUTED: is_router,
}
"""Whether a folder is an earlier export of a form, which a new one replaces."""


def export_stage(
    folder: Path,
    target: Path,
    *,
    form: str = FORMATS[0],
    card: Card | None = None,
    soup: Sequence[Path] = (),
) -> Deployed:
    """Export a finished stage's student, check its vectors in the form's own runtime, and write its card.

    The folder appears complete and checked: one that fails leaves an earlier export as it was.

    Args:
        folder: Folder of the stage.
        target: Folder to write.
        form: One of `FORMATS`, or ``asymmetric``.
        card: What the model card says of the student; None takes what the sweep that delivered it knows, or
            else the stage.
        soup: Folders of further stages; the export has the mean of the weights (`training.averaged`).

    Raises:
        BadInput: If the stage is unfinished, its student does not support the form, the folder is in use, the
            students of the soup cannot be averaged, or the export gives other vectors.
    """
    check_form(form)
    encoder = encoder_in(folder)
    texts = compared_texts(folder, encoder.max_length)
    encoder = _soup_of([folder, *soup], texts) if soup else encoder
    gives_vectors = isinstance(encoder, Encoder)
    if not gives_vectors:
        raise BadInput(
            f"only a student that encodes single texts can be exported, but {folder} holds a model that "
            "reads pairs jointly, which is a teacher. Export the retrieval_kd stage."
        )
    if form != ROUTED and isinstance(encoder.student, Exportable) and encoder.student.export_sides:
        require(form == STOCK, f"two towers are written as {STOCK} folders", format=form)
        form = TOWERS
    known = card or (_soup_card([folder, *soup]) if soup else card_of(folder))
    with replacing_folder(target, earlier=_EARLIER[form]) as temporary:
        parity = _written(form, [folder, *soup], encoder, temporary, texts)
        export = describe_export(encoder, temporary, form, parity)
        # Eight bits are the only form that may change a figure.
        change = dev_change(folder, encoder, OnnxEncoder(temporary)) if form == ONNX_INT8 else None
        export = replace(export, path=target.resolve().name, dev=change)
        write_atomically(temporary / "README.md", model_card(known, export).encode())
        write_checksums(temporary)
    return export


def _written(form: str, folders: Sequence[Path], encoder: Any, target: Path, texts: Sequence[str]) -> float:
    """Write a form of the student into a folder, and return its lowest cosine to the trained student."""
    if form == ROUTED:
        return _export_asymmetric(folders, encoder, target, texts)
    if form != TOWERS:
        return write_format(form, encoder, target, texts)
    export_towers(encoder.student, encoder.objective.joiner, encoder.max_length, target)
    return check_towers(encoder, target, texts)


def exported(folder: Path, target: Path, *, form: str, soup: Sequence[Path] = ()) -> Exported:
    """Export a finished stage's student as `export_stage` does, and weigh what was written."""
    export = export_stage(folder, target, form=form, soup=soup)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    return Exported(target, form, export.parity, size / 1e6, export.dev)


def check_form(form: str, others: Sequence[str] = ()) -> None:
    """Refuse a form that no student has and the caller does not write, before anything is loaded.

    Raises:
        BadInput: It is none of them.
    """
    known = (*FORMATS, ROUTED, *others)
    require(form in known, f"format in {known}", format=form)


def _soup_of(folders: Sequence[Path], texts: Sequence[str]) -> Any:
    soup = averaged(folders, texts)
    say(
        f"  the mean of {len(folders)} students: its vectors have a mean cosine of {soup.to_students:.4f} or "
        f"more with theirs, which have {soup.among_students:.4f} or more with each other"
    )
    return soup.encoder


def _export_asymmetric(folders: Sequence[Path], encoder: Any, target: Path, texts: Sequence[str]) -> float:
    """Write the student beside the teacher in whose space it lives; see `students.export.asymmetric`."""
    space, *others = (space_of(folder) for folder in folders)
    for folder, other in zip(folders[1:], others, strict=True):
        require(
            other.teacher == space.teacher,
            "students that are averaged for an asymmetric export have one teacher",
            **{folders[0].name: space.teacher.name, folder.name: other.teacher.name},
        )
    inner = _encoder_in(encoder)
    reason = why_not(inner.student, FORMATS[0])
    if reason:
        raise BadInput(f"an asymmetric export needs a student of stock modules, but: {reason}")
    if space.drifts:
        say(DRIFTS)
    documents = load_sentence_transformer(space.teacher)
    return export_asymmetric(inner, documents, prompts_of(space.teacher), target, texts)


def _encoder_in(encoder: Any) -> Any:
    return encoder.encoder if isinstance(encoder, StudentScorer) else encoder


class _Queries:
    """The queries' side of an asymmetric export, as an encoder whose speed is measured."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def encode(self, texts: Sequence[str]) -> FloatArray:
        vectors: FloatArray = self.model.encode_query(list(texts))
        return vectors


def describe_export(encoder: Any, target: Path, form: str, parity: float) -> Deployed:
    """Describe the export of a trained student, and measure its size and its speed in its own runtime."""
    source = find_model(str(target), Workspace(target.parent))
    model: Any = source.open()
    module: Any = model.student if isinstance(model, StudentHolder) else model
    measured = model.sizes() if isinstance(model, MeasuredSize) else sizes(module)
    timed = _Queries(model) if form == ROUTED else model
    measured |= {"megabytes_on_disk": source.megabytes() or 0.0, **speed(timed, runs=1, calls=20)}
    inner = _encoder_in(encoder)
    return Deployed(
        form=form,
        path=target.name,
        dim=int(encoder.dim),
        max_length=encoder.max_length,
        parity=parity,
        sizes={name: value for name, value in measured.items() if name != "threads"},
        machine=describe_machine(int(measured["threads"])),
        stock=form != COMPACT and (form == TOWERS or (target / "modules.json").is_file()),
        pad_id=inner.tokenizer.pad_id,
        side=inner.tokenizer.side,
        joiner=read_json(target / DESCRIPTION)["joiner"] if form == TOWERS else "",
        prompts=str(inner.prompts) if inner.prompts else "",
        graph=form in GRAPHS or (target / QUERY_ONNX).is_dir(),
    )


def formats_of(folder: Path) -> dict[str, str]:
    """Map each format to the reason why a finished stage's student does not support it; empty if it does."""
    student = encoder_in(folder).student
    return {**{form: why_not(student, form) for form in FORMATS}, ROUTED: _why_not_routed(folder, student)}


def _why_not_routed(folder: Path, student: Any) -> str:
    try:
        space_of(folder)
    except BadInput as error:
        return str(error).rstrip(".")
    return why_not(student, FORMATS[0])


def check_towers(scorer: StudentScorer, target: Path, texts: Sequence[str]) -> float:
    """Compare both exported folders, loaded by stock sentence-transformers, with the trained towers.

    With a bilinear joiner the claims' folder gives vectors whose inner product with a document is the score.
    The lowest cosine of all vectors is returned.

    Raises:
        BadInput: If a vector differs.
    """
    joiner = scorer.objective.joiner

    class Claims:
        def encode(self, texts: Sequence[str]) -> FloatArray:
            vectors = scorer.encode_column("claim", texts)
            if joiner.kind != "bilinear":
                return vectors
            with torch.no_grad():
                return np.asarray(joiner.search_vector(torch.from_numpy(vectors)).numpy())

    sides: dict[str, Encoder] = {"claims": Claims(), "documents": scorer}
    return min(check_parity(encoder, target / side, texts) for side, encoder in sides.items())


def card_of_best(
    name: str,
    method: Method,
    prepared: Prepared,
    stage: Stage,
    hyper_parameters: dict[str, Any],
    tested: dict[str, dict[str, Any]],
    workspace: Workspace,
    verdict: Sequence[str] = (),
) -> Card:
    """Gather what is known of a sweep's best student.

    Each tested model has its ``metrics`` on the test split, its ``cost`` and the ``machine`` of its timings.
    The verdict says how sure it is that the student is better than the others.
    """
    facts, ranking = prepared.facts, prepared.setting.get(Claims)
    taught_by = teacher_of(stage, prepared.setting)
    teacher = taught_by if ranking is None else ranking.cross_encoder
    named = [str(facts["teacher"])]
    title = _shown_name(named[0])
    if teacher is not None and teacher.weights:
        named = [member.name for member in teacher.members]
        title = weighted_names([*map(_shown_name, named)], teacher.weights)
    stages = " then ".join(part.label for part in stage.chain())
    corpus = str(facts["corpus"])
    return Card(
        name=name,
        teacher=title,
        student=_in_words(stage.student),
        method=f"{method.__name__.rpartition('.')[2].upper()} ({stages})",
        paper=method.PAPER,
        corpus=corpus,
        rows=int(facts["sentences"]),
        pairs=int(facts.get("pairs") or 0),
        sources=package_licences() if corpus == "pydocs" else {corpus: ""},
        hyper_parameters=hyper_parameters,
        metrics={who: _without_geometry(part["metrics"]) for who, part in tested.items()},
        facts=figure_facts(prepared.test, workspace),
        sizes={who: part["cost"] for who, part in tested.items() if part["cost"]},
        machine=tested["student"].get("machine", {}),
        reproducibility={
            "store": facts.get("store", ""),
            "stage": stage.fingerprint,
            "seed": stage.seed,
            **{f"version of {package}": version for package, version in versions().items()},
        },
        licence="" if teacher is None else _licences_of(teacher),
        base_models=_base_models(stage.student, *named),
        language=str(facts.get("languages", "")),
        verdict=verdict,
    )


def _licences_of(teacher: Teacher) -> str:
    """The licences of the teachers, each once; empty if none is known."""
    found = [licence_of(each.checkpoint) if each.checkpoint else "" for each in teacher.members]
    return " and ".join(dict.fromkeys(each or "unknown" for each in found)) if any(found) else ""


def checksums_of_export(folder: Path) -> dict[str, str]:
    """Hash the files of an exported folder by their relative names, except its card, which may be edited."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "README.md")
    return {str(path.relative_to(folder)): sha256_of(path) for path in files}


def damage_of_export(folder: Path, note: Mapping[str, Any]) -> list[str]:
    """Compare an exported folder with the checksums that the sweep's note states; one phrase per problem."""
    problems = []
    for name, expected in note.get(FILES, {}).items():
        if not (folder / name).is_file():
            problems.append(f"{name} is missing")
        elif sha256_of(folder / name) != expected:
            problems.append(f"{name} was altered")
    return problems


def card_of(stage: Path) -> Card:
    """Gather what is known of a stage's student: from the sweep that delivered it, else from the stage."""
    workspace = Workspace(stage.parent.parent)
    for kept in sorted((workspace.root / SWEEPS).glob(f"*/{CARD}")):
        known = (kept.parent / EXPORT_NOTE).is_file()
        if known and delivered(kept.parent).resolve() == stage.resolve():
            card = sound_note(kept)
            return _stage_card(stage) if card is None else Card(**card)
    return _stage_card(stage)


def _stage_card(folder: Path) -> Card:
    manifest, facts = read_manifest(folder), read_facts(folder)
    student, teachers = spec_of(manifest["student"]), facts.get("teachers", [])
    texts: dict[str, int] = facts.get("texts", {})
    base = student.kwargs.get("base")
    return Card(
        name=folder.name,
        teacher=_joined_names(facts),
        student=_in_words(student),
        method=f"{manifest['objective']['name']} (stage {manifest['label']})",
        corpus=", ".join(texts),
        rows=sum(texts.values()),
        pairs=facts.get("examples", 0) if len(manifest["columns"]) > 1 else 0,
        sources=dict.fromkeys(texts, ""),
        hyper_parameters=_settings(manifest),
        metrics={"student": _without_geometry(manifest["metrics"])},
        facts=facts.get("figures", {}),
        reproducibility={
            "stage": manifest["fingerprint"],
            "steps": manifest["steps"],
            "examples": manifest["examples"],
            "weights_sha256": manifest["weights_sha256"],
            **{f"version of {package}": version for package, version in manifest["versions"].items()},
        },
        licence=licence_of(base) if base else "",
        base_models=_base_models(student, *teachers),
    )


def _soup_card(folders: Sequence[Path]) -> Card:
    """Describe the mean of several students; figures of each of them are none of its own."""
    first, *others = (_stage_card(folder) for folder in folders)
    cards = [first, *others]
    shared = {
        name: value
        for name, value in first.hyper_parameters.items()
        if all(other.hyper_parameters.get(name) == value for other in others)
    }
    parts = {f"stage {number} of the mean": folder.name for number, folder in enumerate(folders, 1)}
    versions_of = {k: v for k, v in first.reproducibility.items() if k.startswith("version of")}
    return replace(
        first,
        name=" + ".join(card.name for card in cards),
        method=f"{first.method}, the mean of the weights of {len(cards)} trainings",
        hyper_parameters=shared,
        metrics={},
        reproducibility={**parts, **versions_of},
    )


def _joined_names(facts: dict[str, Any]) -> str:
    """The names of a stage's teachers; of those that taught as one, with their weights."""
    together: list[tuple[str, float]] = facts.get("teacher_weights", [])
    joined = [name for name, _ in together]
    names = [_shown_name(name) for name in facts.get("teachers", []) if name not in joined]
    if together:
        names.append(weighted_names([*map(_shown_name, joined)], [weight for _, weight in together]))
    return ", ".join(names)


def _settings(manifest: dict[str, Any]) -> dict[str, object]:
    """The settings of a stage: its optimiser, its budget, and the numbers and names of its objective."""
    plan = manifest["plan"]["with"]
    kept = {name: plan[name] for name in ("batch_size", "budget", "seed", "max_length")}
    optimizer = {f"optimizer.{name}": _number(value) for name, value in plan["optimizer"]["with"].items()}
    return kept | optimizer | dict(_arguments(manifest["objective"]["arguments"]))


def _number(value: Any) -> object:
    """A plan's value as it was given: floats are stored as text."""
    return float(value["float"]) if isinstance(value, dict) and set(value) == {"float"} else value


def _arguments(arguments: dict[str, Any], start: str = "") -> Iterator[tuple[str, object]]:
    """Iterate over plain arguments by path, those of the losses among them."""
    for name, value in arguments.items():
        if isinstance(value, dict) and set(value) == {"spec"}:
            yield from _arguments(value["spec"]["arguments"], f"{start}{name}.")
        elif value is None or isinstance(value, str | int | float):
            yield f"{start}{name}", value


def _shown_name(name: str) -> str:
    """A model's name without the folders in front of a local one."""
    return name if not name or hub_id(name) else Path(name).name


def _without_geometry(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not name.endswith(GEOMETRY)}


def _base_models(student: Spec[Any], *teachers: str) -> tuple[str, ...]:
    """Ids on the hub of the model that a student started from and of its teachers."""
    base = student.kwargs.get("base")
    names = [base.name if base else "", *teachers]
    return tuple(dict.fromkeys(found for name in names if (found := hub_id(name))))


def _in_words(student: Spec[Any]) -> str:
    """Describe a student's architecture and origin."""
    kwargs = student.kwargs
    if student.target is SeparateTowers:
        return _in_words(kwargs["tower"]).replace("two equal towers", "two separate towers, each a")
    if "words" in kwargs and "hidden" not in kwargs:
        units = kwargs.get("filters", kwargs.get("units"))
        return f"two equal towers, {student.target.__name__} with {units} units, over word vectors"
    if "words" in kwargs:
        return f"a bidirectional LSTM of {kwargs['hidden']} units per direction over word vectors"
    base = _shown_name(kwargs["base"].name) or "the base model"
    norm = "vectors of length 1" if kwargs.get("normalize", True) else "not normalised"
    if student.target is StaticStudent:
        return f"a table of token vectors, from {base}, and their mean, {norm}"
    head = f"{kwargs.get('pooling', 'mean')} pooling, {norm}"
    if "unit" in kwargs:
        narrow = f", word vectors of {kwargs['bottleneck']} dimensions" if kwargs.get("bottleneck") else ""
        which = _layers(kwargs["layers"]) if kwargs.get("layers") else f"the first {kwargs['unit']} layers"
        again = "" if kwargs.get("repeats") == 1 else ", applied repeatedly"
        return f"{which} of {base}{again}{narrow}; {head}"
    if kwargs.get("layers"):
        return f"{_layers(kwargs['layers'])} of {base}; {head}"
    return f"{base}; {head}"


def _layers(kept: Sequence[int]) -> str:
    return f"layers {', '.join(map(str, kept))}"
