"""A training step on stored teacher vectors, against sentence-transformers' trainer with its `MSELoss`.

Both start from the same weights and see the same texts in the same batches; the losses must agree. A step is
what passes between the ends of two steps of the real loop, reading, padding and (the peer's) tokenising
included. The peer also runs its teacher over the texts of a step, as its documentation does before training.
"""

import sys
import tempfile
import time
from dataclasses import replace
from typing import Any

import numpy as np
from harness import ROOT, Row, arguments, at_least, finish, median, ratio, spread
from sentences import sentences
from stages import LAYERS, MAX_LENGTH, QUICK, WHOLE, Marks, make_stage, milliseconds, opened, run_loop

from stillhouse.core.identity import spec
from stillhouse.objectives.matching import Regression
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.sampler import Order
from stillhouse.values.stage import Stage

# Packages that the trainer also needs, where `make peers` put them.
sys.path.append(str(ROOT / ".venv-peers" / "trainer"))

SAME, SKIP = 1e-5, 2


def peer_student(attention: str) -> Any:
    """The same three layers in a `SentenceTransformer`, without dropout."""
    from sentence_transformers import SentenceTransformer
    from torch import nn

    model = SentenceTransformer(
        resolve_model("all-MiniLM-L6-v2").path,
        device="cpu",
        model_kwargs={"attn_implementation": attention},
        config_kwargs={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    )
    backbone: Any = model[0].auto_model
    backbone.encoder.layer = nn.ModuleList([backbone.encoder.layer[index] for index in LAYERS])
    model.max_seq_length = MAX_LENGTH
    return model


def in_order(dataset: Any, **given: Any) -> Any:
    """A batch sampler of sentence-transformers that takes the rows as they lie."""
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from torch.utils.data import SequentialSampler

    return DefaultBatchSampler(SequentialSampler(dataset), **given)


def peer(
    stage: Stage, texts: list[str], labels: Any, *, bf16: bool, workers: int = 0, attention: str = "sdpa"
) -> tuple[float, list[float]]:
    """Its trainer on the same batches: seconds a step, and the losses."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MSELoss
    from transformers import TrainerCallback

    marks, losses, model = Marks(), [], peer_student(attention)
    loss = MSELoss(model)
    loss.register_forward_hook(lambda _module, _given, value: losses.append(value.detach()))

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            marks()

    with tempfile.TemporaryDirectory() as held:
        options = SentenceTransformerTrainingArguments(
            output_dir=held,
            use_cpu=True,
            bf16=bf16,
            per_device_train_batch_size=stage.batch_size,
            max_steps=stage.steps,
            learning_rate=stage.optimizer.learning_rate,
            weight_decay=stage.optimizer.weight_decay,
            optim="adamw_torch_fused",
            lr_scheduler_type="linear",
            dataloader_num_workers=workers,
            batch_sampler=in_order,
            save_strategy="no",
            eval_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        data = Dataset.from_dict({"sentence": texts, "label": list(labels)})
        SentenceTransformerTrainer(
            model=model, args=options, train_dataset=data, loss=loss, callbacks=[Clock()]
        ).train()
    return marks.seconds(SKIP), [float(value) for value in losses]


def peer_teacher(texts: list[str], bf16: bool) -> Any:
    """A pass of its teacher over all texts, as one calls it to make the labels."""
    from sentence_transformers import SentenceTransformer

    kwargs = {"dtype": "bfloat16"} if bf16 else {}
    teacher = SentenceTransformer(resolve_model("all-MiniLM-L6-v2").path, device="cpu", model_kwargs=kwargs)
    teacher.max_seq_length = MAX_LENGTH

    def seconds() -> float:
        began = time.perf_counter()
        teacher.encode(texts, batch_size=128, show_progress_bar=False)
        return time.perf_counter() - began

    return seconds


def main() -> int:
    """Compare the losses in float32, find the peer's quickest settings, then measure in turn."""
    options = arguments(__doc__).parse_args()
    batch, steps = (32, 5) if options.quick else (128, 10)
    stage = make_stage(spec(Regression), quick=options.quick, batch=batch, steps=steps)
    training = opened(stage)
    order = Order(len(training), stage.seed).take(0, steps * batch)
    known, rows = sentences(QUICK if options.quick else WHOLE), training.rows["text"][order]
    texts, labels = [known[row] for row in rows], training.stores["text"].gather(rows)
    exact = replace(stage, autocast="float32")
    ours, theirs = run_loop(exact, training)[1], peer(exact, texts, labels, bf16=False)[1]
    apart = float(np.abs(np.array(ours) / np.array(theirs[: len(ours)]) - 1).max())
    assert len(ours) == len(theirs) == steps and apart <= SAME * steps, (apart, ours, theirs)
    bf16 = stage.autocast == "bfloat16"
    kinds: dict[str, dict[str, Any]] = {
        "default (fp32)": {"bf16": False},
        "best precision": {"bf16": bf16},
        "best precision, 1 data worker": {"bf16": bf16, "workers": 1},
        "best precision, eager attention": {"bf16": bf16, "attention": "eager"},
    }
    once = {name: peer(stage, texts, labels, **given)[0] for name, given in kinds.items()}
    fastest = min(once, key=lambda name: once[name])
    teacher = peer_teacher(texts, bf16)
    seconds: dict[str, list[float]] = {"ours": [], "peer": [], "with teacher": []}
    for _ in range(min(2, options.repeats)):
        seconds["ours"].append(run_loop(stage, training, SKIP)[0])
        seconds["peer"].append(peer(stage, texts, labels, **kinds[fastest])[0])
        seconds["with teacher"].append(seconds["peer"][-1] + teacher() / steps)
    what = f"training step, 3 of 6 layers, MSE on stored vectors, batch {batch}, at most {MAX_LENGTH} tokens"
    shown = ", ".join(f"{name} {1000 * value:.0f} ms" for name, value in once.items())
    teaching = median(seconds["with teacher"]) - median(seconds["peer"])
    mine = spread(milliseconds(seconds["ours"]), "ms")
    return finish(
        [
            Row(
                what,
                f"sentence-transformers' trainer, {fastest}",
                **at_least(ratio(seconds["peer"], seconds["ours"]), 1.5),
                ours=mine,
                peer=spread(milliseconds(seconds["peer"]), "ms"),
                note=f"losses of {steps} fp32 steps agree to {apart:.0e}; its settings, once: {shown}",
            ),
            Row(
                what,
                "the same, and its teacher over the texts of the step",
                **at_least(ratio(seconds["with teacher"], seconds["ours"]), 4),
                ours=mine,
                peer=spread(milliseconds(seconds["with teacher"]), "ms"),
                note=f"`encode` in batches of 128: {1000 * teaching:.0f} ms a step",
            ),
        ],
        options,
    )


if __name__ == "__main__":
    sys.exit(main())
