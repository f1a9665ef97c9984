"""Which files of labeltide four requests run through: fit, predict, audit and bench.

    python tools/walk.py            # counts and names

A file counts when one of its functions is called between the request and its answer.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

TOY = """
title = "A toy"
draws = 1
methods = { ignore = { epochs = 1 } }

[datasets.toy]
simulate = { n = 12, n_steps = 8, n_features = 2, random_state = 0 }

[[noise]]
shape = "linear"
rates = [0.3]
"""
PACKAGES = ("/labeltide/", "/labeltide_bench/")


def files_called(request: Callable[[], object]) -> list[str]:
    """The files of labeltide in which a function is called while a request is answered."""
    found: set[str] = set()

    def note(frame, event, argument):  # type: ignore[no-untyped-def]
        if event == "call" and any(name in frame.f_code.co_filename for name in PACKAGES):
            found.add(frame.f_code.co_filename.rpartition("/src/")[2])

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        request()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return sorted(found)


def main() -> None:
    import labeltide as lt

    study = lt.make_sequences(n=12, n_steps=8, n_features=2, stay=0.8, random_state=0)
    tide = lt.TideClassifier(epochs=2, random_state=0, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        from pyarrow import parquet

        from labeltide.auditing import simulate_study

        table = Path(folder) / "study.parquet"
        parquet.write_table(simulate_study(people=4, days=1, seed=0), table)
        toy = Path(folder) / "toy.toml"
        toy.write_text(TOY)
        requests = {
            "fit": lambda: tide.fit(study.features, study.labels),
            "predict": lambda: tide.predict(study.features),
            "audit": lambda: lt.audit(table, out=Path(folder) / "audit", clock="hour_of_day"),
            "bench": lambda: lt.run_study(lt.read_study(toy), Path(folder), Path(folder) / "records"),
        }
        for name, request in requests.items():
            files = files_called(request)
            print(f"{name}: {len(files)} files")
            print(*(f"  {file}" for file in files), sep="\n")


if __name__ == "__main__":
    main()
