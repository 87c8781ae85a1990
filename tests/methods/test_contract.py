"""Guarantees of every method: it builds, ids are stable, hyper-parameters matter, its space loads."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import torch
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.core.types import Batch, Encoding, Tokens
from stillhouse.corpora.word_vector_files import write_vocabulary
from stillhouse.experiments.budget import Budget
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.parallel import Parallel
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.methods import check_needs, hyper_parameters, known_methods, load_method, presets
from stillhouse.search.schedulers import points_of, unmet, with_points
from stillhouse.search.space import check, load_space
from stillhouse.students.transformer import TransformerStudent
from stillhouse.sweeps.checks import default_space
from stillhouse.training.module import build_module
from stillhouse.values.data import AllRows, Examples, Given, Mined, Model, RankingTask, Store, TextTable
from stillhouse.values.kinds import needed
from stillhouse.values.setting import PairData, ParallelData, SentenceData, Setting, TaskData
from stillhouse.values.stage import DevSuite, Stage

METHODS = known_methods()
OTHER: dict[str, Any] = {
    "kernel": "imq",
    "similarity": "cosine",
    "distil_input_layer": "penultimate",
    "finetune_input_layer": "penultimate",
    "bandwidth": "median",
    "estimator": "biased",
    "kernel_forms": "code",
    "output": "state",
    "finetune_texts": "all",
    "optimizer": "adam",
    "decay": "constant",
    "match": "last",
    "contrast": "same",
    "dimensions": "mean",
    "towers": "separate",
    "softened": "both",
    "recipe": "single",
    "bottleneck_start": "svd",
    "unit": 2,
    "repeats": 2,
    "pooling": "mean",
    "layers": (0,),
    "bank_size": 4096,
    "projection": 8,
    "encoder": "cnn",
    "joiner": "features",
    "soft_loss": "ce",
    "compared": "scores",
    "gold": "mean",
    "teacher_model": "transformer",
    "augment": "ts",
    "fits": "cosines",
    "teacher_budget": 512,
    "text": "unlabelled",
    "loss": "contrastive_kl",
    "teacher_loss": "bce",
    "candidates": 2,
    "teacher_layers": (0,),
}


SMALL: dict[str, dict[str, Any]] = {
    "ckd": {"bank_size": 16, "batch_size": 8},
    "crd": {"bank_size": 16, "batch_size": 8},
    "hpd": {"dim": 8},
    "crosslingual": {"unit": 2, "bottleneck": 8},
    "sra": {"hidden": 8},
    "retrieval_kd": {"units": 4, "teacher_units": 4},
    "sra_kd": {"hidden": 8, "kd_weight": 0.5},
    "bilstm_kd": {"hidden": 8},
}
"""Hyper-parameters that fit the small models and batches of these tests."""

MATTERS: dict[tuple[str, str], dict[str, Any]] = {
    ("crosslingual", "temperature"): {"contrast": "ce"},
    ("metakd", "head_epochs"): {"text": "unlabelled"},
    **{
        ("rerank_kd", name): {"loss": "contrastive_kl"}
        for name in ("temperature", "weight", "contrast_temperature", "share_negatives")
    },
    **{(name, "optimizer"): {"weight_decay": 0.01} for name in METHODS},
}
"""Values under which a hyper-parameter has an effect."""


def setting(path: str = "", words: str = "") -> Setting:
    teacher = Model("weights", path=path)
    texts, queries, passages = TextTable("sentences"), TextTable("queries"), TextTable("passages")
    pairs = Examples({"query": queries, "passage": passages}, AllRows())
    stores = {"query": Store(queries, teacher), "passage": Store(passages, teacher)}
    mined = Mined(pairs, stores["query"], stores["passage"], negatives=2)
    rows = Examples({"text": texts, "other": queries}, Given("rows"), values=("label",))
    return Setting(
        teacher=teacher,
        student=spec(TransformerStudent, base=teacher, layers=(0, 1)),
        dev=DevSuite((), select="figure"),
        data={
            Sentences.key: SentenceData(Store(texts, teacher), rows=1000),
            Pairs.key: PairData(
                Examples({"query": queries, "passage": passages, "negatives": passages}, mined),
                {**stores, "negatives": stores["passage"]},
            ),
            Parallel.key: ParallelData(
                Examples({"source": texts, "target": queries}, AllRows()), Store(texts, teacher)
            ),
            WordVectors.key: Model("vectors", path=words),
            LabelledTask.key: TaskData(
                rows,
                classes=3,
                dev=DevSuite((), select="accuracy"),
                augmented=dataclasses.replace(rows, origin=Given("more rows")),
                untuned=DevSuite((), select="cosine"),
            ),
            Claims.key: RankingTask(
                Examples({"claim": texts, "documents": passages}, Given("claims"), values=("gold",)),
                DevSuite((), select="dcg"),
                rows=1000,
            ),
        },
        distil_budget=4096,
        teacher_dim=24,
        finetune_budget=1024,
    )


class Watched(dict[str, Any]):
    """A mapping of data that records which kinds are read."""

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


@each_row("name", METHODS)
def test_it_reads_the_kinds_of_data_that_it_declares_and_no_others(name: str) -> None:
    method, whole = load_method(name), setting()
    data = Watched(whole.data)
    method.plan(method.HyperParameters(), dataclasses.replace(whole, data=data))
    assert data.read <= {need.kind.key for need in needed(method.needs)}
    required = {need.kind.key: whole.data[need.kind.key] for need in needed(method.needs) if need.required}
    method.plan(hyper_parameters(method, SMALL.get(name, {})), dataclasses.replace(whole, data=required))


def changed(method: Any, name: str) -> Any:
    value = getattr(method.HyperParameters(), name)
    if name == "optimizer" and value == "adam":
        return "adamw"
    if name == "decay" and value == "constant":
        return "linear"
    if name in OTHER:
        return OTHER[name]
    return (
        not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else value * 0.5 + 0.03
    )


@each_row(("name", "preset"), [(name, preset) for name in METHODS for preset in load_method(name).PRESETS])
def test_its_presets_build(name: str, preset: str) -> None:
    method = load_method(name)
    assert next(iter(method.PRESETS)) == "paper" and method.PRESETS["paper"] == method.HyperParameters()
    stages = list(method.plan(hyper_parameters(method, {}, preset), setting()).chain())
    assert method.PAPER and method.PRUNABLE_FROM in [stage.label for stage in stages]
    assert all(stage.dev is not None for stage in stages)


@each_row("name", METHODS)
def test_its_presets_name_the_source_of_each_value(name: str) -> None:
    method = load_method(name)
    all_fields = {field.name for field in dataclasses.fields(method.HyperParameters)}
    sources = getattr(method, "SOURCES", {})
    assert set(sources) <= all_fields
    assert {len(each) for each in sources.values()} <= {1 + ("repo" in method.PRESETS)}
    values = presets(method)
    assert {value.name for value in values} == all_fields
    assert all(value.code_source not in ("", "ours") for value in values if value.differs)


@each_row("name", [name for name in METHODS if hasattr(load_method(name).HyperParameters, "optimizer")])
def test_adamw_has_the_weight_decay_that_sets_it_apart(name: str) -> None:
    method = load_method(name)
    for hp in method.PRESETS.values():
        assert hp.optimizer == "adam" or hp.weight_decay > 0
    with pytest.raises(BadInput, match="weight_decay > 0 with optimizer = adamw"):
        method.plan(method.HyperParameters(optimizer="adamw", weight_decay=0.0), setting())


@each_row(
    ("name", "field"),
    [
        (name, field.name)
        for name in METHODS
        for field in dataclasses.fields(load_method(name).HyperParameters)
    ],
)
def test_every_hyper_parameter_changes_some_id(name: str, field: str) -> None:
    method = load_method(name)
    read = dataclasses.replace(method.HyperParameters(), **MATTERS.get((name, field), {}))
    other = dataclasses.replace(read, **{field: changed(method, field)})
    assert method.plan(other, setting()).fingerprint != method.plan(read, setting()).fingerprint


def test_ids_are_stable_across_processes(tmp_path: Path) -> None:
    here = Path(__file__)
    places = [str(here.parent), str(here.parents[1]), str(here.parents[2] / "platform")]
    program = (
        f"import sys; sys.path[:0] = {places}\n"
        "from test_contract import METHODS, load_method, setting\n"
        "for name in METHODS:\n"
        "    method = load_method(name); print(method.plan(method.HyperParameters(), setting()).fingerprint)"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    methods = [load_method(name) for name in METHODS]
    assert other.stdout.split() == [m.plan(m.HyperParameters(), setting()).fingerprint for m in methods]


RUNGS = {"asha": (1 / 4,)}
"""Those of docs/operations.md."""


@each_row("name", METHODS)
@each_row(("kind", "shares"), RUNGS.items())
def test_every_rung_gets_an_evaluation(name: str, kind: str, shares: tuple[float, ...]) -> None:
    """At the method's default budgets and the smallest published batches, with no more stages than before."""
    method = load_method(name)
    fields = [field.name for field in dataclasses.fields(method.HyperParameters)]
    small = {field: 64 for field in fields if field.endswith("batch_size")}
    budget = Budget().settled(**getattr(method, "BUDGET", {}))
    whole = dataclasses.replace(setting(), distil_budget=budget.distil, finetune_budget=budget.finetune)
    plain = method.plan(hyper_parameters(method, small, "paper"), whole)
    plan = with_points(plain, points_of(kind), method.PRUNABLE_FROM)
    stages, labels = list(plan.chain()), [stage.label for stage in plain.chain()]
    assert [stage.label for stage in stages] == labels
    first = labels.index(method.PRUNABLE_FROM)
    assert all(not stage.evaluate_at for stage in stages[:first])
    before = sum(stage.examples_seen for stage in stages[:first])
    seen, judged = before, []
    for stage in stages[first:]:
        judged += [seen - before + point for point in stage.evaluate_at]
        seen += stage.examples_seen
    examples = sum(stage.budget for stage in stages[first:])
    batch = max(stage.batch_size for stage in stages)
    assert judged == pytest.approx([share * examples for share in shares], abs=1 + batch)
    assert unmet(plan, len(shares)) == 0


def test_a_rung_on_the_last_step_is_counted_as_not_met() -> None:
    mse, short = load_method("mse"), dataclasses.replace(setting(), distil_budget=128, finetune_budget=0)
    plan = mse.plan(hyper_parameters(mse, {"batch_size": 64}, "paper"), short)
    assert unmet(with_points(plan, (1 / 4, 3 / 4), mse.PRUNABLE_FROM), 2) == 1


@each_row("name", METHODS)
@each_row("section", ["space", "continuous"])
def test_its_search_space_names_its_hyper_parameters(name: str, section: str) -> None:
    space = load_space(default_space(name), space=section)
    checked = check(space, load_method(name).HyperParameters)
    assert checked.method == name and checked.domains


def test_the_grid_has_its_published_size() -> None:
    assert load_space(default_space("ibkd")).grid_size() == 1_166_400


@each_row("name", METHODS)
def test_one_step_gives_finite_terms_and_a_gradient_everywhere(
    name: str, tiny_model: Path, tmp_path: Path
) -> None:
    method = load_method(name)
    write_vocabulary((f"word{row}" for row in range(100)), tmp_path, dim=6)
    given = setting(str(tiny_model), str(tmp_path))
    _one_step(method.plan(hyper_parameters(method, SMALL.get(name, {})), given))


@each_row(
    "values",
    [
        {"encoder": "cnn", "joiner": "features", "soft_loss": "ce"},
        {"pooling": "last", "joiner": "concat", "train_words": True},
        {"teacher_model": "transformer", "compared": "scores", "alpha": 1.0},
        {"towers": "separate", "softened": "both", "scale": True},
    ],
)
def test_every_part_of_retrieval_kd_learns(values: dict[str, Any], tiny_model: Path, tmp_path: Path) -> None:
    method = load_method("retrieval_kd")
    write_vocabulary((f"word{row}" for row in range(100)), tmp_path, dim=6)
    given = setting(str(tiny_model), str(tmp_path))
    _one_step(method.plan(hyper_parameters(method, {**SMALL["retrieval_kd"], **values}), given))


def _one_step(last: Stage) -> None:
    for stage in last.chain():
        module = build_module(stage, teacher_dim=24, first_weights=None)
        terms = module(_batch(stage))
        loss = sum(terms.values())
        assert isinstance(loss, torch.Tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        assert all(torch.isfinite(term) for term in terms.values())
        missing = [n for n, p in module.named_parameters() if p.requires_grad and p.grad is None]
        assert not missing


def _first_loss(stage: Stage) -> float:
    terms = build_module(stage, teacher_dim=24, first_weights=None).eval()(_batch(stage))
    return float(terms["nce"].detach())


@each_row("name", METHODS)
def test_shared_settings_reach_every_stage(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Setting, "common", partialmethod(_accumulating, Setting.common))
    method = load_method(name)
    stages = list(method.plan(method.HyperParameters(), setting()).chain())
    assert {(stage.accumulate, stage.patience, stage.average) for stage in stages} == {(2, 7, 0.9)}


def _accumulating(
    self: Setting, common: Callable[..., dict[str, Any]], *, finetunes: bool = False
) -> dict[str, Any]:
    return common(self, finetunes=finetunes) | {"accumulate": 2, "patience": 7, "average": 0.9}


def test_epochs_replace_the_budget() -> None:
    method = load_method("ibkd")
    counts = {setting()[Sentences].examples.fingerprint: 1000, setting()[Pairs].examples.fingerprint: 200}
    counted = dataclasses.replace(setting(), rows=counts, finetune_epochs=2.5)
    plan = method.plan(method.HyperParameters(distil_epochs=3), counted)
    assert [stage.budget for stage in plan.chain()] == [3000, 500]
    plan = method.plan(method.HyperParameters(finetune_epochs=5), dataclasses.replace(counted, epochs=0.5))
    assert [stage.budget for stage in plan.chain()] == [500, 1000]


def test_logits_with_zero_weight_need_no_teacher() -> None:
    values = {"hidden": 8, "kd_weight": 0.0}
    plain, approximated = (
        load_method(name).plan(hyper_parameters(load_method(name), values), setting())
        for name in ("bilstm_kd", "sra_kd")
    )
    assert [stage.label for stage in plain.chain()] == ["kd"]
    sra = load_method("sra").plan(hyper_parameters(load_method("sra"), {"hidden": 8}), setting())
    assert approximated.fingerprint == sra.fingerprint
    with pytest.raises(BadInput, match="kd_weight > 0 with augmented rows"):
        hyper_parameters(load_method("sra_kd"), {**values, "augment": "ts"})


def test_a_projection_needs_the_fine_tuning_stage() -> None:
    method: Any = load_method("ibkd")
    bare = dataclasses.replace(setting().having(Pairs, None), finetune_budget=0)
    with pytest.raises(BadInput, match="projection = 0 without a fine-tuning stage"):
        method.check_given({"projection": 16}, bare)
    method.check_given({"projection": 16}, setting())
    method.check_given({"projection": 0}, bare)
    assert method.plan(method.PRESETS["repo"], bare).student.kwargs.get("projection") is None
    assert method.plan(method.PRESETS["repo"], setting()).student.kwargs["projection"] == 128


def test_w_is_dropped_or_the_last_layer_of_the_student(tiny_model: Path) -> None:
    method: Any = load_method("ibkd")
    given = setting(str(tiny_model))
    dropped = method.plan(hyper_parameters(method, {"projection": 0}, "repo"), given)
    kept = method.plan(hyper_parameters(method, {"keep_projection": True}, "repo"), given)
    _one_step(kept)
    first, last = (next(plan.chain()) for plan in (dropped, kept))
    assert first.student.kwargs.get("projection") is None and last.student.kwargs["projection"] == 24
    assert kept.student == last.student
    losses = [_first_loss(stage) for stage in (first, last)]
    assert losses[0] == pytest.approx(losses[1], rel=5e-3)  # the student's product may be bfloat16
    with pytest.raises(BadInput, match="projection = 0 if W is kept"):
        method.check_given({"projection": 8, "keep_projection": True}, given)


KEEPERS = [name for name in METHODS if hasattr(load_method(name).HyperParameters, "keep_projection")]


@each_row("width", [24, 32])
@each_row("name", [*KEEPERS, "leaf"])
def test_a_kept_map_is_the_last_layer_of_the_student_and_of_nothing_else(
    name: str, width: int, tiny_model: Path
) -> None:
    """Also where the dimensions agree; it then starts as the identity, so that the vectors are the same."""
    assert {"mse", "ckd", "ibkd"} <= set(KEEPERS)
    method, given = load_method(name), dataclasses.replace(setting(str(tiny_model)), teacher_dim=width)
    values = {**SMALL.get(name, {}), **({"keep_projection": True} if name in KEEPERS else {})}
    last = method.plan(hyper_parameters(method, values), given)
    for stage in last.chain():
        assert stage.student.kwargs["projection"] == width
        module = build_module(stage, teacher_dim=width, first_weights=None).eval()
        assert module.student.dim == width
        assert [key for key, _ in module.named_parameters() if "projection" in key] == [
            "student.projection.weight"
        ]
        plain = given.student.replace(projection=None).build().eval()
        batch = _batch(stage)
        column = next(iter(batch.tokens))
        before, after = (model(batch.tokens[column]).embedding_BD for model in (plain, module.student))
        assert (before.shape == after.shape) == (width == 32)
        # The student's product may be bfloat16.
        assert width != 32 or torch.allclose(before, after, atol=1e-2)


def test_a_teacher_of_unit_vectors_has_students_of_unit_vectors(tmp_path: Path) -> None:
    method = load_method("crosslingual")
    plain = method.plan(method.HyperParameters(), setting())
    modules = [
        {"type": f"sentence_transformers.models.{name}", "path": ""} for name in ("Transformer", "Normalize")
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    given = dataclasses.replace(setting(), teacher=Model("weights", path=str(tmp_path)))
    unit = method.plan(method.HyperParameters(), given)
    lengths = {
        name: [stage.student.kwargs.get("normalize", False) for stage in plan.chain()]
        for name, plan in (("plain", plain), ("unit", unit))
    }
    assert [stage.label for stage in unit.chain()] == ["assistant", "align", "student", "contrast"]
    assert lengths == {"plain": [False] * 4, "unit": [True, False, True, True]}


def test_an_unknown_method_and_a_misspelt_hyper_parameter_get_suggestions() -> None:
    with pytest.raises(BadInput, match="Did you mean ibkd"):
        load_method("ibdk")
    with pytest.raises(BadInput, match="Did you mean beta1"):
        hyper_parameters(load_method("ibkd"), {"beta_1": 1.0})
    with pytest.raises(BadInput, match="unknown preset"):
        hyper_parameters(load_method("ibkd"), {}, "papre")


def test_a_method_that_needs_labelled_text_names_its_columns() -> None:
    bare = Experiment(data=(Sentences("a.txt"),))
    labelled = Experiment(data=(Sentences("a.txt"), Pairs("pairs.jsonl")))
    words = Experiment(data=(Sentences("a.txt"), WordVectors()))
    check_needs(load_method("mse"), bare)
    check_needs(load_method("simcse"), labelled)
    check_needs(load_method("simcse"), Experiment())
    with pytest.raises(BadInput, match="simcse must be given labelled text with the columns query, passage"):
        check_needs(load_method("simcse"), bare)
    unpaid = dataclasses.replace(labelled, budget=Budget(finetune=0))
    with pytest.raises(
        BadInput, match=r"simcse must be given labelled text.* a budget with --finetune-budget"
    ):
        check_needs(load_method("simcse"), unpaid)
    check_needs(load_method("sra"), words)
    with pytest.raises(BadInput, match="sra must be given word vectors"):
        check_needs(load_method("sra"), bare)
    with pytest.raises(BadInput, match="bilstm_kd must be given a task with labels"):
        check_needs(load_method("bilstm_kd"), words)


def _batch(stage: Stage) -> Batch:
    torch.manual_seed(0)
    tokens, rows = {}, {}
    for index, column in enumerate(stage.examples.columns):
        size = 16 if column in ("negatives", "documents") else 8
        ids = torch.randint(5, 100, (size, 7))
        tokens[column] = Tokens(ids, torch.ones_like(ids))
        rows[column] = torch.arange(size).reshape(8, -1).squeeze(1) + 100 * index
    teacher = {column: Encoding(torch.randn(len(tokens[column].input_ids_BT), 24)) for column in stage.stores}
    all_fields = {
        "label": torch.arange(8) % 3,
        "logits": torch.randn(8, 3),
        "gold": torch.eye(2).repeat(4, 1),
        "scores": torch.randn(8, 3 if "negatives" in rows else 2),
    }
    return Batch(tokens, rows, teacher, {name: all_fields[name] for name in stage.examples.values})
