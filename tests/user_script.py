"""A user's script. `make check` checks its types against the installed package: see py.typed."""

from typing import assert_type

import stillhouse

student = stillhouse.distil("all-MiniLM-L6-v2", stillhouse.Sentences("texts.txt"), examples=20_000)
assert_type(student, stillhouse.Trained)
assert_type(student.metrics["agreement_spearman_cosine"], float)
assert_type(student.save("my-student", form="onnx-int8"), stillhouse.Exported)
assert_type(stillhouse.plan("mse", trials=8), stillhouse.Rows)
experiment = stillhouse.Experiment("all-MiniLM-L6-v2", data=stillhouse.Sentences(texts=["one", "two"]))
assert_type(stillhouse.train("mse", experiment).start["agreement_spearman_cosine"], float)
stillhouse.train("mse", rot="runs")  # type: ignore[call-arg]
stillhouse.train("mse", values=0.001)  # type: ignore[arg-type]
student.encode(5)  # type: ignore[arg-type]
