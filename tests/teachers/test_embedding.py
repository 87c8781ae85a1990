import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from local_ray import local_ray
from rows import each_row
from torch import Tensor

from stillhouse.core.artifacts import Workspace, read_json, read_manifest, write_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.core.tokenizing import FastTokenizer, pad
from stillhouse.core.types import IntArray, Tokens
from stillhouse.corpora.tables import open_rows, open_texts, write_rows, write_texts
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers import embedding as embed
from stillhouse.teachers import loading, runtimes, shards
from stillhouse.teachers.embedding import build_stores, resolve_compute
from stillhouse.teachers.kinds import model
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.store import open_store, verify_store
from stillhouse.training import hard_negatives
from stillhouse.training.inputs import get
from stillhouse.values.data import AllRows, Examples, Mined, Model, Store
from stillhouse.values.mining import Mining
from stillhouse.values.stage import Optimizer, Stage


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def build(workspace: Workspace, store: Store) -> dict[str, bytes]:
    build_stores(workspace, [store], local=True)
    assert verify_store(workspace.path(store)) == []
    return files(workspace.path(store))


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_torch_cannot_use_is_refused_with_its_node(workspace: Workspace, store: Store) -> None:
    """The first test of the file: later Ray runs for the others."""
    with local_ray(2, gpus=1), pytest.raises(BadInput) as refused:
        build_stores(workspace, [store], device="cuda")
    said = str(refused.value)
    assert "must offer GPUs that torch can use" in said and "CUDA" in said and "\x1b" not in said


def test_vectors_match_the_teacher(workspace: Workspace, store: Store, texts: list[str]) -> None:
    exact = replace(store, dtype="float32", prompt="name of ")
    seen: list[tuple[int, int]] = []
    build_stores(workspace, [exact], local=True, progress=lambda *now: seen.append(now[:2]))
    assert isinstance(store.teacher, Model)
    teacher = load_sentence_transformer(store.teacher)
    teacher.max_seq_length = store.max_length
    expected = teacher.encode(["name of " + text for text in texts])
    reader = open_store(workspace, exact)
    np.testing.assert_allclose(reader.gather(reader.rows), expected, atol=1e-6)
    assert seen == [(10, 44), (20, 44), (30, 44), (40, 44), (44, 44)]


def test_progress_moves_within_a_shard(workspace: Workspace, store: Store) -> None:
    seen: list[tuple[int, int, float]] = []
    build_stores(workspace, [store], local=True, batch_tokens=32, progress=lambda *now: seen.append(now))
    done = [now[0] for now in seen]
    assert set(done) > {10, 20, 30, 40, 44} and done == sorted(done), "every shard, and batches in between"
    assert len(done) == len(set(done)), "a shard's last batch and its end are one"
    assert seen[-1] == (44, 44, 1.0)


def test_progress_knows_long_texts_from_short_ones(workspace: Workspace, store: Store) -> None:
    """Half of the rows, but little of the work."""
    words = [f"w{number}" for number in range(200)]
    tables = {
        "short": write_texts(workspace, "short", words),
        "long": write_texts(workspace, "long", [" ".join(words[number:]) for number in range(200)]),
    }
    seen: list[tuple[int, int, float]] = []
    stores = [replace(store, texts=table) for table in tables.values()]
    build_stores(workspace, stores, local=True, progress=lambda *now: seen.append(now))
    half = next(now for now in seen if now[0] == 200)
    assert half[1] == 400 and half[2] < 0.4 and seen[-1] == (400, 400, 1.0)


def test_of_the_shards_that_a_pool_is_at_half_is_done(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five shards, two actors: when the first is there, half of two of the other four is done."""
    alone = embed.in_process
    monkeypatch.setattr(model, "through_ray", lambda works, parts, _: alone(works, parts, lambda *_: None))
    seen: list[tuple[int, int, float]] = []
    build_stores(workspace, [store], actors=2, progress=lambda *now: seen.append(now))
    assert [done for done, _, _ in seen] == [10, 20, 30, 40, 44]
    rows = [0.25, 0.25 + 1 / 12, 0.5, 0.5]
    for (done, total, share), at_work in zip(seen, rows, strict=False):
        assert share == pytest.approx(done / total + (1 - done / total) * at_work)
    assert seen[-1][2] == 1.0


def test_the_manifest_accounts_for_every_row(workspace: Workspace, store: Store) -> None:
    build(workspace, store)
    manifest = read_manifest(workspace.path(store))
    assert (manifest["rows"], manifest["duplicates"], manifest["quarantined"]) == (44, 2, 1)
    assert manifest["input_rows"] == 47
    assert (manifest["dim"], manifest["dtype"], manifest["compute"]) == (32, "float16", "float32")
    assert isinstance(store.teacher, Model)
    assert manifest["teacher"] == {"name": store.teacher.name, "sha256": store.teacher.sha256}
    assert [shard["first"] for shard in manifest["shards"]] == [0, 10, 20, 30, 40]


def test_a_finished_store_is_not_built_again(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(workspace, store)
    monkeypatch.setattr(embed, "Embedders", None)
    build_stores(workspace, [store], local=True)


def test_only_missing_shards_are_built(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build(workspace, store)
    folder = workspace.path(store)
    (folder / "manifest.json").unlink()
    (folder / "part-00001.arrow").unlink()
    (folder / "part-00003.arrow").write_bytes(whole["part-00003.arrow"][:-100])
    (folder / ".part-00001.arrow.x.tmp").write_bytes(whole["part-00001.arrow"][:50])
    built_shards: list[int] = []
    tokenise = shards.tokenise

    def counted(work: shards.Work, part: int) -> tuple[IntArray, IntArray]:
        built_shards.append(part)
        return tokenise(work, part)

    monkeypatch.setattr(embed, "tokenise", counted)
    assert build(workspace, store) == whole
    assert built_shards == [1, 3]
    assert not list(folder.glob(".*"))
    assert read_manifest(folder)["rows_this_run"] == 20


def test_a_store_all_of_whose_shards_are_empty_files_is_built(workspace: Workspace, store: Store) -> None:
    whole, folder = build(workspace, store), workspace.path(store)
    (folder / "manifest.json").unlink()
    for shard in folder.glob("part-*.arrow"):
        shard.write_bytes(b"")
    assert build(workspace, store) == whole


def test_a_shard_with_other_bytes_beside_its_vectors_is_written_again(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flipped bit in what nobody reads must not give the finished store another checksum."""
    whole, folder = build(workspace, store), workspace.path(store)
    (folder / "manifest.json").unlink()
    with pa.ipc.open_file(folder / "part-00002.arrow") as reader:
        batch, notes = reader.get_batch(0), {**reader.schema.metadata, b"nobody": b"reads this"}
    with pa.ipc.new_file(folder / "part-00002.arrow", batch.schema.with_metadata(notes)) as writer:
        writer.write_batch(pa.record_batch(batch.columns, schema=batch.schema.with_metadata(notes)))
    assert (folder / "part-00002.arrow").read_bytes() != whole["part-00002.arrow"]
    monkeypatch.setattr(embed, "tokenise", None)
    assert build(workspace, store) == whole


def test_a_shard_of_another_text_length_or_dtype_is_rebuilt(workspace: Workspace, store: Store) -> None:
    whole, other = build(workspace, store), build(workspace, replace(store, dtype="float32"))
    folder = workspace.path(store)
    (folder / "manifest.json").unlink()
    (folder / "part-00000.arrow").write_bytes(whole["part-00004.arrow"])
    (folder / "part-00001.arrow").write_bytes(other["part-00001.arrow"])
    assert build(workspace, store) == whole


def failing(encoder: Callable[[Tokens], Tensor]) -> Callable[[Tokens], Tensor]:
    """Return a teacher that gives NaN for texts of 32 tokens, a huge number for 8, only zeros for 7."""

    def forward(tokens: Tokens) -> Tensor:
        vectors, lengths = encoder(tokens).clone(), tokens.attention_mask_BT.sum(1)
        vectors[lengths == 32, 3] = float("nan")
        vectors[lengths == 8, 0] = 1e6
        vectors[lengths == 7] = 0
        return vectors

    return forward


def test_unstorable_vectors_are_quarantined(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(workspace, replace(store, dtype="float32"))
    real = loading.as_encoder
    monkeypatch.setattr(runtimes, "as_encoder", lambda *given: failing(real(*given)))
    build(workspace, store)
    folder = workspace.path(store)
    manifest, rejected = read_manifest(folder), read_json(folder / "quarantine.json")
    reasons = {row["row"]: row["reason"] for row in rejected}
    assert reasons[43] == "the teacher's vector holds NaN or infinity"
    assert any("1e+06 does not fit in float16" in reason for reason in reasons.values())
    assert any("has only zeros" in reason for reason in reasons.values())
    assert manifest["rows"] == 44 - len(rejected)
    assert manifest["input_rows"] == manifest["rows"] + manifest["quarantined"] + manifest["duplicates"]
    reader = open_store(workspace, store)
    assert len(reader) == len(reader.rows) == manifest["rows"]
    assert not set(reader.rows.tolist()) & set(reasons)
    assert reader.lacking.tolist() == sorted(reasons)
    good = open_store(workspace, replace(store, dtype="float32")).gather(reader.rows)
    np.testing.assert_allclose(reader.gather(reader.rows), good, atol=1e-3)
    assert 0 < min(reasons) < max(reader.rows) // 2, "vectors follow those that are missing"
    with pytest.raises(BadInput, match=r"rows .*quarantined"):
        reader.gather(np.array([0, 43]))
    (folder / "manifest.json").unlink()
    (folder / "part-00002.arrow").unlink()
    build(workspace, store)
    assert read_json(folder / "quarantine.json") == rejected


def test_bfloat16_is_close_but_makes_a_different_store(workspace: Workspace, store: Store) -> None:
    if resolve_compute("cpu") != "bfloat16":
        pytest.skip("this machine has no bfloat16")
    half = replace(store, compute="bfloat16")
    assert build(workspace, half) != build(workspace, store)
    near, exact = (open_store(workspace, s).gather(np.arange(44)) for s in (half, store))
    assert (near * exact).sum(1).min() > 0.999


def test_compute_is_resolved_once_and_checked(
    monkeypatch: pytest.MonkeyPatch, workspace: Workspace, store: Store
) -> None:
    assert resolve_compute("cpu", "float32") == "float32"
    assert resolve_compute("mps", "auto") == "float32"
    with pytest.raises(BadInput, match="compute in"):
        resolve_compute("cpu", "float64")
    monkeypatch.setattr(embed, "_has_bfloat16", lambda kind: False)
    assert resolve_compute("cpu", "auto") == "float32"
    with pytest.raises(BadInput, match="hardware that supports bfloat16"):
        build_stores(workspace, [replace(store, compute="bfloat16")], local=True)


@each_row(
    ("info", "by_default"),
    [
        ("AuthenticAMD avx512_bf16", "bfloat16"),
        ("GenuineIntel avx512_bf16 amx_bf16", "bfloat16"),
        ("GenuineIntel avx512_bf16", "float32"),  # AMX is hidden
        ("AuthenticAMD avx2", "float32"),
    ],
)
def test_bfloat16_is_taken_where_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, info: str, by_default: str
) -> None:
    monkeypatch.setattr(embed, "_cpu_info", lambda: info)
    assert resolve_compute("cpu") == by_default


def test_a_finished_stage_can_be_the_teacher(workspace: Workspace, store: Store) -> None:
    from safetensors.torch import save_file

    student = spec(TransformerStudent, base=store.teacher, layers=(0, 3))
    examples = Examples({"text": store.texts}, AllRows())
    objective, optimizer = spec(torch.nn.MSELoss), Optimizer(1e-3)
    stage = Stage("distil", student, objective, examples, {"text": store}, 20, 10, optimizer)
    taught = replace(store, teacher=stage)
    with pytest.raises(BadInput, match="teacher's stage must be finished"):
        build_stores(workspace, [taught], local=True)
    trained = student.build().eval()
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.mul_(1.01)
    workspace.path(stage).mkdir(parents=True)
    save_file(trained.state_dict(), workspace.path(stage) / "student.safetensors")
    write_manifest(workspace.path(stage), {"weights_sha256": "abc"})
    build(workspace, taught)
    assert read_manifest(workspace.path(taught))["teacher"]["sha256"] == "abc"
    tokens = FastTokenizer(Path(trained.tokenizer.path), store.max_length)
    ids, offsets = tokens(open_texts(workspace, store.texts).shard(0)[:1])
    with torch.inference_mode():
        expected = trained(pad(ids, offsets[:1], offsets[1:], 0)).embedding_BD
    np.testing.assert_allclose(open_store(workspace, taught).gather(np.array([0])), expected, atol=1e-3)


def test_impossible_stores_are_refused_before_writing(workspace: Workspace, store: Store) -> None:
    assert isinstance(store.teacher, Model)
    changed = replace(store, teacher=replace(store.teacher, sha256="0" * 64))
    with pytest.raises(BadInput, match="weights that the plan names"):
        build_stores(workspace, [changed], local=True)
    with pytest.raises(BadInput, match="actors >= 1"):
        build_stores(workspace, [store], actors=0, local=True)
    with pytest.raises(BadInput, match="texts must be read before"):
        build_stores(Workspace(workspace.root / "other"), [store], local=True)
    assert not list((workspace.root / "stores").glob("*/*"))


def test_the_number_of_threads_is_restored(workspace: Workspace, store: Store) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    build_stores(workspace, [store], local=True, threads=1)
    found = torch.get_num_threads()
    torch.set_num_threads(before)
    assert found == 3


def slow_build(workspace: Workspace, store: Store, told: Connection) -> None:
    """Build a store, and stand still after two shards."""

    def progress(done: int, total: int, share: float) -> None:
        told.send(done)
        time.sleep(30 if done == 20 else 0)

    torch.set_num_threads(1)
    build_stores(workspace, [store], local=True, progress=progress)


def test_a_killed_build_continues_to_the_same_bytes(
    workspace: Workspace, store: Store, tmp_path: Path
) -> None:
    fork = multiprocessing.get_context("fork")
    told, telling = fork.Pipe(duplex=False)
    process = fork.Process(target=slow_build, args=(workspace, store, telling), daemon=True)
    process.start()
    assert told.poll(60) and told.recv() == 10 and told.poll(60) and told.recv() == 20
    process.kill()
    process.join()
    folder = workspace.path(store)
    assert sorted(files(folder)) == ["part-00000.arrow", "part-00001.arrow"]
    (problem,) = verify_store(folder)
    assert "unfinished: 2 shards" in problem
    torch.set_num_threads(1)
    resumed = build(workspace, store)
    assert read_manifest(folder)["rows_this_run"] == 24
    straight = Workspace(tmp_path / "straight")
    straight.claim()
    (straight.root / "corpora").symlink_to(workspace.root.resolve() / "corpora")
    assert build(straight, store) == resumed


def damaged(workspace: Workspace, store: Store) -> Store:
    """Return the plan of a store whose texts have a truncated second shard."""
    texts = write_texts(workspace, "damaged", [f"row {i}" for i in range(30)], rows_per_shard=10)
    path = workspace.path(texts) / "part-00001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    return replace(store, texts=texts)


def test_the_error_without_ray_says_what_to_do(workspace: Workspace, store: Store) -> None:
    with pytest.raises(BadInput, match="Ray must be running before"):
        build_stores(workspace, [store])


Shares = tuple[list[dict[str, float]], bool, int, int, str, dict[str, float], dict[str, float]]
SHARES: list[Shares] = [
    # On nodes that stay, all actors fit beside tasks, however many are asked for.
    ([{"CPU": 2.0}], False, 2, 1, "cpu", {"num_cpus": 0.5}, {"num_cpus": 0.5}),
    ([{"CPU": 16.0, "GPU": 4.0}], False, 4, 2, "cuda", {"num_cpus": 0.5}, {"num_cpus": 2.0, "num_gpus": 1.0}),
    ([{"CPU": 16.0, "GPU": 1.0}], False, 2, 2, "cuda", {"num_cpus": 0.5}, {"num_cpus": 2.0, "num_gpus": 0.5}),
    # On nodes that come, each actor has its own, and a task fits beside it even on a node of one CPU.
    ([], True, 64, 1, "cpu", {"num_cpus": 0.1}, {"num_cpus": 0.9}),
    ([{"CPU": 1.0}], True, 64, 4, "cpu", {"num_cpus": 0.1}, {"num_cpus": 0.9}),
    ([{"CPU": 8.0}], True, 64, 4, "cpu", {"num_cpus": 0.1}, {"num_cpus": 3.6}),
    ([], True, 9, 2, "cuda", {"num_cpus": 0.1}, {"num_cpus": 1.8, "num_gpus": 1.0}),
    (
        [{"CPU": 1.0, "GPU": 1.0}, {"CPU": 32.0}],
        True,
        9,
        2,
        "cuda",
        {"num_cpus": 0.1},
        {"num_cpus": 0.9, "num_gpus": 1.0},
    ),
]


@pytest.mark.parametrize(("up", "growing", "actors", "threads", "device", "task", "actor"), SHARES)
def test_actors_and_tasks_have_room_together(
    workspace: Workspace,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    up: list[dict[str, float]],
    growing: bool,
    actors: int,
    threads: int,
    device: str,
    task: dict[str, float],
    actor: dict[str, float],
) -> None:
    """An autoscaled cluster of small nodes once stood still: its actors held every CPU, and no task ran."""
    monkeypatch.setattr(embed, "nodes_up", lambda: [({"CPU": 0.0}, 1.0), *((shape, 1.0) for shape in up)])
    monkeypatch.setattr(embed, "nodes_to_come", list)
    monkeypatch.setattr(embed, "grows", lambda: growing)
    work = shards.Work(store, workspace.root, None, device, threads)
    for found, expected in zip(embed._resources(work, actors), (task, actor), strict=True):
        assert found == pytest.approx(expected, abs=0.011)


@pytest.mark.parametrize(
    ("growing", "asked", "shards_left", "actors"),
    [
        (False, 10_000, 30, 30),
        (False, 2, 30, 2),
        (True, 10_000, 30, 4),
        (True, 10_000, 80, 10),
        (True, 6, 80, 6),
    ],
)
def test_a_node_is_asked_for_only_if_it_has_enough_to_do(
    workspace: Workspace,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    growing: bool,
    asked: int,
    shards_left: int,
    actors: int,
) -> None:
    """Four actors fit on the nodes there are; each further one must have eight shards."""
    monkeypatch.setattr(embed, "grows", lambda: growing)
    monkeypatch.setattr(embed, "teacher_actors", lambda device, *, grown: 0 if grown else 4)
    work = shards.Work(store, workspace.root, None, "cpu", 1)
    assert embed._worth_starting(work, asked, shards_left) == actors


PRODUCTS = """
import sys, torch
from pathlib import Path

def held():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss_Anon")).split()[1]) / 1024

torch.set_num_threads(1)
layer = torch.nn.Linear(32, 64).bfloat16()
with torch.inference_mode():
    for tokens in range(100, 110):
        layer(torch.ones(tokens, 32, dtype=torch.bfloat16))
    before = held()
    for tokens in range(200, 900):
        layer(torch.ones(tokens, 32, dtype=torch.bfloat16))
print(held() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux tells what a process holds")
def test_an_actors_memory_does_not_grow_with_the_shapes_of_its_batches() -> None:
    """Over ten million texts an actor grew from 0.7 to 1.0 GB, by what was compiled for each shape."""
    environment = {**os.environ, **embed._environment(1)}
    done = subprocess.run(
        [sys.executable, "-c", PRODUCTS], env=environment, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 40, f"{done.stdout} MB for 700 shapes"


@pytest.fixture(scope="module")
def on_ray() -> Iterator[None]:
    with local_ray(2):
        yield


@pytest.mark.ray
@pytest.mark.long
def test_the_bytes_do_not_depend_on_the_number_of_actors(
    workspace: Workspace, store: Store, tmp_path: Path, on_ray: None, capfd: pytest.CaptureFixture[str]
) -> None:
    corpora = workspace.root.resolve() / "corpora"
    built_shards = []
    for actors in (1, 2):
        space = Workspace(tmp_path / f"by-{actors}")
        space.claim()
        (space.root / "corpora").symlink_to(corpora)
        seen: list[tuple[int, int, float]] = []
        capfd.readouterr()
        build_stores(space, [store], actors=actors, progress=lambda *now, seen=seen: seen.append(now))
        # Ray's C++ core remarks on every actor that has arguments and may start again.
        told = [line for line in capfd.readouterr().err.splitlines() if "core_worker.cc" not in line]
        assert not told
        assert seen[-1] == (44, 44, 1.0) and len(seen) == 5
        assert verify_store(space.path(store)) == []
        built_shards.append(files(space.path(store)))
    with pytest.raises(BadInput, match="must be read before they are embedded") as refusal:
        build_stores(workspace, [damaged(workspace, store)], actors=2)
    assert "Traceback" not in str(refusal.value)
    assert "part-00001.parquet has changed since it was written. It was moved to" in capfd.readouterr().err
    torch.set_num_threads(1)
    assert built_shards[0] == built_shards[1] == build(workspace, store)


@pytest.mark.ray
@pytest.mark.long  # In one process they are mined in tests/training/test_hard_negatives.py.
def test_hard_negatives_on_ray_equal_those_of_one_process(
    workspace: Workspace,
    store: Store,
    on_ray: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(hard_negatives, "QUERY_TILE", 10)
    build(workspace, store)
    columns = {"query": store.texts, "passage": store.texts}
    rows = open_store(workspace, store).rows
    pairs = write_rows(workspace, columns, {"query": rows, "passage": np.roll(rows, 1)}, "pairs")
    rule = Mined(pairs, store, store, negatives=2, mining=Mining(relative_margin=-1.0, sampling="random"))
    examples, found = Examples({**columns, "negatives": store.texts}, rule, "mined"), []
    for local in (False, True):
        get([examples], workspace, **Embedding(local=local).resources())
        found.append(open_rows(workspace, examples)["negatives"].tolist())
        shutil.rmtree(workspace.path(examples))
    assert found[0] == found[1] and len(found[0]) > 20
    assert "mining:" in capsys.readouterr().err
