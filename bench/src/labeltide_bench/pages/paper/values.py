"""The values of the paper's figures, and the figures by their numbers.

`figure_values.parquet` holds 5,361 values read off the vector graphics that the authors published with their code:
clean test accuracy in percent, and the mean absolute error of an entry of Q as a fraction, each with the lower and
upper edge of the drawn band. They are measurements of published pictures, exact to the width of a line.

The captions call the bands standard deviations. In the 24 cells that table 2 prints, the band is as wide as 1.96 of the
printed standard deviations over the root of ten (median of the ratios 1.00, nine in ten below 1.1): a 95 % interval of
the mean. Table 2 agrees with the figures at 29 % (0.1 points of test error on average), table 3 best at 30 % (0.6).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import NamedTuple

import pyarrow.parquet as pq

ACCURACY, MAE = "accuracy", "mae"
STATIC_STUDY = "motivation_all"
SHAPES = ("static", "linear", "decay", "growth", "periodic", "mixed")  # panels of a figure, row by row

# Names of the methods: in the figures of the paper, in its text, and here.
PAPER_NAMES = {
    "ignore": ("Uncorrected", "Ignore"),
    "anchor": ("Anchor", "Anchor"),
    "volmin": ("VolMinNet", "VolMinNet"),
    "plugin": ("AnchorTime", "Plug-In"),
    "discontinuous": ("VolMinNetTime", "Discontinuous"),
    "continuous": ("TENOR", "Continuous"),
}
SIX = tuple(PAPER_NAMES)
CORRECTIONS = {  # in the study of static against temporal correction: the paper's name and ours
    "ignore": "no correction",
    "forward temporal": "forward, temporal Q",
    "forward static": "forward, static Q",
    "backward temporal": "backward, temporal Q",
    "backward static": "backward, static Q",
}
UNCORRECTED = "no correction"  # what the study of static against temporal correction calls ignore


def shown_name(method: str) -> str:
    """The one name of a method on the page."""
    return "ignore" if method == UNCORRECTED else method


class FigureValue(NamedTuple):
    """One point of a curve of the paper; accuracy in percent, errors of Q in percentage points."""

    figure: str
    data: str
    classes: int
    shape: str
    method: str  # our name of it
    measure: str
    wrong_percent: float
    value: float
    lower: float
    upper: float


class PaperFigure(NamedTuple):
    """A figure of six panels, one for each noise shape."""

    number: str  # its number in the paper, or the one given here to a figure of the authors' repository
    file: str  # the authors' name of the graphics file
    dataset: str  # our name of the data set
    classes: int
    measure: str

    @property
    def in_paper(self) -> bool:
        return self.number.startswith("Figure")

    @property
    def subject(self) -> str:
        """What it shows: measure and data."""
        what = "Accuracy" if self.measure == ACCURACY else "Error of Q"
        return f"{what}, {self.dataset}{', with the true Q' if self.file == STATIC_STUDY else ''}"

    @property
    def slug(self) -> str:
        return self.number.lower().replace(" ", "-")

    @property
    def metric(self) -> str:
        """The metric of our records that measures the same."""
        return {ACCURACY: "test_error", MAE: "absolute"}[self.measure]


_REPOSITORY = {
    "moving": "HAR",
    "senior": "HAR70",
    "blinking": "EEG_EYE",
    "sleeping": "EEG_SLEEP",
    "synthetic": "synthetic",
}
FIGURES = (
    PaperFigure("Figure 5", STATIC_STUDY, "synthetic", 2, ACCURACY),
    PaperFigure("Figure 6", "all_acc_synthetic_3none", "synthetic, 3 classes", 3, ACCURACY),
    PaperFigure("Figure 7", "all_recon_synthetic_3none", "synthetic, 3 classes", 3, MAE),
    PaperFigure("Figure 8", "all_acc_EEG_SLEEP_3none", "sleeping, 3 classes", 3, ACCURACY),
    PaperFigure("Figure 9", "all_recon_EEG_SLEEP_3none", "sleeping, 3 classes", 3, MAE),
    PaperFigure("Figure 10", "all_acc_HAR_4none", "moving, 4 classes", 4, ACCURACY),
    PaperFigure("Figure 11", "all_recon_HAR_4none", "moving, 4 classes", 4, MAE),
    *(
        PaperFigure(f"Repository figure {2 * place + half}", f"all_{kind}_{name}_2none", data, 2, measure)
        for place, (data, name) in enumerate(_REPOSITORY.items())
        for half, kind, measure in ((1, "acc", ACCURACY), (2, "recon", MAE))
    ),
)


@cache
def figure_values() -> dict[str, tuple[FigureValue, ...]]:
    """All values, by the name of the graphics file."""
    with as_file(files("labeltide_bench.pages.paper").joinpath("figure_values.parquet")) as path:
        rows = pq.read_table(path).to_pylist()
    grouped: dict[str, list[FigureValue]] = {}
    for row in rows:
        grouped.setdefault(row["figure"], []).append(_value(row))
    return {name: tuple(values) for name, values in grouped.items()}


def _value(row: dict[str, object]) -> FigureValue:
    value = FigureValue(**row)  # type: ignore[arg-type]
    scale = 100 if value.measure == MAE else 1
    numbers = {name: scale * getattr(value, name) for name in ("value", "lower", "upper")}
    method = CORRECTIONS[value.method] if value.figure == STATIC_STUDY else value.method
    return value._replace(method=method, **numbers)
