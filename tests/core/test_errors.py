"""Error messages that a user sees, wherever the mistake was found."""

import errno
import pickle
import resource

import pytest
from rows import each_row

from stillhouse.core.errors import BadInput, Hindered, blocked, mistake_in, nearest, require


def test_message_has_rule_given_value_and_remedy() -> None:
    with pytest.raises(BadInput, match=r"^`rate > 0` must hold, but got rate=0\. Try 1e-4\.$"):
        require(False, "rate > 0", rate=0, remedy="Try 1e-4.")


def test_a_rule_in_words_is_a_sentence_with_must() -> None:
    with pytest.raises(
        BadInput, match=r"^a grid must list its values, but got ranges=\['a'\]\. List them\.$"
    ):
        require(False, "a grid must list its values", ranges=["a"], remedy="List them.")


def test_advice_added_by_a_library_is_dropped() -> None:
    mistake = Hindered("no room.")
    mistake.args = ("no room.\nTo change retry attempts, configure the context.",)
    travelled = pickle.loads(pickle.dumps(mistake))
    assert type(travelled) is Hindered and str(travelled) == "no room."


@each_row(
    "raised",
    [
        OSError(28, "No space left on device"),
        OSError(122, "Disk quota exceeded"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
        RuntimeError("(sqlite3.OperationalError) database or disk is full"),
    ],
)
def test_a_full_disk_behind_another_error(raised: Exception) -> None:
    try:
        try:
            raise raised
        except Exception as error:
            raise ValueError("a trial ended") from error
    except ValueError as wrapped:
        mistake = mistake_in(wrapped)
    assert isinstance(mistake, Hindered) and "must be room on the disk" in str(mistake)


@pytest.mark.parametrize(
    "raised",
    [
        OSError(errno.EROFS, "Read-only file system", "/runs/.lock"),
        RuntimeError("(sqlite3.OperationalError) attempt to write a readonly database"),
    ],
)
def test_a_read_only_workspace_is_one_message(raised: Exception) -> None:
    mistake = mistake_in(raised)
    assert isinstance(mistake, Hindered) and "give another --root" in str(mistake)


def test_any_other_error_is_not_the_users_mistake() -> None:
    assert mistake_in(RuntimeError("a bug")) is None


def test_similar_names_are_suggested() -> None:
    assert nearest("disstil", ["distil", "finetune"]) == "Did you mean distil?"


@each_row(
    ("number", "remedy"),
    [
        (errno.EIO, "Check the disk"),
        (errno.EROFS, "Check the disk"),
        (errno.EACCES, "Check the disk"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EFBIG, "ulimit -f"),
    ],
)
def test_a_refusal_of_the_system_names_the_file_and_what_to_do(number: int, remedy: str) -> None:
    mistake = mistake_in(OSError(number, "refused", "runs/a.npy"))
    assert isinstance(mistake, Hindered)
    assert str(mistake).startswith("runs/a.npy must be accessible, but the system answered: refused.")
    assert remedy in str(mistake) and "same command again" in str(mistake)


def test_memory_that_ends_while_a_file_is_mapped_is_named() -> None:
    assert "enough memory" in str(blocked("part-0.arrow", OSError(errno.ENOMEM, "Cannot allocate memory")))


def test_an_error_inside_of_compiled_code_is_about_memory_only_where_it_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = (SystemError("error return without exception set"), RuntimeError("could not create a primitive"))
    for limit, found in ((1 << 30, True), (resource.RLIM_INFINITY, False)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert all((mistake_in(error) is not None) == found for error in errors)


def test_memory_that_is_refused_is_named() -> None:
    said = (
        "DefaultCPUAllocator: can't allocate memory: you tried 9",
        "can't start new thread",
        "libcrypto.so.3: failed to map segment from shared object",
    )
    for error in (MemoryError(), *map(RuntimeError, said)):
        assert "there must be enough memory" in str(mistake_in(error))
