"""A process that encodes a file of texts again and again: one peer, in the environment that it needs.

It prints ``ready``, then for every line ``pass`` the seconds of one more pass, ``pass N`` in batches of N
texts; ``save FILE`` writes the vectors of the last pass, ``quit`` ends it. Nothing of the platform is
imported for a peer.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Encode = Callable[[list[str], int], Any]


def of_sentence_transformers(options: argparse.Namespace) -> Encode:
    """`SentenceTransformer.encode` as a user calls it, in the backend and precision that are asked for."""
    from sentence_transformers import SentenceTransformer

    kwargs = {"dtype": "bfloat16"} if options.dtype == "bfloat16" else {}
    if options.backend == "torch":
        model = SentenceTransformer(options.model, device=options.device, model_kwargs=kwargs)
    else:
        model = SentenceTransformer(options.model, backend=options.backend, device="cpu")
    return lambda texts, batch: model.encode(texts, batch_size=batch or 32, show_progress_bar=False)


def of_ours(options: argparse.Namespace) -> Encode:
    """Process a shard as a teacher actor does, without reading or writing files.

    ``--backend`` names the runtime.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "platform"))
    import torch

    from stillhouse.core.artifacts import Workspace
    from stillhouse.core.tokenizing import FastTokenizer
    from stillhouse.corpora.tables import write_texts
    from stillhouse.teachers.embedding import resolve_compute
    from stillhouse.teachers.runtimes import start
    from stillhouse.teachers.weights import resolve_model
    from stillhouse.values.data import Store

    compute = resolve_compute(options.device, options.dtype)
    model = resolve_model(options.model)
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        texts = write_texts(workspace, "texts", json.loads(options.texts.read_text())[:256])
        store = Store(texts, model, max_length=options.max_length, compute=compute, runtime=options.backend)
        running = start(store, workspace, options.device, torch.get_num_threads())
        tokenizer = FastTokenizer(Path(model.path), options.max_length)
        forward = running.forward(store, tokenizer.pad_id, options.device)
    return lambda texts, batch: forward(*tokenizer(texts))


def main() -> int:
    """Load, warm up, and serve passes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("who", choices=("ours", "sentence-transformers"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", type=Path, required=True, help="a JSON list")
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--max-length", type=int, default=128)
    options = parser.parse_args()
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    encode = (of_ours if options.who == "ours" else of_sentence_transformers)(options)
    texts = json.loads(options.texts.read_text())
    vectors = encode(texts[:256], 0)
    print("ready", flush=True)
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "quit":
            break
        if command == "save":
            np.save(argument, np.asarray(vectors, np.float32))
            print("saved", flush=True)
            continue
        began = time.perf_counter()
        vectors = encode(texts, int(argument or 0))
        print(time.perf_counter() - began, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
