"""Small spaces and a driver of the searcher, shared by its tests."""

import math
from pathlib import Path
from typing import Any

from stillhouse.search.searcher import StudySearcher
from stillhouse.search.space import Categorical, Float, Int, Space

NUMERIC = Space(
    "m",
    {
        "rate": Float(1e-5, 1e-2, True),
        "batch": Int(16, 64, 16),
        "layers": Categorical(((0, 1), (0, 2), (1,))),
    },
    first={"rate": 1e-4, "batch": 64, "layers": (0, 2)},
)
DISCRETE = Space("m", {"a": Categorical((1, 2, 3)), "b": Categorical(("x", "y"))}, first={"a": 2, "b": "y"})
FULL = 100


def searcher(folder: Path, space: Space = NUMERIC, **options: Any) -> StudySearcher:
    settings: dict[str, Any] = {"trials": 8, "objective": "q", "full_budget": FULL, "seed": 3, **options}
    return StudySearcher(folder / "study.db", space, **settings)


def quality(point: dict[str, Any]) -> float:
    return float(-abs(math.log(point["rate"]) + 8) - point["batch"] / 64 - point["layers"][0])


def finish(search: StudySearcher, trial_id: str, value: float = 0.5, **more: Any) -> None:
    search.on_trial_complete(trial_id, {"q": value, "examples_seen": FULL, "finished": True, **more})


def drive(search: StudySearcher) -> None:
    """Run one trial at a time to the end of the search; stop every third early, as ASHA would."""
    for turn in range(100):
        config = search.suggest(f"tune{turn}")
        if isinstance(config, str):
            assert config == "FINISHED"
            return
        assert config is not None
        value = quality(config["hyper_parameters"])
        if config["trial"] % 3 == 2:
            search.on_trial_complete(f"tune{turn}", {"q": value - 1, "examples_seen": 50, "finished": False})
            continue
        search.on_trial_result(f"tune{turn}", {"q": value - 1, "examples_seen": 50, "finished": False})
        finish(search, f"tune{turn}", value)


def sequence(search: StudySearcher) -> list[tuple[Any, ...]]:
    return [(r.state, r.values, dict(r.curve), dict(r.hyper_parameters)) for r in search.records()]
