"""Archives of the data sets of several annotators in their published formats, from tables."""

import json

import numpy as np
import pandas as pd
from scipy.io import savemat

from datasets import archives
from labeltide_bench.datasets import dod_scorers, lund2013, neonatal_seizure


def few_stages():
    """One night of four epochs; in the last only two of the five scored."""
    scored = {scorer: [-1, 0, 2, index % 2 - 1] for index, scorer in enumerate(dod_scorers.SCORERS)}
    return pd.DataFrame({"dataset": "dodh", "record": "n1", "epoch": range(4)} | scored)


def few_gazes():
    """One trial, the one of which a corrected file is published."""
    labels = {"label_MN": [1, 1, 2], "label_RA": [1, 2, 2], "label_MN_fixed": [1, 2, 2]}
    signals = dict.fromkeys(("x_px", "y_px", "pupil1", "pupil2"), 0.5)
    return pd.DataFrame({"trial": lund2013.FIXED_TRIAL, "stimulus": "img", "sample": range(3)} | labels | signals)


def few_marks():
    """Two neonates of two and three seconds."""
    seconds = {"record": [1, 1, 2, 2, 2], "second": [0, 1, 0, 1, 2]}
    return pd.DataFrame(seconds | {f"expert_{expert}": [0, 0, 1, 1, 0] for expert in neonatal_seizure.NAMES})


def make_dreem(path, table):
    files = {
        f"repo-1/scorers/{dataset}/{scorer}/{record}.json": json.dumps(part[scorer].tolist())
        for (dataset, record), part in table.groupby(["dataset", "record"])
        for scorer in dod_scorers.SCORERS
    }
    return archives.make_zip(path, files | {"repo-1/README.md": "words", "repo-1/consensus/dodh/a.json": "[1]"})


def make_lund(path, table):
    files = {}
    for (stimulus, trial), part in table.groupby(["stimulus", "trial"]):
        folder = f"repo-1/annotated_data/data used in the article/{stimulus}"
        for coder in lund2013.CODERS:
            files[f"{folder}/{trial}_labelled_{coder}.mat"] = matlab(part, part[f"label_{coder}"], path.parent)
        if trial == lund2013.FIXED_TRIAL:
            files[f"repo-1/annotated_data/{lund2013.FIXED_FILE}"] = matlab(part, part["label_MN_fixed"], path.parent)
    files[f"{folder}/one_coder_labelled_RA.mat"] = b"no pair"
    return archives.make_zip(path, files)


def matlab(part, labels, folder):
    signals = part[["sample", "pupil1", "pupil2", "x_px", "y_px"]].to_numpy(np.float64)
    savemat(folder / "one.mat", {"ETdata": {"pos": np.column_stack([signals, labels]), "sampFreq": 500}})
    return (folder / "one.mat").read_bytes()


def make_neonates(folder, table):
    folder.mkdir()
    for expert, name in neonatal_seizure.NAMES.items():
        table.pivot(index="second", columns="record", values=f"expert_{expert}").to_csv(folder / name, index=False)
    return folder
