"""Small inputs for the table of bad command lines: files as they should be, and files that are broken."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TEXTS = [
    f"the {color} {noun} {verb} number {number}"
    for number, (color, noun, verb) in enumerate(
        (color, noun, verb)
        for color in ("red", "green", "blue", "old", "new", "large", "small", "fast")
        for noun in ("cat", "dog", "river", "house")
        for verb in ("returns a value", "is a list of words")
    )
]
PAIRS = [{"query": f"which {text}", "passage": text} for text in TEXTS[:16]]


def write_inputs(folder: Path, model: Path) -> None:
    """Write everything that the table names.

    Args:
        folder: Where to write; the commands run in it.
        model: A small model's folder.
    """
    _texts(folder)
    _pairs(folder)
    _experiments(folder)
    _models(folder, model)
    _collections(folder)
    _vectors(folder)
    _others(folder)


def _lines(path: Path, rows: list[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _texts(folder: Path) -> None:
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    (folder / "chinese.txt").write_text("今天天气很好。我们去公园散步吧！\n" * 20)
    (folder / "few.txt").write_text("one text\nanother text\n")
    (folder / "empty.txt").write_text("")
    (folder / "blank.txt").write_text("\n   \n\t\n")
    (folder / "latin1.txt").write_bytes("Grüße aus München\n".encode("latin-1") * 20)
    (folder / "utf16.txt").write_bytes("A text in two bytes per letter\n".encode("utf-16-le") * 20)
    (folder / "marked.txt").write_bytes("A text with a mark at its start\n".encode("utf-16"))
    _lines(folder / "columns.jsonl", [{"id": 1, "body": text} for text in TEXTS])
    (folder / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8)
    (folder / "packed.txt").write_bytes(gzip.compress(b"a text\n" * 50))
    (folder / "cut.txt.gz").write_bytes(gzip.compress(np.random.default_rng(0).bytes(4000))[:2000])
    (folder / "not-packed.txt.gz").write_text("a text\n")
    (folder / "nothing").mkdir()
    (folder / "pictures").mkdir()
    (folder / "pictures" / "one.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    _lines(folder / "titles.jsonl", [{"title": text} for text in TEXTS])
    _lines(folder / "numbers.jsonl", [{"text": number} for number in range(9)])
    _lines(folder / "lists.jsonl", [[text] for text in TEXTS])
    (folder / "cut.jsonl").write_text('{"text": "a text"}\n{"text": "another')
    (folder / "array.jsonl").write_text(json.dumps([{"text": text} for text in TEXTS], indent=1))
    (folder / "deep.jsonl").write_text('{"text":' + "[" * 100_000 + "\n")
    (folder / "ragged.csv").write_text("id,text\n1,a text\n2\n3,another,and more\n")
    (folder / "titles.csv").write_text("id,title\n" + "".join(f"{i},{t}\n" for i, t in enumerate(TEXTS)))
    (folder / "header.csv").write_text("id,text\n")
    (folder / "quote.csv").write_text('id,text\n1,"a text that never ends\n2,more\n')
    (folder / "text.parquet").write_text("this is no Parquet\n")
    pq.write_table(pa.table({"text": TEXTS}), folder / "good.parquet")
    whole = (folder / "good.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.parquet").write_bytes(b"")
    pq.write_table(pa.table({"text": [{"words": [text]} for text in TEXTS]}), folder / "nested.parquet")
    (folder / "secret.txt").write_text("a text\n")
    (folder / "secret.txt").chmod(0o000)
    (folder / "pipe.txt").symlink_to("nowhere.txt")
    (folder / "texts.docx").write_bytes(b"PK\x03\x04" + bytes(range(200)))


def _pairs(folder: Path) -> None:
    _lines(folder / "pairs.jsonl", list(PAIRS))
    _lines(folder / "queries-alone.jsonl", [{"query": pair["query"]} for pair in PAIRS])
    _lines(folder / "pairs-numbers.jsonl", [{"query": 1, "passage": 2}] * 4)
    _lines(folder / "pairs-empty-texts.jsonl", [{"query": "", "passage": ""}] * 4)
    (folder / "pairs-empty.jsonl").write_text("")
    (folder / "pairs-cut.jsonl").write_text('{"query": "a", "passage": "b"}\n{"query": "a", "pas')
    _lines(
        folder / "pairs-negative-numbers.jsonl",
        [{"query": "a word", "passage": "b", "negatives": [1, 2]}] * 4,
    )
    (folder / "pairs-no-header.tsv").write_text("which cat\tthe cat\nwhich dog\tthe dog\n")
    (folder / "de.tsv").write_text("".join(f"{text}\tde {text}\n" for text in TEXTS))
    (folder / "one-column.tsv").write_text("".join(f"{text}\n" for text in TEXTS))
    _lines(folder / "scores-missing.jsonl", [{"query": "a", "positive": "b", "negative": "c"}] * 4)
    _lines(
        folder / "scores-nan.jsonl",
        [{"query": "a", "pos": ["b"], "neg": ["c"], "pos_scores": [float("nan")], "neg_scores": [0.1]}] * 4,
    )


def _experiments(folder: Path) -> None:
    files = {
        "good": "method: ibkd\nsearch:\n  space:\n    gamma: [0.1, 0.5]\n  first:\n    gamma: 0.5\n",
        "empty": "",
        "list": "- method: ibkd\n",
        "tabs": "method: ibkd\nsearch:\n\tspace: {}\n",
        "open": "method: ibkd\nsentences: {corpus: texts.txt\n",
        "twice": "method: ibkd\nseed: 1\nseed: 2\n",
        "odd-key": "method: ibkd\n[1, 2]: 3\n",
        "null-key": "method: ibkd\n? \n: 3\n",
        "number-key": "method: ibkd\n7: 3\n",
        "python": "method: !!python/object/apply:os.system ['true']\n",
        "deep": "method: ibkd\nsentences: " + "[" * 20_000 + "\n",
        "deep-maps": "method: ibkd\n" + "\n".join(" " * depth + "a:" for depth in range(2_000)) + " 1\n",
        "alias": "method: ibkd\nsentences: *nothing\n",
        "bomb": "method: ibkd\nsentences: {corpus: [&a0 [x, x, x, x, x, x, x, x, x], "
        + "".join(f"&a{i} [{', '.join([f'*a{i - 1}'] * 9)}], " for i in range(1, 9))
        + "*a8]}\n",
        "loop": "method: ibkd\nsentences: &loop {corpus: *loop}\n",
        "documents": "method: ibkd\n---\nmethod: mse\n",
        "no-method": "sentences: {corpus: texts.txt}\n",
        "method-list": "method: [ibkd, mse]\n",
        "other-method": "method: ibdk\n",
        "other-preset": "method: ibkd\npreset: papr\n",
        "unknown-field": "method: ibkd\nsentences: {corpsu: texts.txt}\n",
        "unknown-kind": "method: ibkd\nsentenses: {corpus: texts.txt}\n",
        "wrong-type": "method: ibkd\nsentences: {count: many}\n",
        "scalar": "method: ibkd\nsentences: texts.txt\n",
        "out-of-range": "method: ibkd\nbudget: {fraction: 7}\n",
        "unknown-value": "method: ibkd\nvalues: {beta_1: 2}\n",
        "values-list": "method: ibkd\nvalues: [beta1]\n",
        "space-at-top": "method: ibkd\nspace: {gamma: [0.1, 0.5]}\n",
        "old": "method: ibkd\nexperiment: {corpus: pydocs}\n",
        "unknown-searched": "method: ibkd\nsearch:\n  space: {gama: [0.1, 0.5]}\n",
        "text-values": "method: ibkd\nsearch:\n  space: {gamma: [low, high]}\n",
        "nan-range": "method: ibkd\nsearch:\n  space: {gamma: {low: .nan, high: 1.0}}\n",
        "infinite": "method: ibkd\nsearch:\n  space: {gamma: {low: 0.1, high: .inf}}\n",
        "null-searched": "method: ibkd\nsearch:\n  space: {gamma: }\n",
        "bad-variant": "method: ibkd\nvariants: {a: 7}\n",
        "variants": "method: ibkd\nvariants: {small: {seed: 1}, large: {seed: 2}}\n",
        "variants-list": "method: ibkd\nvariants: [small, large]\n",
        "bad-summary": "method: ibkd\nvariants: {a: {seed: 1}}\nsummary: {mean: {mean: [b]}}\n",
        "needs-data": "method: ibkd\nselection: {data_root: $STILLHOUSE_DATA/sts}\n",
        "date": "method: ibkd\nseed: 2024-01-01\n",
        "yes": "method: ibkd\nseed: yes\n",
        "huge": "method: ibkd\nseed: " + "9" * 6000 + "\n",
    }
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(content)
    (folder / "latin1.yaml").write_bytes("method: ibkd # größer\n".encode("latin-1"))
    (folder / "nul.yaml").write_bytes(b"method: ibkd\x00\n")
    (folder / "experiment.json").write_text('{"method": "ibkd"')


def _models(folder: Path, model: Path) -> None:
    shutil.copytree(model, folder / "model")

    def broken(name: str) -> Path:
        return Path(shutil.copytree(model, folder / name))

    weights = model / "model.safetensors"
    assert weights.is_file(), "the small model keeps its encoder at the top"
    whole = weights.read_bytes()
    (broken("cut") / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    (broken("no-bytes") / "model.safetensors").write_bytes(b"")
    (broken("html") / "model.safetensors").write_text("<html>Not found</html>")
    (broken("pointer") / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 90868376\n"
    )
    (broken("long-header") / "model.safetensors").write_bytes((1 << 40).to_bytes(8, "little") + whole[8:])
    (broken("config-cut") / "config.json").write_text('{"model_type": "bert", ')
    (broken("config-empty") / "config.json").write_text("")
    (broken("config-list") / "config.json").write_text("[1, 2]")
    (broken("config-gone") / "config.json").unlink()
    config = json.loads((model / "config.json").read_text())
    (broken("other-kind") / "config.json").write_text(json.dumps({**config, "model_type": "brt"}))
    (broken("wider") / "config.json").write_text(json.dumps({**config, "hidden_size": 64}))
    (broken("text-size") / "config.json").write_text(json.dumps({**config, "hidden_size": "wide"}))
    (broken("remote") / "config.json").write_text(
        json.dumps({**config, "model_type": "own", "auto_map": {"AutoModel": "modeling.Own"}})
    )
    (folder / "remote" / "modeling.py").write_text("raise SystemExit('remote code ran')\n")
    modules = json.loads((model / "modules.json").read_text())
    (broken("modules-cut") / "modules.json").write_text("[{")
    (broken("modules-map") / "modules.json").write_text('{"0": "bert"}')
    (broken("own-module") / "modules.json").write_text(
        json.dumps([*modules, {"idx": 9, "name": "9", "path": "9_Own", "type": "own.Module"}])
    )
    (broken("outside") / "modules.json").write_text(
        json.dumps([{**modules[0]}, {**modules[1], "path": "../model/1_Pooling"}, *modules[2:]])
    )
    linked = broken("linked")
    (linked / "model.safetensors").unlink()
    (linked / "model.safetensors").symlink_to(folder / "model" / "model.safetensors")
    without = broken("no-tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        (without / name).unlink(missing_ok=True)
    (broken("tokenizer-cut") / "tokenizer.json").write_text('{"version": "1.0", "mod')
    pickled = broken("pickled")
    (pickled / "model.safetensors").unlink()
    (pickled / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    bare = broken("no-weights")
    (bare / "model.safetensors").unlink()
    pooling = next(path for path in (folder / "model").iterdir() if path.name.endswith("_Pooling")).name
    (broken("pooling-cut") / pooling / "config.json").write_text("{")
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    for name, kind in (("routed", "Router"), ("table", "StaticEmbedding")):
        module = {"idx": 0, "name": "0", "path": "", "type": f"sentence_transformers.models.{kind}"}
        (broken(name) / "modules.json").write_text(json.dumps([module]))
    (folder / "routed" / "router_config.json").write_text('{"structure": {"query": [], "document": []}}')
    (broken("whitened") / "config_sentence_transformers.json").write_text('{"whitening": 64}')


def _collections(folder: Path) -> None:
    def collection(name: str) -> Path:
        base = folder / name
        _lines(base / "corpus.jsonl", [{"_id": f"d{i}", "title": "", "text": t} for i, t in enumerate(TEXTS)])
        _lines(base / "queries.jsonl", [{"_id": f"q{i}", "text": f"which {t}"} for i, t in enumerate(TEXTS)])
        (base / "qrels").mkdir()
        for split, start in (("dev", 0), ("test", 20)):
            judged = "".join(f"q{i}\td{i}\t1\n" for i in range(start, start + 20))
            (base / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
        return base

    collection("search")
    (collection("search-no-dev") / "qrels" / "dev.tsv").unlink()
    broken = {
        "search-columns": "query-id\tcorpus-id\tscore\nq1\td1\n",
        "search-word": "query-id\tcorpus-id\tscore\nq1\td1\thigh\n",
        "search-unknown-query": "query-id\tcorpus-id\tscore\nq999\td1\t1\n",
        "search-unknown-passage": "query-id\tcorpus-id\tscore\nq1\td999\t1\n",
        "search-empty": "",
        "search-header": "query-id\tcorpus-id\tscore\n",
        "search-none-relevant": "query-id\tcorpus-id\tscore\nq1\td1\t0\nq2\td2\t0\n",
        "search-twice": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td1\t2\n",
    }
    for name, content in broken.items():
        (collection(name) / "qrels" / "dev.tsv").write_text(content)
    (collection("search-no-corpus") / "corpus.jsonl").unlink()
    (collection("search-no-queries") / "queries.jsonl").unlink()
    (collection("search-cut-corpus") / "corpus.jsonl").write_text('{"_id": "d1", "text": "a')
    _lines(collection("search-no-id") / "queries.jsonl", [{"text": "a query without an id"}] * 20)
    _lines(collection("search-same-id") / "corpus.jsonl", [{"_id": "d1", "text": text} for text in TEXTS])
    (collection("search-deep") / "queries.jsonl").write_text('{"_id": ' + "[" * 100_000 + "\n")
    (collection("search-latin1") / "qrels" / "dev.tsv").write_bytes("q1\tdü\t1\n".encode("latin-1"))


def _vectors(folder: Path) -> None:
    rng = np.random.default_rng(0)
    good = rng.normal(size=(len(TEXTS), 8)).astype(np.float32)

    def write(name: str, texts: list[str], rows: object, **columns: object) -> None:
        table = {"text": texts, "embedding": rows, **columns}
        pq.write_table(pa.table(table), folder / f"vectors-{name}.parquet")

    def fixed(rows: np.ndarray) -> pa.Array:
        return pa.array(list(rows), pa.list_(pa.float32()))

    write("good", TEXTS, fixed(good))
    spoilt = good.copy()
    spoilt[3, 2] = np.nan
    write("nan", TEXTS, fixed(spoilt))
    spoilt[3, 2] = np.inf
    write("infinite", TEXTS, fixed(spoilt))
    spoilt[3] = 0
    write("zero", TEXTS, fixed(spoilt))
    write("missing", TEXTS[:-3], fixed(good[:-3]))
    write("ragged", TEXTS, pa.array([row[: 8 - at % 2].tolist() for at, row in enumerate(good)]))
    write("null", TEXTS, pa.array([None, *good[1:].tolist()], pa.list_(pa.float32())))
    write("words", TEXTS, [["a", "b"]] * len(TEXTS))
    write("numbers", TEXTS, list(range(len(TEXTS))))
    write("different", [*TEXTS, TEXTS[0]], fixed(np.vstack([good, -good[:1]])))
    write("roles", TEXTS, fixed(good), role=["judge"] * len(TEXTS))
    pq.write_table(pa.table({"body": TEXTS, "numbers": fixed(good)}), folder / "vectors-names.parquet")
    pq.write_table(pa.table({"text": TEXTS}), folder / "vectors-none.parquet")
    (folder / "vectors-empty.parquet").write_bytes(b"")
    np.save(folder / "vectors.npy", good)


def _others(folder: Path) -> None:
    (folder / "file").write_text("no folder\n")
    (folder / "run.txt").write_text("q1 Q0 d1 1 high name\n")
    (folder / "old-runs" / "stores" / "texts-0123456789abcdef").mkdir(parents=True)
    (folder / "other-runs").mkdir()
    (folder / "other-runs" / "workspace.json").write_text('{"format": 99}')
    (folder / "cut-runs").mkdir()
    (folder / "cut-runs" / "workspace.json").write_text('{"form')
    (folder / "glove.txt").write_text("cat 0.1 0.2\ndog 0.1\n")
    (folder / "words.txt").write_text("cat a b c\n")
    _lines(folder / "fever" / "fever" / "train.jsonl", [{"id": 1}])
    for name, score in (("data", "3.0"), ("data-words", "five")):
        data = folder / name / "STSBenchmark"
        data.mkdir(parents=True)
        for split in ("dev", "test"):
            (data / f"sts-{split}.csv").write_text(f"genre\tfile\tyear\t1\t{score}\tA cat.\tA dog.\n")
    (folder / "glue" / "RTE").mkdir(parents=True)
    (folder / "glue" / "RTE" / "train.tsv").write_text("index\tsentence1\nA\tB\n")
    (folder / "good-glue").mkdir()
    for split in ("train", "dev"):
        rows = "".join(f"{i}\t{split} {t}\t{t} {split}\tentailment\n" for i, t in enumerate(TEXTS))
        (folder / "good-glue" / f"{split}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + rows)
