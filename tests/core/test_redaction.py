"""No secret leaves through a message, a log, a file or the tracker."""

import base64
import json
import logging
import os
import pickle
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from rows import each_row

from stillhouse.core.artifacts import read_manifest, write_json, write_manifest
from stillhouse.core.console import diverted_chatter, log_failure, say, warn
from stillhouse.core.errors import BadInput
from stillhouse.core.integrity import is_whole
from stillhouse.core.redaction import CREDENTIALS, redacted, redacted_json, remember, remembering
from stillhouse.core.remotes import Remote
from stillhouse.tracking.journal import Journal
from stillhouse.tracking.location import tracking_uri


@each_row(
    ("text", "shown"),
    [
        ("http://ann:hunter2@host:5000/x", "http://***@host:5000/x"),
        ("http://ann:hun/ter2@host/x", "http://***@host/x"),
        ("http://ann:hun@ter2@host/x", "http://***@host/x"),
        ("http://ann:hun@te/r2@host/x", "http://***@host/x"),
        ("https://hf_abcdef@huggingface.co/data", "https://***@huggingface.co/data"),
        ("s3://AKIA12:se/cr+et@bucket/part.parquet", "s3://***@bucket/part.parquet"),
        ("postgresql+psycopg://ann:hunter2@db.local/mlflow", "postgresql+psycopg://***@db.local/mlflow"),
        ("https://ann:hunter2@git.example.org/pkg@v1/x", "https://***@git.example.org/pkg@v1/x"),
        ("https://x.org/a.jsonl?token=abc&split=train", "https://x.org/a.jsonl?token=***&split=train"),
        ("https://x.org/a?X-Amz-Signature=abc&X-Amz-Credential=d/e", None),
        ("s3://bucket/a?access_key=abc&secret_key=abc", "s3://bucket/a?access_key=***&secret_key=***"),
        ("https://b.blob.core/x?sv=1&sig=abc%3D", "https://b.blob.core/x?sv=1&sig=***"),
        ("Authorization: Bearer abcdef.ghi", "Authorization: Bearer ***"),
        ("Authorization: Token abcdef.ghi", "Authorization: Token ***"),
        ("Authorization: Digest username=x, response=abcdef", None),
        ("X-Auth-Token: abcdef.ghi", "X-Auth-Token: ***"),
        ("x-goog-api-key: abcdef.ghi", "x-goog-api-key: ***"),
        ("hf://datasets/ann:hunter2@x/none", "hf://datasets/***@x/none"),
        ("http://127.0.0.1:9/?pat=abcdef", "http://127.0.0.1:9/?pat=***"),
        ("https://x.org/?jwt=abcdef&n=1", "https://x.org/?jwt=***&n=1"),
        ("dbname=mlflow password=hunter2 host=x", "dbname=mlflow password=*** host=x"),
    ],
)
def test_secrets_of_urls_are_hidden(text: str, shown: str | None) -> None:
    for sentence in ("{}", "cannot reach {} : refused", "['{}']", '{{"source": "{}"}}'):
        found = redacted(sentence.format(text))
        for secret in ("hunter2", "ter2", "r2@", "hf_abc", "AKIA", "se/cr", "=abc", "d/e", "abcdef"):
            assert secret not in found
        assert shown is None or found == sentence.format(shown)


@each_row(
    "text",
    [
        "https://example.org/pkg@v1/file.txt",
        "mail me@example.org about http://host:5000/runs",
        "sqlite:////home/me@work/mlflow.db?mode=ro",
        "batch_tokens=4096 key=value monkey=3",
        "https://x.org/?tokenizer=bert&keyword=a",
        "precision@10 = 0.5",
    ],
)
def test_other_texts_are_left_as_they_are(text: str) -> None:
    assert redacted(text) == text


def test_secrets_of_the_environment_are_hidden_wherever_they_appear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "swordfish")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:open/sesame@host")
    monkeypatch.setenv("PWD", "/somewhere")
    assert redacted("401 for ann:open/sesame (swordfish)") == "401 for *** (***)"
    assert redacted("/somewhere") == "/somewhere"


@each_row(
    "name", [*CREDENTIALS, "MINIO_SECRET_KEY", "DB_PASS", "MYSQL_PWD", "GITHUB_PAT", "VAULT_PASSPHRASE"]
)
def test_every_variable_that_a_client_reads_a_credential_from_is_hidden(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "AccountName=ann;AccountKey=Hunter2hunter2=;EndpointSuffix=x"
    monkeypatch.setenv(name, value)
    assert redacted(f"no access with {value}") == "no access with ***"
    assert "STRING" not in name or redacted("the key Hunter2hunter2= is wrong") == "the key *** is wrong"
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    assert name not in CREDENTIALS or f"`{name}`" in page


def test_a_process_that_is_given_a_remote_hides_its_keys_too() -> None:
    with remembering([]):
        given = pickle.dumps(Remote("s3://AKIA12345678:geheim/12@bucket"))
    with remembering([]):
        assert redacted("AccessDenied for AKIA12345678:geheim/12") != "AccessDenied for ***"
        assert pickle.loads(given).url.startswith("s3://")
        assert redacted("AccessDenied for AKIA12345678:geheim/12") == "AccessDenied for ***"


def test_lines_that_others_append_while_a_log_is_redacted_stay(tmp_path: Path) -> None:
    with diverted_chatter(tmp_path, verbose=False):
        (log,) = tmp_path.iterdir()
        other = log.open("ab", buffering=0)
        os.write(2, b"reached http://ann:hunter2@host/x\nand went on\n")
        other.write(b"another process")
    other.write(b" goes on\n")
    other.close()
    lines = [line.rstrip() for line in log.read_text().splitlines()]
    assert lines == ["reached http://***@host/x", "and went on", "another process goes on"]


@each_row("password", ["a'hunter2", "hunter2 hunter2", 'x"hunter2', "<hunter2>", "a|hunter2`"])
def test_a_password_may_have_any_characters(password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://ann:{password}@127.0.0.1:9")
    shown = redacted(f"cannot reach http://ann:{password}@127.0.0.1:9, as {password} is wrong")
    assert shown == "cannot reach http://***@127.0.0.1:9, as *** is wrong"


def test_secrets_of_urls_in_the_environment_are_hidden_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:sesame@proxy:3128")
    monkeypatch.setenv("DATABASE", "postgresql://mlflow@host/mlflow")
    assert redacted("407: sesame is wrong; mlflow needs a password") == (
        "407: *** is wrong; mlflow needs a password"
    )


def test_secrets_of_a_command_are_hidden_in_every_form_while_it_runs() -> None:
    secret = "open/sesame+1"
    url = f"s3://AKIAABCDEFGHIJKL:{quote(secret, safe='')}@bucket/x?sig=geheim"
    with remembering([url, "--root", "runs"]):
        for form in (secret, quote(secret), quote(secret, safe=""), "AKIAABCDEFGHIJKL", "geheim"):
            assert redacted(f"the key ({form}) is wrong") == "the key (***) is wrong"
        for before in ("", "a", "ab"):
            for coded in (base64.b64encode, base64.urlsafe_b64encode):
                hidden = redacted(coded(f"{before}:{secret}?>".encode()).decode())
                assert "***" in hidden and len(hidden) <= 11, "at most the letters at the two ends are left"
        remember(f"http://ann:{'later' * 2}@host")
        assert redacted("laterlater") == "***" and redacted("runs") == "runs"
    assert redacted(f"{secret} laterlater geheim") == f"{secret} laterlater geheim"


def test_nested_values_keep_their_keys_and_numbers() -> None:
    given = {"corpus": ["http://a:bcdefg@h/x", 3, None], "n": {"f": 0.5}}
    assert redacted_json(given) == {"corpus": ["http://***@h/x", 3, None], "n": {"f": 0.5}}
    assert redacted_json({"http://a:bcdefg@h/x": 1, 2: "y"}) == {"http://***@h/x": 1, 2: "y"}


def test_every_way_out_hides_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://ann:hun/ter2@host/x?token=geheim"
    say(url)
    warn(url)
    try:
        raise ValueError(url)
    except ValueError as error:
        log_failure(error, tmp_path)
    with diverted_chatter(tmp_path / "logs", verbose=False):
        logging.getLogger("library").warning("cannot reach %s", url)
        print(f"python code reached {url}", file=sys.stderr)
        print(f"a library reached {url}")
        (log,) = (tmp_path / "logs").iterdir()
        assert log.read_text().count("http://***@host/x?token=***\n") == 3, "at once"
        os.write(2, f"compiled code reached {url}\n".encode())
    write_json(tmp_path / "source.json", {"source": url})
    journal = Journal(tmp_path / "sweep")
    journal.append(
        do="run", key=["s"], name="s", parameters={"corpus": url}, tags={"u": url}, documents={"d": url}
    )
    journal.append(do="describe", key=["s"], subject="x", tags={}, name="", note=f"from {url}")
    journal.close()
    printed = capsys.readouterr()
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert sum("***" in text for text in written) >= 4
    assert sum(text.count(" reached http://***@host/x?token=***") for text in written) == 3
    for text in (printed.out, printed.err, *written):
        assert "ter2" not in text and "geheim" not in text


def test_the_message_on_a_wrong_tracking_uri_does_not_repeat_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file://ann:hunter2@host/runs")
    with pytest.raises(BadInput) as refused:
        tracking_uri(tmp_path)
    assert "hunter2" not in str(refused.value) and "***@host" in str(refused.value)


@each_row("word", ["finetune", "corpus", "passage", "runs-1", "123456", "ubuntu"])
def test_a_secret_that_is_an_ordinary_word_alters_nothing_that_is_read_back(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", word)
    folder = tmp_path / word / f"{word}-0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / f"{word}.txt").write_text(word)
    content = {"plan": {"label": word}, "path": str(folder), "seconds": 1.0}
    write_manifest(folder, content)
    assert is_whole(folder, contents=True)
    assert content.items() <= read_manifest(folder).items()


def test_a_redacted_identity_is_stable(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"corpus": "https://x.org/a?token=abc"})
    once = json.loads((tmp_path / "a.json").read_text())
    assert redacted_json(once) == once
