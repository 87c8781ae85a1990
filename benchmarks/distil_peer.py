"""The peer of a sweep: Optuna calls the trainer of sentence-transformers, as their documentation has it.

Each trial loads the teacher, encodes all sentences for the labels, cuts a student out of the teacher (every
other layer), trains it with `MSELoss`, and measures its agreement with the teacher on held-out sentences.
Nothing of the platform is imported: this runs where `accelerate` is, which the trainer wants.

    python benchmarks/distil_peer.py --model FOLDER --texts TEXTS.json --output FIGURES.json
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def cut(model: Any) -> Any:
    """Every other layer of the teacher: half of them."""
    import torch

    inner = model[0].auto_model
    inner.encoder.layer = torch.nn.ModuleList(inner.encoder.layer[::2])
    inner.config.num_hidden_layers = len(inner.encoder.layer)
    return model


def train(student: Any, texts: list[str], labels: Any, rate: float, options: argparse.Namespace) -> int:
    """The trainer, with the budget; the steps that it made."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.losses import MSELoss

    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            max_steps=options.budget // options.batch,
            per_device_train_batch_size=options.batch,
            learning_rate=rate,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        )
        data = Dataset.from_dict({"sentence": texts, "label": labels})
        trainer = SentenceTransformerTrainer(
            model=student, args=arguments, train_dataset=data, loss=MSELoss(student)
        )
        trainer.train()
        return int(trainer.state.global_step)


def main() -> int:
    """Run the trials; write the seconds of each part of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", type=Path, required=True, help="a JSON list")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--budget", type=int, default=2048, help="examples per trial")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--held-out", type=int, default=256, help="the last texts, to measure by")
    parser.add_argument("--max-length", type=int, default=64)
    options = parser.parse_args()
    import numpy as np
    import optuna
    from sentence_transformers import SentenceTransformer

    texts = json.loads(options.texts.read_text())
    held_out, texts = texts[-options.held_out :], texts[: -options.held_out]
    report: list[dict[str, float]] = []
    vectors: Any = None

    def load() -> Any:
        model = SentenceTransformer(options.model, device="cpu")
        model.max_seq_length = options.max_length
        return model

    def objective(trial: Any) -> float:
        nonlocal vectors
        rate, marks = trial.suggest_float("learning_rate", 1e-5, 1e-3, log=True), [time.perf_counter()]
        teacher = load()
        vectors = teacher.encode(texts, show_progress_bar=False)
        marks.append(time.perf_counter())
        student = cut(load())
        steps = train(student, texts, vectors, rate, options)
        marks.append(time.perf_counter())
        expected, got = (m.encode(held_out, show_progress_bar=False) for m in (teacher, student))
        norms = np.linalg.norm(expected, axis=1) * np.linalg.norm(got, axis=1)
        agreement = float(((expected * got).sum(axis=1) / norms).mean())
        marks.append(time.perf_counter())
        parts = dict(zip(("encode", "train", "evaluate"), np.diff(marks).tolist(), strict=True))
        report.append({**parts, "steps": steps, "agreement": agreement})
        return agreement

    optuna.create_study(direction="maximize").optimize(objective, n_trials=options.trials)
    np.save(options.output.with_suffix(".npy"), vectors[:64])
    options.output.write_text(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
