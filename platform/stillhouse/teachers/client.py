"""A teacher behind an endpoint that speaks the OpenAI embeddings protocol, as vLLM, TEI and commercial ones.

``POST URL/embeddings`` with ``{"model", "input": [texts]}`` is answered by ``{"data": [{"index",
"embedding"}], "usage": {"total_tokens"}}``. The key is read from an environment variable when a request is
made, and is kept nowhere else.
"""

import base64
import binascii
import contextlib
import email.utils
import http.client
import json
import os
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stillhouse.core.console import warn
from stillhouse.core.errors import BadInput, Hindered
from stillhouse.core.json_text import parse_json
from stillhouse.core.redaction import HIDDEN, redacted
from stillhouse.teachers.forward import Vectors
from stillhouse.teachers.vector_files import UNIT_TOLERANCE
from stillhouse.values.data import Endpoint

PROBE = "The length and the dimension of this text's vector tell those of all."
LONGEST_PAUSE = 60.0
"""Seconds of the longest pause between two attempts that the endpoint did not ask for."""
LONGEST_ASKED = 600.0
"""Seconds of the longest pause that an endpoint may ask for (``Retry-After``)."""
_AGAIN = frozenset({408, 409, 425, 429})
_REFUSED = frozenset({401, 403})
_UNFIT = frozenset({400, 413, 422})
_SHOWN = 200
_MOST_BYTES = 1 << 30


class _Transient(Exception):
    """A request failed in a way that another attempt may mend, after the seconds of ``pause``, if any."""

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


class _Unfit(BadInput):
    """The endpoint refuses what is asked, which may be for one of its texts."""


class _Stopped(Exception):
    """Nobody waits for the answer any more."""


@dataclass
class Count:
    """What an endpoint has answered, and the attempts that failed and were repeated.

    Tokens are counted by the endpoint; 0 if it does not.
    """

    texts: int = 0
    tokens: int = 0
    requests: int = 0
    repeated: int = 0

    def sentence(self, endpoint: Endpoint) -> str:
        """Say in one line what was asked, with the cost where the price is known."""
        price = endpoint.requests.price
        cost = f", {self.tokens * price / 1e6:.4g} at {price:g} per million" if price and self.tokens else ""
        tokens = f"{self.tokens:,} tokens{cost}" if self.tokens else "tokens not counted by the endpoint"
        again = f", {self.repeated:,} failed and repeated" if self.repeated else ""
        return f"{endpoint.name}: {self.texts:,} texts, {tokens}, {self.requests:,} requests{again}"


class Client:
    """Asks an endpoint for vectors; several threads may share it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.count = endpoint, Count()
        self._url = endpoint.url.rstrip("/")
        if not self._url.endswith("/embeddings"):
            self._url += "/embeddings"
        self._lock, self._stop, self._not_before = threading.Lock(), threading.Event(), 0.0
        self._failed: BadInput | None = None
        self._width = endpoint.dimension
        # No redirects: another host would be sent the key.
        self._opener = urllib.request.build_opener(_NoRedirects)
        key_of(endpoint)

    def embed(self, texts: Sequence[str]) -> tuple[Vectors, int]:
        """Ask for the vectors of texts, (N, E), in their order, and the number of tokens.

        They are asked for as often as it takes and is allowed. Where the first answer has a number that is
        not finite, they are asked for once more; a row whose vector then has one is set aside. So is a text
        that is refused by itself, such as one that is too long, by a vector of NaN; what is refused together
        is asked for in halves.

        Raises:
            BadInput: The endpoint refuses the request or the key, or answers with another dimension.
            Hindered: It did not answer well within the allowed number of attempts.
        """
        try:
            try:
                return self._embed(texts)
            except _Unfit as error:
                return self._in_halves(texts, error)
        except BadInput as error:
            # Others that wait for their next attempt end with the same message.
            self._failed = self._failed or error
            self.stop()
            raise

    def _in_halves(self, texts: Sequence[str], refused: _Unfit) -> tuple[Vectors, int]:
        if len(texts) > 1:
            middle = len(texts) // 2
            first, second = self.embed(texts[:middle]), self.embed(texts[middle:])
            return np.concatenate([first[0], second[0]]), first[1] + second[1]
        if not self.count.requests:
            self._embed([PROBE])  # It may refuse every text.
        warn(f"one text is set aside, since {refused}")
        return np.full((1, self._width), np.nan, np.float32), 0

    def _embed(self, texts: Sequence[str]) -> tuple[Vectors, int]:
        attempts = self.endpoint.requests.attempts
        for attempt in range(attempts):
            self._wait()
            try:
                vectors, tokens = self._ask(texts)
                if not np.isfinite(vectors).all() and attempt == 0 and attempts > 1:
                    raise _Transient("a vector that is not finite")
            except _Transient as error:
                if attempt + 1 == attempts:
                    raise Hindered(
                        f"{self._url} must answer, but after {attempts} attempts it gave: {error}. What is "
                        "embedded is kept; run the same command again, and it continues from there."
                    ) from None
                self._pause(attempt, error.pause)
                continue
            with self._lock:
                self.count.texts += len(texts)
                self.count.tokens += tokens
                self.count.requests += 1
            return vectors, tokens
        raise AssertionError("there is at least one attempt")

    def stop(self) -> None:
        """End all waiting."""
        self._stop.set()

    def _pause(self, attempt: int, asked: float | None) -> None:
        """Put off all requests; jitter keeps those of several clients apart."""
        own = min(LONGEST_PAUSE, self.endpoint.requests.pause * 2.0**attempt) * random.uniform(0.5, 1.5)
        with self._lock:
            self.count.repeated += 1
            self._not_before = max(self._not_before, time.monotonic() + max(own, asked or 0.0))

    def _wait(self) -> None:
        while (left := self._not_before - time.monotonic()) > 0:
            if self._stop.wait(left):
                break
        if self._stop.is_set():
            raise self._failed or _Stopped

    def _ask(self, texts: Sequence[str]) -> tuple[Vectors, int]:
        endpoint = self.endpoint
        asked: dict[str, Any] = {"model": endpoint.model, "input": list(texts)}
        asked |= {"encoding_format": endpoint.requests.encoding}
        asked |= {"dimensions": endpoint.kept} if endpoint.kept else {}
        asked |= json.loads(endpoint.body or "{}")
        headers = {"Content-Type": "application/json", "User-Agent": "stillhouse"}
        key = key_of(endpoint)
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        request = urllib.request.Request(self._url, json.dumps(asked).encode(), headers)
        try:
            with self._opener.open(request, timeout=endpoint.requests.timeout) as answer:
                content = answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise self._failure(error) from None
        except (OSError, http.client.HTTPException) as error:
            raise _Transient(f"{type(error).__name__}: {self._hidden(str(error))}") from None
        return self._read(content, len(texts))

    def _failure(self, error: urllib.error.HTTPError) -> Exception:
        """Make the error for an answer with a status of failure."""
        said = ""
        if error.code not in _REFUSED:
            # Some endpoints repeat parts of a refused key.
            with contextlib.suppress(OSError, http.client.HTTPException):
                said = self._hidden(error.read(1 << 16).decode("utf-8", "replace"))[:_SHOWN]
        status = f"status {error.code}{f', {said!r}' if said else ''}"
        if error.code in _AGAIN or error.code >= 500:
            return _Transient(status, _asked_pause(error.headers.get("Retry-After")))
        variable = self.endpoint.requests.key_variable
        if error.code in _REFUSED:
            had = "refuses the key in" if key_of(self.endpoint) else "needs a key, which is not set in"
            return BadInput(
                f"{self._url} must accept the key, but it {had} the environment variable {variable} "
                f"({status}). Set it, or name another one with teacher.requests.key_variable."
            )
        return (_Unfit if error.code in _UNFIT else BadInput)(
            f"{self._url} must embed with the model {self.endpoint.model!r}, but it refused with {status}. "
            "Check teacher.endpoint, teacher.model and teacher.body, and the length of the texts "
            "(sentences.max_words) and of the batches (teacher.requests.batch)."
        )

    def _read(self, content: bytes, number: int) -> tuple[Vectors, int]:
        """Check an answer, and return its vectors in the order of the texts."""
        try:
            answer = parse_json(content)
            rows = [(row["index"], row["embedding"]) for row in answer["data"]]
            tokens = int((answer.get("usage") or {}).get("total_tokens") or 0)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _Transient(
                f"an answer that is not of the protocol, {self._hidden(repr(content[:_SHOWN]))}"
            ) from None
        places = [place for place, _ in rows]
        if not all(type(place) is int for place in places) or sorted(places) != list(range(number)):
            raise _Transient(f"{len(rows)} vectors with the indices {places[:5]}… for {number} texts")
        found = [_vector(value) for _, value in sorted(rows, key=lambda row: int(row[0]))]
        widths = sorted({len(vector) for vector in found})
        if widths != [self.endpoint.dimension or widths[0]]:
            raise BadInput(
                f"{self._url} must answer with vectors of {self.endpoint.dimension or 'one dimension'}, but "
                f"got {', '.join(map(str, widths))} numbers. Check teacher.model and teacher.dimension; if "
                "the model behind the endpoint has changed, name it differently."
            )
        self._width = widths[0]
        return self._scaled(np.stack(found)), tokens

    def _scaled(self, vectors_NE: Vectors) -> Vectors:
        lengths_N1 = np.linalg.norm(vectors_NE, axis=1, keepdims=True)
        if self.endpoint.rescaled:
            vectors_NE /= np.maximum(lengths_N1, 1e-12)
            return vectors_NE
        odd = np.abs(lengths_N1 - 1) > UNIT_TOLERANCE  # not those that are not finite, which are set aside
        if self.endpoint.normalize and odd.any():
            raise BadInput(
                f"vectors must all have length 1 if the first one has it, but {self._url} answered with one "
                f"of length {float(lengths_N1[odd][0]):.4g}. Set teacher.normalize=true to divide by the "
                "length, or false to take vectors as they are."
            )
        return vectors_NE

    def _hidden(self, text: str) -> str:
        """Text from outside without the key, whatever the variable is called."""
        key = key_of(self.endpoint)
        return redacted(text.replace(key, HIDDEN) if key else text)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def key_of(endpoint: Endpoint) -> str:
    """Read the key from the environment; empty if it is not set.

    Raises:
        BadInput: It has characters that no header has.
    """
    variable = endpoint.requests.key_variable
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise BadInput(
            f"the key in the environment variable {variable} must be one word of ASCII characters, but it "
            "has others. Copy it again."
        )
    return key


def found_out(endpoint: Endpoint, normalize: bool | None) -> Endpoint:
    """Ask an endpoint for one vector, and complete what it tells: the dimension, and whether it has length 1.

    Args:
        endpoint: The endpoint; nothing is asked where it states the dimension and ``normalize`` is given.
        normalize: Whether vectors have length 1: True divides each by its length, None finds out.

    Raises:
        BadInput: As of `Client.embed`.
        Hindered: The vector is not finite.
    """
    if normalize is not None and endpoint.kept:
        return replace(endpoint, normalize=normalize, rescaled=normalize, width=endpoint.kept)
    bodies = endpoint.bodies
    probed = replace(endpoint, width=endpoint.kept, body=bodies.plain or bodies.document or bodies.query)
    (vector,), _ = Client(probed).embed([PROBE])
    if not np.isfinite(vector).all():
        raise Hindered(
            f"{redacted(endpoint.url)} must answer with finite numbers, but the vector of a short text has "
            "NaN or infinity. Check the model behind the endpoint, and run the same command again."
        )
    unit = bool(abs(float(np.linalg.norm(vector)) - 1) <= UNIT_TOLERANCE)
    return replace(
        endpoint,
        normalize=unit if normalize is None else normalize,
        rescaled=bool(normalize),
        width=len(vector),
    )


def warn_of_open_key(endpoint: Endpoint) -> None:
    """Warn of a key that is sent over an unencrypted connection to another machine."""
    host = urllib.parse.urlsplit(endpoint.url).hostname or ""
    local = host in ("localhost", "::1") or host.startswith("127.")
    if endpoint.url.startswith("http://") and key_of(endpoint) and not local:
        warn(f"note: the key is sent unencrypted to {host}. Use https.")


def _vector(value: Any) -> Vectors:
    """Read a vector, as numbers or as the base64 form of little-endian float32."""
    try:
        if isinstance(value, str):
            return np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
        vector = np.asarray(value, np.float32)
    except (ValueError, TypeError, binascii.Error):
        raise _Transient("a vector that is neither numbers nor base64") from None
    if vector.ndim != 1 or not len(vector):
        raise _Transient("a vector that is no list of numbers")
    return vector


def _asked_pause(header: str | None) -> float | None:
    """Read ``Retry-After``: seconds, or a date."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), LONGEST_ASKED) if seconds == seconds else None
