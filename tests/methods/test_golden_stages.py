"""Methods of several stages against their papers, recomputed in float64 by plain loops; see `test_golden`.

The cross-lingual method with its four stages, SRA with its teacher, retrieval KD with its towers and joiners.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from plain_models import (  # type: ignore[import-not-found]
    PlainWords,
    average,
    both_ways,
    convolution,
    cosine,
    one_of,
    pooled,
    squared,
)
from recorded_steps import Step, assert_step, train_recorded  # type: ignore[import-not-found]
from safetensors.torch import load_file
from small_world import MAX_LENGTH, World
from test_golden import (  # type: ignore[import-not-found]
    assert_continues,
    assert_stored,
    bert,
    built_world,  # noqa: F401
    planned,
)
from torch import Tensor

from stillhouse.core.artifacts import write_json
from stillhouse.core.roles import SETTINGS, Prompts, Reading
from stillhouse.corpora.tables import open_texts
from stillhouse.experiments.kinds.parallel import Parallel
from stillhouse.training.models import encoder_in
from stillhouse.values.data import sample
from stillhouse.values.stage import Stage

# The cross-lingual method.


def crosslingual(
    world: World, monkeypatch: pytest.MonkeyPatch, **values: Any
) -> tuple[dict[str, Stage], dict[str, list[Step]]]:
    setting = world.setting(values.pop("teacher", world.teacher))
    defaults = {"batch_size": 4, "unit": 2, "bottleneck": 3, "learning_rate": 1e-2}
    plan = planned("crosslingual", setting, **{**defaults, **values})
    return {stage.label: stage for stage in plan.chain()}, train_recorded(plan, world.workspace, monkeypatch)


def sides(world: World, step: Step) -> list[tuple[str, str]]:
    """The sentences of a batch with their translations."""
    sources = world.texts("queries", step.rows("source"))
    return list(zip(sources, world.texts("passages", step.rows("target")), strict=True))


def trained(world: World, stage: Stage) -> dict[str, Tensor]:
    """The weights at the end of a stage, named as in a step."""
    weights = load_file(world.workspace.path(stage) / "student.safetensors")
    return {f"student.{name}": weight for name, weight in weights.items()}


@pytest.mark.parametrize("dimensions", [pytest.param("sum", marks=pytest.mark.long), "mean"])
def test_the_four_stages(dimensions: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 2, 3, 4 and 7, each from the weights that the stage before has left."""
    stages, steps = crosslingual(world, monkeypatch, dimensions=dimensions, contrast_weight=0.8)
    assert list(steps) == ["assistant", "align", "student", "contrast"]
    each = 1.0 if dimensions == "sum" else 1 / 16

    # 1. Both sentences follow the teacher's vector of the source, on the whole encoder.
    encoder = bert(world.base, range(6))
    for number, step in enumerate(steps["assistant"][:2]):
        if number:
            encoder.load(step.state)
        assert_stored(world, step, "source", "queries", world.teacher)
        losses = [
            each * (squared(encoder.mean(source), vector) + squared(encoder.mean(target), vector))
            for (source, target), vector in zip(sides(world, step), step.teacher("source"), strict=True)
        ]
        assert_step(step, {"mse": average(losses)}, encoder.parameters())

    # 2. The narrow embedding layer follows that of the trained assistant, each sentence its own.
    assistant = bert(world.base, range(6)).load(trained(world, stages["assistant"]))
    unit_of_two = bert(world.base, (0, 1)).load(trained(world, stages["assistant"]))
    for step in steps["align"][:2]:
        student = bert(world.base, (0, 1)).load(step.state)
        assert student.model.embeddings.word_embeddings.narrow.weight.shape[1] == 3
        for name, weight in unit_of_two.parameters().items():
            assert (
                "word_embeddings" in name
                or "encoder" not in name
                or torch.equal(student.parameters()[name], weight)
            )
        losses = [
            each * sum(squared(student.means(text)[0], assistant.means(text)[0].detach()) for text in pair)
            for pair in sides(world, step)
        ]
        assert_step(step, {"mse": average(losses)}, student.parameters())

    # 3. The student of two tied layers, applied three times, follows the assistant on both sides.
    aligned, layers = trained(world, stages["align"]), (0, 1) * 3
    for number, step in enumerate(steps["student"][:2]):
        student = bert(world.base, layers).load(step.state if number else aligned)
        losses = []
        for at, pair in enumerate(sides(world, step)):
            stored = [step.teacher(column)[at] for column in ("source", "target")]
            for text, vector in zip(pair, stored, strict=True):
                expected = assistant.mean(text).detach()
                assert (vector - expected).abs().max() < 2e-3 * expected.norm()
            losses.append(each * sum(squared(student.mean(t), v) for t, v in zip(pair, stored, strict=True)))
        assert_step(step, {"mse": average(losses)}, student.parameters())

    # 4. The student meets the teacher again, with the contrast between the languages.
    for number, step in enumerate(steps["contrast"][:2]):
        student = bert(world.base, layers).load(step.state if number else trained(world, stages["student"]))
        assert_stored(world, step, "source", "queries", world.teacher)
        pairs, vectors = sides(world, step), step.teacher("source")
        ours = [[student.mean(text) for text in pair] for pair in pairs]
        losses = [
            each * (squared(source, vector) + squared(target, vector))
            for (source, target), vector in zip(ours, vectors, strict=True)
        ]
        contrasts = [
            (cosine(vectors[i], vectors[j]) - cosine(ours[i][0], ours[j][1])) ** 2
            for i in range(len(ours))
            for j in range(len(ours))
        ]
        terms = {"mse": average(losses), "contrast": 0.8 * average(contrasts)}
        assert_step(step, terms, student.parameters())
    assert_continues(world, stages["contrast"], steps["contrast"][0])


def test_the_encoder_as_published_reads_with_its_own_prompts(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table 6, the student that imitates the encoder first: each side of a pair is a plain text."""
    folder = tmp_path / "prompted"
    shutil.copytree(world.base.path, folder)
    settings = {"prompts": {"query": "a cat ", "own": "two dogs "}, "default_prompt_name": "own"}
    write_json(folder / SETTINGS, settings)
    base = replace(world.base, path=str(folder))
    setting = world.setting(world.teacher, world.student().replace(base=base))
    given = replace(setting, prompts=Prompts(plain="the "), teacher_reading=Reading(MAX_LENGTH + 3))
    values = {"batch_size": 4, "unit": 2, "bottleneck": 0, "recipe": "predistilled"}
    steps = train_recorded(planned("crosslingual", given, **values), world.workspace, monkeypatch)
    step, published = steps["imitate"][0], bert(world.base, range(6))
    student = bert(world.base, (0, 1) * 3)
    losses = [
        sum(
            squared(student.mean(f"the {text}"), published.mean(f"two dogs {text}").detach()) for text in pair
        )
        for pair in sides(world, step)
    ]
    assert_step(step, {"mse": average(losses)}, student.parameters())
    assert not steps["student"][0].batch.live_tokens, "the stage after it follows stored vectors"


@pytest.mark.parametrize("contrast", ["same", "ce", pytest.param("none", marks=pytest.mark.long)])
def test_the_other_contrasts(contrast: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 5: eq. 8, eq. 9 and none, here with a projection to a teacher of 24 dimensions."""
    teacher, name = world.wide_teacher, "mse.projection.weight"
    values = {"contrast": contrast, "temperature": 0.3, "bottleneck": 0, "teacher": teacher}
    _, steps = crosslingual(world, monkeypatch, **values)
    assert list(steps) == ["assistant", "student", "contrast"], "nothing to align without a bottleneck"
    for step in steps["contrast"][:2]:
        student = bert(world.base, (0, 1) * 3).load(step.state)
        M, vectors = step.objective(name), step.teacher("source")
        ours = [[student.mean(text) for text in pair] for pair in sides(world, step)]
        losses = [
            squared(M @ source, vector) + squared(M @ target, vector)
            for (source, target), vector in zip(ours, vectors, strict=True)
        ]
        terms = {"mse": average(losses)}
        count = len(ours)
        found = [[cosine(ours[i][0], ours[j][1]) for j in range(count)] for i in range(count)]
        if contrast == "same":
            apart = [
                ((1.0 if i == j else 0.0) - found[i][j]) ** 2 for i in range(count) for j in range(count)
            ]
            terms["contrast"] = average(apart)
        if contrast == "ce":
            terms["contrast"] = average(
                [
                    sum(
                        cosine(vectors[i], vectors[j])
                        * one_of(found[i][j] / 0.3, [found[i][k] / 0.3 for k in range(count) if k != j])
                        for j in range(count)
                    )
                    for i in range(count)
                ]
            )
        assert_step(step, terms, {**student.parameters(), f"objective.{name}": M})


def test_stage_4_reads_its_own_corpora(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 4.1: stages 1 to 3 on all pairs, stage 4 on those of one source."""
    setting = world.setting(world.teacher)
    own = sample(world.parallel, 0.5)
    setting = setting.having(Parallel, replace(setting[Parallel], contrast=own))
    plan = planned("crosslingual", setting, batch_size=4, unit=2, bottleneck=0)
    assert [stage.examples == own for stage in plan.chain()] == [False, False, True]


# SRA.


def bilstm_vector(world: World, weights: dict[str, Tensor], pooling: str, text: str) -> Tensor:
    words = PlainWords(Path(world.words.path), weights, "student.words.weight")
    states = both_ways(words(text)[:MAX_LENGTH], weights, "student.lstm")
    return torch.tanh(weights["student.projection.weight"] @ pooled(states, pooling))


def leaves(step: Step, *prefixes: str) -> dict[str, Tensor]:
    """The floating-point weights of a step in float64, ready for gradients."""
    return {
        name: weight.double().requires_grad_()
        for name, weight in step.state.items()
        if name.startswith(prefixes) and weight.is_floating_point()
    }


def head_logits(weights: dict[str, Tensor], first: Tensor, second: Tensor) -> Tensor:
    """Section 3.2: an MLP over [h, h', |h − h'|, h ∘ h']."""
    features = torch.cat([first, second, (first - second).abs(), first * second])
    hidden = weights["objective.head.layers.1.weight"] @ features + weights["objective.head.layers.1.bias"]
    last = [weights[f"objective.head.layers.4.{part}"] for part in ("weight", "bias")]
    return last[0] @ hidden.clamp(min=0) + last[1]


@pytest.mark.parametrize("pooling", ["max", "mean", "last"])
def test_sra(pooling: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 1 on unlabelled text, then the labels of pairs."""
    values = {
        "hidden": 3,
        "pooling": pooling,
        "distil_batch_size": 8,
        "finetune_batch_size": 4,
        "head_hidden": 5,
    }
    plan = planned("sra", world.setting(world.wide_teacher), **values, finetune_learning_rate=1e-2)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    assert steps["sra"][0].state["student.projection.weight"].shape[1] == 2 * 3, "both directions"
    for step in steps["sra"][:2]:
        weights = leaves(step, "student.")
        texts = world.texts("sentences", step.rows("text"))
        losses = [
            0.5 * (1 - cosine(vector, bilstm_vector(world, weights, pooling, text)))
            for text, vector in zip(texts, step.teacher("text"), strict=True)
        ]
        assert_step(step, {"cosine": average(losses)}, weights)
    assert_continues(world, plan, steps["finetune"][0])
    for step in steps["finetune"][:2]:
        weights = leaves(step, "student.", "objective.")
        losses = []
        for text, other, label in labelled(world, step):
            vectors = [bilstm_vector(world, weights, pooling, each) for each in (text, other)]
            logits = head_logits(weights, *vectors)
            losses.append(one_of(logits[label], [logits[1 - label]]))
        assert_step(step, {"labels": average(losses)}, weights)


def labelled(world: World, step: Step) -> list[tuple[str, str, int]]:
    texts = world.texts("queries", step.rows("text"))
    others = world.texts("passages", step.rows("other"))
    return list(zip(texts, others, step.batch.values["label"].tolist(), strict=True))


def test_sra_with_kd(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 1, row 12: the student is fitted to the logits of the fine-tuned teacher, beside the labels."""
    values = {
        "hidden": 3,
        "distil_batch_size": 8,
        "finetune_batch_size": 4,
        "head_hidden": 5,
        "kd_weight": 0.3,
    }
    teaching = {"teacher_batch_size": 4, "teacher_learning_rate": 1e-3}
    plan = planned("sra_kd", world.setting(world.teacher), **values, **teaching)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    assert steps["finetune"][0].state["student.projection.weight"].shape[1] == 2 * 3, "both directions"
    stages = {stage.label: stage for stage in plan.chain()}
    assert set(stages) == {"sra", "teacher", "finetune"}
    teacher = bert(world.teacher, range(6)).load(trained(world, stages["teacher"]))
    head = load_file(world.workspace.path(stages["teacher"]) / "objective.safetensors")
    taught = {f"objective.{name}": weight.double() for name, weight in head.items()}
    assert_continues(world, plan, steps["finetune"][0])
    for step in steps["finetune"][:2]:
        weights, labels, logits = leaves(step, "student.", "objective."), [], []
        for at, (text, other, label) in enumerate(labelled(world, step)):
            z = head_logits(weights, *(bilstm_vector(world, weights, "max", each) for each in (text, other)))
            theirs = head_logits(taught, *(teacher.mean(each).detach() for each in (text, other)))
            assert (step.batch.values["logits"][at] - theirs).abs().max() < 1e-3 * theirs.norm()
            labels.append(one_of(z[label], [z[1 - label]]))
            logits.append(squared(z, theirs) / 2)
        terms = {"labels": 0.7 * average(labels), "logits": 0.3 * average(logits)}
        assert_step(step, terms, weights, tolerance=1e-3)


# Retrieval KD.


def tower(
    world: World, weights: dict[str, Tensor], prefix: str, encoder: str, pooling: str, text: str
) -> Tensor:
    words = PlainWords(Path(world.words.path), weights, f"{prefix}words.weight")(text)[:MAX_LENGTH]
    if encoder == "cnn":
        vector: Tensor = convolution(words, weights, f"{prefix}convolution")
    else:
        vector = pooled(both_ways(words, weights, f"{prefix}recurrence"), pooling)
    return vector


def joined(weights: dict[str, Tensor], kind: str, claim: Tensor, document: Tensor) -> Tensor:
    layer = weights["objective.joiner.layer.weight"]
    if kind == "bilinear":
        return (layer @ claim * document).sum()
    parts = [claim, document]
    if kind == "features":
        parts += [claim * document, (claim - document).abs()]
    return (layer[0] * torch.cat(parts)).sum()


def soft_loss(kind: str, compared: str, scores: Tensor, teacher: Tensor, softened: str) -> Tensor:
    """Eq. 1 and 2 with T = 2: which side T divides, and what is compared."""
    ours, theirs = (scores / 2 if softened == "both" else scores), teacher / 2
    shares = [value.exp() / theirs.exp().sum() for value in theirs]
    if kind == "ce":
        logs = [(value.exp() / ours.exp().sum()).log() for value in ours]
        return -(torch.stack(shares) * torch.stack(logs)).sum()
    if compared == "probabilities":
        ours = ours.exp() / ours.exp().sum()
    target = theirs if compared == "scores" else torch.stack(shares)
    distance: Tensor = squared(ours, target)
    return distance


CASES: list[dict[str, Any]] = [
    {"encoder": "lstm", "pooling": "last", "joiner": "features", "soft_loss": "mse", "compared": "printed"},
    {"encoder": "lstm", "pooling": "mean", "joiner": "concat", "soft_loss": "mse", "train_words": True},
    {"encoder": "cnn", "joiner": "features", "soft_loss": "ce", "towers": "separate", "scale": True},
    {"encoder": "cnn", "joiner": "bilinear", "soft_loss": "mse", "compared": "scores", "softened": "both"},
    {"encoder": "lstm", "towers": "separate", "soft_loss": "ce", "softened": "both", "train_words": True},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(str(value) for value in case.values()))
def test_retrieval_kd(case: dict[str, Any], world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 1 to 3: towers over words, a joiner, and the scores that the trained teacher gives each pair."""
    values = {
        "units": 3,
        "teacher_units": 2,
        "batch_size": 4,
        "teacher_batch_size": 4,
        "alpha": 0.4,
        "temperature": 2.0,
    }
    rates = {"learning_rate": 1e-2, "teacher_learning_rate": 1e-2}
    plan = planned("retrieval_kd", world.setting(world.teacher), **values, **rates, **case)
    steps = train_recorded(plan, world.workspace, monkeypatch)
    pooling, softened = case.get("pooling", "max"), case.get("softened", "teacher")
    compared, size = case.get("compared", "probabilities"), 4.0 if case.get("scale") else 1.0
    separate = case.get("towers") == "separate"
    scores_of = recorded_scores(world, plan)
    for step in steps["retrieval_kd"][:2]:
        weights = leaves(step, "student.", "objective.")
        if separate and not case.get("train_words"):
            weights["student.claims.words.weight"] = weights["student.documents.words.weight"]
        soft, hard = [], []
        for at, (claim, documents) in enumerate(claims_of(world, step)):
            sides = ("student.claims.", "student.documents.") if separate else ("student.", "student.")
            encoded = tower(world, weights, sides[0], case["encoder"], pooling, claim)
            scores = torch.stack(
                [
                    joined(
                        weights,
                        case.get("joiner", "bilinear"),
                        encoded,
                        tower(world, weights, sides[1], case["encoder"], pooling, document),
                    )
                    for document in documents
                ]
            )
            theirs = step.batch.values["scores"][at].double()
            assert (theirs - scores_of(claim, documents)).abs().max() < 1e-4
            soft.append(soft_loss(case["soft_loss"], compared, scores, theirs, softened))
            relevant = step.batch.values["gold"][at].tolist()
            shares = scores.exp() / scores.exp().sum()
            hard.append(-sum(share.log() for share, gold in zip(shares, relevant, strict=True) if gold))
        terms = {"soft": 0.4 * size * average(soft), "hard": 0.6 * average(hard)}
        frozen = [] if case.get("train_words") else [name for name in weights if "words" in name]
        assert_step(step, terms, {name: weight for name, weight in weights.items() if name not in frozen})


def claims_of(world: World, step: Step) -> list[tuple[str, list[str]]]:
    columns = world.claims.examples.columns
    claims, documents = (open_texts(world.workspace, columns[column]) for column in ("claim", "documents"))
    rows = zip(step.batch.rows["claim"].numpy(), step.batch.rows["documents"].numpy(), strict=True)
    return [(str(claims[[claim]][0]), [str(text) for text in documents[found]]) for claim, found in rows]


def recorded_scores(world: World, plan: Stage) -> Any:
    """The trained teacher's scores of a claim's candidates, read as an evaluator would."""
    teacher = next(stage for stage in plan.chain() if stage.label == "teacher")
    scorer = encoder_in(world.workspace.path(teacher))

    def scores(claim: str, documents: list[str]) -> Tensor:
        return torch.tensor(scorer.score([claim] * len(documents), documents)).flatten()

    return scores
