"""Redaction: what may be printed, logged, tracked or written of a text that may contain secrets.

Everything that leaves the process as text passes here: printed lines, logs, JSON files, MLflow, model cards.
"""

import base64
import contextlib
import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"

_WORDS = (
    "token(?!iz)|secret|passw|passphr|pwd|jwt|bearer|api_?key|access_?key|account_?key|key_?id|signature|"
    "credential|auth|session|sas"
)
_NAME = rf"(?:[\w.-]*(?:{_WORDS})[\w.-]*|key|sig|code|pass|pat)"
_PARAMETER = re.compile(rf"([?&;#]{_NAME}=)([^&\s'\"<>#;]*)", re.IGNORECASE)
_WITH_USER = re.compile(r"([A-Za-z][\w+.-]*://)([^\s'\"<>`|]*@)")
_IN_PATH = re.compile(r"(://[^\s'\"<>`|@:]*/)([^\s'\"<>`|@:/]+:[^\s'\"<>`|@/]+)(?=@)")
"""A user with a password behind the first slash, as in ``hf://datasets/user:password@name``."""
_SETTING = re.compile(r"((?<![^\s'\"])(?:password|passwd|passphrase)\s?=\s?)([^\s'\"]+)", re.IGNORECASE)
"""A setting of a connection, as in ``host=a password=b``."""
_HOST = re.compile(r"[^@]*@((?:[\w-]+(?:\.[\w-]+)+|localhost|\[[0-9a-fA-F:]+\])(?::\d+)?)")
_HEADER = re.compile(
    r"((?:authorization|(?:x-)?(?:goog-)?api-key|x-auth-token|cookie)['\"]?\s*[:=]\s*['\"]?)"
    r"(?:(digest )[^\r\n]+|((?:bearer |basic |token |apikey )?)[^\s'\",]+)",
    re.IGNORECASE,
)
CREDENTIALS = {
    "STILLHOUSE_API_KEY": "key of an endpoint; `teacher.requests.key_variable` names another variable",
    "MLFLOW_TRACKING_PASSWORD": "password of an MLflow server",
    "MLFLOW_TRACKING_TOKEN": "token of an MLflow server",
    "PGPASSWORD": "password of the Postgres of a sweep's study",
    "AWS_ACCESS_KEY_ID": "S3",
    "AWS_SECRET_ACCESS_KEY": "S3",
    "AWS_SESSION_TOKEN": "S3, with temporary keys",
    "AWS_SECURITY_TOKEN": "S3, an older name of the same",
    "AZURE_STORAGE_KEY": "Azure storage",
    "AZURE_STORAGE_ACCOUNT_KEY": "Azure storage, another name of the same",
    "AZURE_STORAGE_CONNECTION_STRING": "Azure storage, as MLflow's client reads it",
    "AZURE_STORAGE_SAS_TOKEN": "Azure storage, as MLflow's client reads it",
    "AZURE_CLIENT_SECRET": "Azure, for an application",
    "HF_TOKEN": "the Hugging Face hub",
    "HUGGING_FACE_HUB_TOKEN": "the Hugging Face hub, an older name of the same",
    "RAY_AUTH_TOKEN": "a Ray cluster",
}
"""Every environment variable that we or our clients read a credential from, and whose it is."""
_VARIABLE = re.compile(
    r"(PASSWORD|PASSWD|PASSPHRASE|_PWD|(^|_)PASS|(^|_)PAT|SECRET|TOKEN|CREDENTIALS?|CONNECTION_STRING|"
    r"(API|ACCESS|ACCOUNT|STORAGE|SECRET|PRIVATE)_?KEY(_ID)?)$",
    re.IGNORECASE,
)
_LEAST = 6
"""Characters of the shortest secret that is looked for by its value: shorter ones occur in ordinary words."""
_LEAST_ALONE = 16
"""The same for a user without a password, which is a token if it is that long, and else a name."""

_remembered: set[str] = set()


def names_secret(variable: str) -> bool:
    """Return whether the value of an environment variable of this name is hidden wherever it appears."""
    return variable in CREDENTIALS or _VARIABLE.search(variable) is not None


def redacted(text: str) -> str:
    """Replace the secrets in a text by ``***``.

    Hidden are the user and password of a URL (also with ``/`` and ``@`` in them), parameters of URLs such as
    ``?token=``, and wherever they appear, also URL-encoded, decoded or within base64: the values of
    environment variables whose names say that they are secret, and the secrets of URLs that are in the
    environment or that were given to `remember`.
    """
    return _redacted(text, _known_secrets())


def remember(*texts: str) -> None:
    """Hide the secrets of the URLs in these texts wherever they appear: libraries quote parts of URLs."""
    for text in texts:
        _remembered.update(_secrets_of_url(text))


@contextlib.contextmanager
def remembering(texts: Iterable[str]) -> Iterator[None]:
    """Remember the secrets of these texts, and all that are remembered in the block, until it ends."""
    before = set(_remembered)
    remember(*texts)
    try:
        yield
    finally:
        _remembered.intersection_update(before)


def redacted_json(content: Any) -> Any:
    """Redact the secrets of addresses in every string of a nested value, and in keys that have a URL.

    The values of variables stay: a program reads back what it has written, and names, paths, sums and plans
    must be what they were, even if a part of one happens to be a password. Where an error becomes text,
    `redacted` hides them too.
    """
    secrets = _known_secrets(of_variables=False)

    def name_of(key: Any) -> Any:
        return _redacted(key, secrets) if isinstance(key, str) and "://" in key else key

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return _redacted(value, secrets)
        if isinstance(value, Mapping):
            return {name_of(key): walk(item) for key, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, (list, tuple)) else value

    return walk(content)


def _redacted(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    if "://" in text:
        text = _WITH_USER.sub(_without_user, text)
        text = _IN_PATH.sub(rf"\g<1>{HIDDEN}", text)
    if "=" in text:
        text = _PARAMETER.sub(rf"\g<1>{HIDDEN}", text)
        text = _SETTING.sub(rf"\g<1>{HIDDEN}", text)
    return _HEADER.sub(rf"\g<1>\g<2>\g<3>{HIDDEN}", text) if ":" in text or "=" in text else text


def _without_user(found: re.Match[str]) -> str:
    """Hide the user and the password."""
    user = _user_in(found[2])
    return f"{found[1]}{HIDDEN}{found[2][len(user) :]}" if user else found[0]


def _user_in(before: str) -> str:
    """The user, with the password, in what a URL has up to its last ``@``; that may be part of the path."""
    head, slash, _ = before.partition("/")
    if slash and _HOST.fullmatch(head):
        return head.partition("@")[0]
    return "" if slash and not ({"@", ":"} & set(head)) else before[:-1]


def _known_secrets(*, of_variables: bool = True) -> list[str]:
    """Return the secrets in the environment and those that are remembered, the longest first."""
    found = set(_remembered)
    for name, value in os.environ.items():
        is_path = value.startswith("/")
        if of_variables and len(value) >= _LEAST and names_secret(name) and not is_path:
            found |= {value, *(parameter[2] for parameter in _PARAMETER.finditer(value))}
        if "://" in value:
            found |= _secrets_of_url(value)
    return sorted({form for secret in found for form in _forms(secret)}, key=len, reverse=True)


def _secrets_of_url(text: str) -> set[str]:
    """Return the secrets of the URLs in a text; if it is one URL, its password may have any characters."""
    scheme, separator, rest = text.partition("://")
    user, at, _ = rest.rpartition("@")
    name, colon, password = user.partition(":")
    whole = separator and at and colon and scheme.replace("+", "").isalnum() and "/" not in name
    odd = whole and re.search(r"[\s'\"<>`|]", password) is not None and len(password) >= _LEAST
    return _secrets_of_urls(text) | ({password, user} if odd else set())


def _secrets_of_urls(text: str) -> set[str]:
    """Return the passwords, tokens and secret parameters of the URLs in a text that are long enough."""
    if "://" not in text:
        return set()
    found = {parameter[2] for parameter in _PARAMETER.finditer(text)}
    found |= {user[2].partition(":")[2] for user in _IN_PATH.finditer(text)}
    for url in _WITH_USER.finditer(text):
        user = _user_in(url[2])
        name, colon, password = user.partition(":")
        found |= {password, user} if colon else set()
        found |= {name} if len(name) >= _LEAST_ALONE else set()
    return {secret for secret in found if len(secret) >= _LEAST and secret != HIDDEN}


@functools.lru_cache(maxsize=256)
def _forms(secret: str) -> frozenset[str]:
    """Return a secret as libraries write it: as it is, decoded, URL-encoded, and as a part of base64."""
    plain = {secret, unquote(secret), *secret.splitlines()}
    found = plain | {code for each in plain for code in (quote(each), quote_plus(each), quote(each, safe=""))}
    for each in plain:
        data = each.encode("utf-8", "surrogateescape")
        for shift in range(3):
            # Of the characters, the first depend on what comes before the secret, the last on what follows.
            coded = base64.b64encode(bytes(shift) + data).decode()
            part = coded[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]
            found |= {part, part.replace("+", "-").replace("/", "_")}
    return frozenset(form for form in found if len(form) >= _LEAST)
