"""The plan of a study: its runs, and the fleets in which they are trained."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from labeltide_bench.studies.dataset_spec import DatasetSpec
from labeltide_bench.studies.method_spec import MethodSpec
from labeltide_bench.studies.study import NoiseSpec, Study


@dataclass(frozen=True)
class PlannedRun:
    """A fit that the study asks for: data set, noise, method and draw. Its key is unique in the study."""

    dataset: DatasetSpec
    noise: NoiseSpec
    method: MethodSpec
    draw: int
    same_noise: bool = False

    @property
    def fold(self) -> int:
        """The split of the data set. Labels of real annotators are not drawn; there a draw is a fold."""
        return self.draw if self.dataset.annotators else 0

    @property
    def annotator(self) -> str:
        """The annotator whose labels are used, where the labels are recorded."""
        return str(self.noise.level["annotator"])

    @property
    def noise_key(self) -> str:
        """Data set, noise and draw as text, the same on every machine."""
        level = json.dumps(self.noise.level, sort_keys=True)
        return f"{self.dataset.name}|{self.noise.shape}|{level}|{self.noise.variant}|{self.noise_draw}"

    @property
    def noise_draw(self) -> int:
        """The number of the labels: the draw, or 0 where all draws have the same."""
        return 0 if self.same_noise else self.draw

    @property
    def key(self) -> str:
        return f"{self.method.label}|{self.noise_key}" + (f"|{self.draw}" if self.same_noise else "")

    @property
    def noise_seed(self) -> list[int]:
        """Seed of the recorded labels, the same for every method."""
        return [zlib.crc32(self.noise_key.encode()), self.noise_draw]


@dataclass(frozen=True)
class FleetPlan:
    """Runs that share data and method, trained together."""

    runs: tuple[PlannedRun, ...]

    @property
    def title(self) -> str:
        first = self.runs[0]
        return f"{first.dataset.name}, {first.method.label}, {len(self.runs)} run{'s' if len(self.runs) > 1 else ''}"

    @property
    def digest(self) -> str:
        """A short name for the fleet, for its checkpoint."""
        return hashlib.sha256("\n".join(run.key for run in self.runs).encode()).hexdigest()[:16]


def plan_fleets(study: Study, fleet_size: int) -> Iterator[FleetPlan]:
    """All runs of a study in fleets of at most this size, whether or not they are finished."""
    for dataset in study.datasets:
        for method in study.methods:
            every = [
                PlannedRun(dataset, noise, method, draw, study.same_noise)
                for noise in study.noise_for(dataset)
                if method.takes(noise)
                for draw in range(study.draws_for(dataset))
            ]
            for fold in range(dataset.folds):  # a fleet shares its sequences
                runs = [run for run in every if run.fold == fold]
                for start in range(0, len(runs), fleet_size):
                    yield FleetPlan(tuple(runs[start : start + fleet_size]))
