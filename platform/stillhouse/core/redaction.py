"""Redaction: what may be printed, logged, tracked or written of a text that may contain secrets.

Everything that leaves the process as text passes here: printed lines, logs, JSON files, MLflow, model cards.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "***"

_WORDS = "token(?!iz)|secret|passw|pwd|api_?key|access_?key|key_?id|signature|credential|auth|session|sas"
_NAME = rf"(?:[\w.-]*(?:{_WORDS})[\w.-]*|key|sig|code|pass)"
_PARAMETER = re.compile(rf"([?&;#]{_NAME}=)[^&\s'\"<>#;]*", re.IGNORECASE)
_WITH_USER = re.compile(r"([A-Za-z][\w+.-]*://)([^\s'\"<>`|]*@)")
_HOST = re.compile(r"[^@]*@((?:[\w-]+(?:\.[\w-]+)+|localhost|\[[0-9a-fA-F:]+\])(?::\d+)?)")
_HEADER = re.compile(
    r"((?:authorization|x-api-key)['\"]?\s*[:=]\s*['\"]?(?:bearer |basic )?)[^\s'\",]+", re.IGNORECASE
)
_VARIABLE = re.compile(
    r"(PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIALS?|API_?KEY|ACCESS_KEY(_ID)?|PRIVATE_KEY)$", re.IGNORECASE
)
_LEAST = 6
"""Characters of the shortest value of a variable that is looked for: shorter ones occur in ordinary words."""


def names_secret(variable: str) -> bool:
    """Whether the value of an environment variable of this name is hidden wherever it appears."""
    return variable.isidentifier() and _VARIABLE.search(variable) is not None


def redacted(text: str) -> str:
    """Replace the secrets in a text by ``***``.

    Hidden are the user and password of a URL (also with ``/`` and ``@`` in them), parameters of URLs such as
    ``?token=``, the values of environment variables whose names say that they are secret, and the password
    of ``MLFLOW_TRACKING_URI`` wherever it appears.
    """
    return _redacted(text, _known_secrets())


def redacted_json(content: Any) -> Any:
    """Redact every string of a nested value; keys and everything else stay."""
    secrets = _known_secrets()

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return _redacted(value, secrets)
        if isinstance(value, Mapping):
            return {key: walk(item) for key, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, (list, tuple)) else value

    return walk(content)


def _redacted(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    if "://" in text:
        text = _WITH_USER.sub(_without_user, text)
    if "=" in text:
        text = _PARAMETER.sub(rf"\g<1>{HIDDEN}", text)
    return _HEADER.sub(rf"\g<1>{HIDDEN}", text) if ":" in text or "=" in text else text


def _without_user(found: re.Match[str]) -> str:
    """Hide what stands before the last ``@``, unless that ``@`` is part of the path."""
    scheme, before = found[1], found[2]
    head, slash, rest = before.partition("/")
    if slash and (host := _HOST.fullmatch(head)):
        return f"{scheme}{HIDDEN}@{host[1]}/{rest}"
    if slash and not ({"@", ":"} & set(head)):
        return found[0]
    return f"{scheme}{HIDDEN}@"


def _known_secrets() -> list[str]:
    """Return the secrets in the environment, the longest first."""
    found = set()
    for name, value in os.environ.items():
        if len(value) >= _LEAST and _VARIABLE.search(name) and not value.startswith("/"):  # a path
            found.add(value)
    user = re.match(r"[A-Za-z][\w+.-]*://(.*)@", os.environ.get("MLFLOW_TRACKING_URI", ""))
    if user:
        found |= {part for part in (user[1], user[1].partition(":")[2]) if len(part) >= _LEAST}
    return sorted(found, key=len, reverse=True)
