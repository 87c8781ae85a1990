"""The experiment files of the papers' tables: each loads and plans, at full size and at the small scale."""

import re
from pathlib import Path

import pytest
from transformers import BertConfig

from stillhouse.experiments import student_choice
from stillhouse.experiments.fields import experiment_of
from stillhouse.methods import check_needs, hyper_parameters, load_method, probe, with_defaults
from stillhouse.plan.data import Model
from stillhouse.plan.stage import Stage
from stillhouse.search.experiment_file import Run, load_base, load_runs
from stillhouse.search.space import sections_of
from stillhouse.students.backbone import layer_count
from stillhouse.sweeps.checks import fixed_values, search_space

ROOT = Path(__file__).resolve().parents[2]
PAPERS = ROOT / "search_spaces" / "papers"
FILES = sorted(PAPERS.glob("*.yaml"))
SCALES = ("", "small")
LAYERS = {"roberta-large": 24, "bert-large": 24, "L-4": 4, "l4": 4, "L-6": 6, "l6": 6, "MiniLM-L6": 6}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def placeholder(name: str, models: Path) -> Model:
    """A model of the depth of the named one, which need not be at hand: its configuration alone."""
    depth = next((layers for part, layers in LAYERS.items() if part in name), 12)
    folder = models / f"layers-{depth}"
    if not folder.exists():
        BertConfig(num_hidden_layers=depth, hidden_size=12, num_attention_heads=2).save_pretrained(folder)
    return Model(sha256="0", name=name, path=str(folder))


def plan(run: Run, models: Path, monkeypatch: pytest.MonkeyPatch) -> list[Stage]:
    """Plan a run as `train` does, without its data or models; return the stages."""
    monkeypatch.setattr(student_choice, "resolve_model", lambda name: placeholder(name, models))
    monkeypatch.setattr(student_choice, "model_folder", lambda name: Path(placeholder(name, models).path))
    method = load_method(run.method)
    experiment = with_defaults(method, experiment_of(run.experiment))
    check_needs(method, experiment)
    teacher = placeholder(experiment.teacher.name, models)
    setting = experiment.sketch(teacher)
    hp = hyper_parameters(method, fixed_values(method, run.values, run.name), run.preset)
    probe(method, hp, setting, layers=layer_count(setting.student.kwargs["base"]))
    return list(method.plan(hp, setting).chain())


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_every_variant_plans(path: Path, scale: str, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = load_runs(path, scale=scale, data_root="/data")
    plans = {run.name: plan(run, models, monkeypatch) for run in runs}
    assert all(plans.values())
    for section in sections_of(path):
        module = load_method(load_base(path, data_root="/data").method)
        sampler = "grid" if section == "space" else "tpe"
        space = search_space(
            module, path, section=section, sampler=sampler, scheduler="none", scale=scale, data_root="/data"
        )
        assert set(space.fixed).isdisjoint(space.domains)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_the_small_scale_names_only_models_and_budgets_of_a_small_machine(path: Path) -> None:
    for run in load_runs(path, scale="small", data_root="/data"):
        experiment = experiment_of(run.experiment)
        assert experiment.teacher.name == "all-MiniLM-L6-v2", run.name
        checkpoint = experiment.student.checkpoint
        assert checkpoint == "", run.name
        assert 0 < experiment.budget.distil <= 8192, run.name
        assert experiment.budget.finetune <= 2048, run.name


def test_every_file_has_a_row_in_the_documentation_and_names_its_table() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_]+_(?:tables?|figure)[\d_]+)` \|", page, re.MULTILINE)
    assert sorted(rows) == [path.stem for path in FILES]
    for path in FILES:
        kind = "Figure" if "figure" in path.stem else "Table"
        first, *others = re.findall(r"\d+", path.stem)
        head = path.read_text(encoding="utf-8").split("\n#\n")[0]
        assert re.search(rf"{kind}s? {first}", head), path.stem
        assert all(number in head for number in others), path.stem


def test_published_budgets_are_whole_epochs() -> None:
    for name, variant, distil, finetune in (
        ("ibkd_table2", "tinybert_ibkd_ft", 10 * 3_590_265, 3 * 275_601),
        ("ibkd_table3", "tinybert_ibkd_ft", 3 * (8_841_823 + 502_939), 3 * 502_939),
        ("distilcse_table2", "14m_stage2_ckd", 20 * 5_000_000, 5 * 275_601),
        ("distilcse_figure3", "20m", 20 * 20_000_000, 5 * 275_601),
    ):
        runs = {run.name: run for run in load_runs(PAPERS / f"{name}.yaml", data_root="/data")}
        budget = experiment_of(runs[variant].experiment).budget
        assert (budget.distil, budget.finetune) == (distil, finetune), name


EPOCHS_3 = {
    "distilcse_figure3": {"1m": 47, "2m": 94, "5m": 234, "10m": 469, "20m": 938},
    # Of the 275,601 · 3 sentences of NLI; MetaKD reads them as triples.
    "distilcse_table4": {
        f"{size}_{method}": evaluations
        for size in ("110m", "52m", "14m")
        for method, evaluations in (("kd", 39), ("pkd", 39), ("metakd", 13))
    },
}


@pytest.mark.parametrize("path", sorted(PAPERS.glob("distilcse_*.yaml")), ids=lambda path: str(path.stem))
def test_distilcse_evaluates_every_125_steps(
    path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 4.2: in both stages; three epochs of patience in the first one alone."""
    runs = {run.name: run for run in load_runs(path, data_root="/data")}
    for name, run in runs.items():
        first, *others = plan(run, models, monkeypatch)
        assert [stage.evaluate_every for stage in (first, *others)] == [
            125 * stage.batch_size for stage in (first, *others)
        ]
        patience = EPOCHS_3.get(path.stem, {}).get(name, 234)
        if run.method != "simcse":  # a run of SimCSE's code, one stage of contrastive learning
            assert first.patience == patience
            assert first.batch_size == 512
        assert all(stage.patience == 0 for stage in others if stage.label == "finetune")
