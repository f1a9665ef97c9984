"""What `tide` says of labels that are clean: its conclusion, the share it states and the labels that its audit flags.

    python bench/benchmarks/clean_labels.py --data DATA      # writes bench/results/tide/clean_labels.md

One fit to the clean training labels of each data set of bench/studies/tide-ablation.toml.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import labeltide as lt
from labeltide_bench.studies.loading import load_dataset
from labeltide_bench.studies.study import read_study

ROOT = Path(__file__).parents[1]
HEADS = ("data set", "labels", "conclusion", "p", "stated, %", "upper end, %", "flagged", "by the posterior alone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("LABELTIDE_DATA", "data"))
    data = Path(parser.parse_args().data)
    warnings.simplefilter("ignore")
    lines = [
        "# Clean labels",
        "",
        f"`python bench/benchmarks/clean_labels.py --data DATA`, {time.strftime('%Y-%m-%d')}, one fit each.",
        "",
        f"| {' | '.join(HEADS)} |",
        f"|---|--:|---|{'--:|' * (len(HEADS) - 3)}",
    ]
    for spec in read_study(ROOT / "studies" / "tide-ablation.toml").datasets:
        train = load_dataset(spec, data).train
        labels, clusters = train.labels[..., 0], train.ids if spec.split_by_people else None
        clf = lt.TideClassifier(random_state=0, device="cpu", **spec.settings)
        clf.fit(train.features, labels, clock=train.clock, lengths=train.lengths, clusters=clusters)
        judged = (train.features, labels, train.clock, train.lengths)
        audit, alone = clf.audit(*judged), clf.audit(*judged, may_name=True)
        shares = f"{100 * audit.share_wrong:.2f} | {100 * clf.noise_estimate_.total_upper:.2f}"
        found = f"{clf.conclusion_.answer} | {clf.is_noisy_p_:.2f} | {shares}"
        flags = f"{int(audit.is_issue.sum())} | {int(alone.is_issue.sum())}"
        lines.append(f"| {spec.name} | {int((labels >= 0).sum()):,} | {found} | {flags} |")
        print(lines[-1], flush=True)
    (ROOT / "results" / "tide" / "clean_labels.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
