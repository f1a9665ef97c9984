"""A simulated wearable study with known true labels and annotators whose error rates change over time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from labeltide._files import write_atomically
from labeltide._validation import check_number
from labeltide.tables.columns import guarded
from labeltide.tables.files import check_new_file

ACTIVITIES = ("exercise", "rest", "sit", "walk")
ANNOTATORS = ("Ada", "Ben")
FEATURES = ("movement", "movement_sd", "posture", "heart_rate", "skin_temperature", "light")
STEPS_PER_DAY = 96  # one row for every 15 minutes
START = np.datetime64("2026-03-02T00:00:00", "s")  # a Monday
STAY = 0.78  # the probability that an activity goes on by itself
WORN = 0.9  # the share of time for which the sensor is worn

# Means of the features by activity, and how much a single quarter of an hour departs from them.
_MEANS = np.array(
    [
        [2.6, 1.6, 0.9, 128.0, 33.4, 4.0],
        [0.2, 0.2, 0.1, 60.0, 34.8, 0.8],
        [0.8, 0.6, 0.6, 72.0, 33.8, 3.0],
        [1.8, 1.2, 0.9, 92.0, 33.3, 4.2],
    ]
)
_SPREAD = np.array([0.6, 0.5, 0.3, 11.0, 0.7, 1.3])
_PERSON = np.array([0.25, 0.2, 0.1, 8.0, 0.4, 0.5])  # standard deviation of people's own offsets
# When a label is wrong, what it is taken for: rows are true activities.
_MISTAKEN = np.array(
    [
        [0.0, 0.05, 0.15, 0.8],
        [0.03, 0.0, 0.87, 0.1],
        [0.05, 0.65, 0.0, 0.3],
        [0.35, 0.1, 0.55, 0.0],
    ]
)


def simulate_study(people: int = 60, days: int = 14, rate: float = 0.2, seed: int = 0) -> pa.Table:
    """Simulate people who wear a sensor for some days, and two annotators who label what they did.

    Ada errs a little more in the evening. Ben errs far more at night, and more from day to day. Each person's day is
    labelled by Ada, by Ben, or by both in two rows.

    Parameters
    ----------
    people, days : int
    rate : float from 0 to 0.5
        The share of labels that are wrong.
    seed : int

    Returns
    -------
    pyarrow.Table
        person, time, six features, annotator, label and, kept aside, true_label.
    """
    check_number("people", people, 1, whole=True)
    check_number("days", days, 1, whole=True)
    check_number("rate", rate, 0, 0.5)
    check_number("seed", seed, 0, whole=True)
    streams = np.random.default_rng(seed).spawn(5)
    n_steps = days * STEPS_PER_DAY
    hours = np.arange(n_steps) % STEPS_PER_DAY / 4  # (steps,)
    truth = _activities(streams[0], people, hours)  # (people, steps)
    features, lost = _features(streams[1], truth)
    # The sensor comes off once a day, at any time, for as long as it takes.
    off = streams[2].integers(0, STEPS_PER_DAY, (people, days, 1))
    length = streams[2].gamma(4, (1 - WORN) * STEPS_PER_DAY / 4, (people, days, 1))
    kept = (np.arange(STEPS_PER_DAY) - off) % STEPS_PER_DAY >= length
    kept[:, 0, 0] = True  # nobody is left without a row
    who, when = np.nonzero(kept.reshape(people, -1))
    side = streams[3].choice(3, size=(people, days), p=(0.375, 0.375, 0.25))[who, when // STEPS_PER_DAY]
    rows = np.repeat(np.arange(len(who)), 1 + (side == 2))
    second = np.append(False, rows[1:] == rows[:-1])
    annotator = np.where(side[rows] == 2, second, side[rows]).astype(np.int64)
    who, when = who[rows], when[rows]
    true = truth[who, when]
    chance = error_rates(hours[when], when / n_steps, annotator)
    draws = streams[4].random(len(true))[:, None]
    taken_for = (draws > _MISTAKEN.cumsum(1)[true]).sum(1).clip(max=len(ACTIVITIES) - 1)
    is_wrong = streams[4].random(len(true)) < np.clip(chance * (rate / chance.mean()), 0, 0.9)
    label = np.where(is_wrong, taken_for, true)
    columns = {
        "person": pa.array(np.char.add("p", np.char.zfill((who + 1).astype(str), len(str(people))))),
        "time": pa.array(START + when.astype("timedelta64[s]") * 900),
    }
    for number, name in enumerate(FEATURES):
        columns[name] = pa.array(features[who, when, number], mask=lost[who, when] & (name == "heart_rate"))
    coded = {"annotator": (ANNOTATORS, annotator), "label": (ACTIVITIES, label), "true_label": (ACTIVITIES, true)}
    return pa.table(columns | {name: pa.array(names).take(pa.array(codes)) for name, (names, codes) in coded.items()})


def error_rates(hours: np.ndarray, progress: np.ndarray, annotator: np.ndarray) -> np.ndarray:
    """How likely a label of Ada (0) or Ben (1) is wrong, up to a common factor, by hour and share of the study."""
    evening = np.exp(-0.5 * ((hours - 20) / 2.5) ** 2)
    night = 0.5 + 0.5 * np.cos(2 * np.pi * (hours - 3) / 24)  # 1 at three in the morning, 0 at three in the afternoon
    return np.where(annotator == 0, 0.1 + 0.12 * evening, 0.1 + 0.33 * night**2 + 0.12 * progress)


def write_study(table: pa.Table, path: Path) -> Path:
    """Write a simulated table to a new .parquet or .csv file, whole or not at all."""
    name = path.name.lower()
    check_new_file(path, ".parquet", ".csv", ".csv.gz")

    def write(draft: Path) -> None:
        if name.endswith(".parquet"):
            parquet.write_table(table, draft, compression="zstd")
            return
        with pa.output_stream(str(draft), "gzip" if name.endswith(".gz") else None) as sink:
            csv.write_csv(guarded(table), sink)

    write_atomically(path, write)
    return path


def _activities(generator: np.random.Generator, people: int, hours: np.ndarray) -> np.ndarray:
    """What each person does at each step: it goes on, or something is chosen that fits the hour."""
    shift = generator.normal(0, 1, people)  # early birds and night owls
    draws = generator.random((2, len(hours), people))
    truth = np.empty((people, len(hours)), dtype=np.int64)
    for step, time in enumerate(hours):
        hour = time - shift
        asleep = 1 / (1 + np.exp(-4 * (np.cos(2 * np.pi * (hour - 3) / 24) - 0.35) * 2))
        active = np.exp(-0.5 * (((hour - 6) % 24 - 12) / 1.5) ** 2)  # around six in the evening
        parts = [0.03 + 0.25 * active, 0.12 + 3 * asleep, np.full_like(hour, 0.55), 0.3 + 0.2 * active]
        weights = np.stack(parts, axis=1)  # (people, activities)
        weights[:, [0, 2, 3]] *= (1 - 0.95 * asleep)[:, None]
        rhythm = weights / weights.sum(1, keepdims=True)
        chosen = (draws[0, step][:, None] > rhythm.cumsum(1)).sum(1).clip(max=len(ACTIVITIES) - 1)
        goes_on = (draws[1, step] < STAY) & (step > 0)
        truth[:, step] = np.where(goes_on, truth[:, step - 1], chosen)
    return truth


def _features(generator: np.random.Generator, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features (people, steps, features) as float32, and where the heart rate was lost."""
    people, n_steps = truth.shape
    offsets = generator.normal(0, 1, (people, 1, len(FEATURES))) * _PERSON
    strength = generator.normal(1, 0.1, (people, 1, 1))
    noise = generator.normal(0, 1, (people, n_steps, len(FEATURES))) * _SPREAD
    values = _MEANS[truth] * np.where(np.arange(len(FEATURES)) < 2, strength, 1) + offsets + noise
    values[..., [0, 1, 5]] = np.maximum(values[..., [0, 1, 5]], 0)
    values[..., 3] = np.maximum(values[..., 3], 38)
    return values.round(3).astype(np.float32), generator.random((people, n_steps)) < 0.03


# A simulated wearable study of any number of rows, made and written person by person in bounded memory.

ROWS_EACH = 5000  # of one person
DAYS = 60  # enough for as many rows: about 108 a day, and a person who wears the sensor less has 90
AT_ONCE = 50  # people who are simulated together and make a row group
MAX_ROWS = 10**11
# A seventh feature, from the activity: sounds around the person, in decibels.
_LOUDNESS, _LOUDNESS_SPREAD = {"exercise": 66.0, "rest": 34.0, "sit": 50.0, "walk": 58.0}, 9.0


def write_large_study(path: Path, rows: int, rate: float = 0.2, seed: int = 0) -> int:
    """Write a study of so many rows to a new .parquet file, whole or not at all; give back the number of people.

    Seven features, two annotators, four activities, 5,000 rows for each person. People are simulated in parts of 50,
    each from its own seed, so that memory does not grow with the rows and the same seed gives the same bytes.
    """
    check_number("rows", rows, 1, MAX_ROWS, whole=True)
    check_number("rate", rate, 0, 0.5)
    check_number("seed", seed, 0, whole=True)
    if not path.name.lower().endswith(".parquet"):
        raise ValueError(f"A study of a given number of rows is written to a .parquet file. Got {str(path)!r}.")
    people = -(-int(rows) // ROWS_EACH)

    def write(draft: Path) -> None:
        writer = None
        for first in range(0, people, AT_ONCE):
            part = _simulate_part(first, min(AT_ONCE, people - first), rate, seed, len(str(people)))
            writer = writer or parquet.ParquetWriter(draft, part.schema, compression="zstd")
            writer.write_table(part.slice(0, int(rows) - first * ROWS_EACH))
        assert writer is not None
        writer.close()

    write_atomically(path, write)
    return people


def _simulate_part(first: int, count: int, rate: float, seed: int, digits: int) -> pa.Table:
    """The rows of some people, named by their numbers from `first` on."""
    part_seed = int(np.random.SeedSequence([seed, first]).generate_state(1, np.uint64)[0])
    table = simulate_study(people=count, days=DAYS, rate=rate, seed=part_seed)
    person = table["person"].combine_chunks().dictionary_encode().indices.to_numpy()
    starts = np.searchsorted(person, np.arange(count))
    sizes = np.diff(np.append(starts, len(person)))
    if sizes.min() < ROWS_EACH:
        raise ValueError(f"A simulated person wore the sensor too little. Take another seed than {seed}.")
    table = table.take(pa.array((starts[:, None] + np.arange(ROWS_EACH)).reshape(-1)))
    names = np.char.add("p", np.char.zfill((first + 1 + np.arange(count)).astype(str), digits))
    table = table.set_column(0, "person", pa.array(np.repeat(names, ROWS_EACH)))
    # The seventh feature; rows of one moment, which two annotators labelled, have the same value.
    code = pc.index_in(table["true_label"], pa.array(list(_LOUDNESS))).to_numpy()
    minute = table["time"].combine_chunks().cast(pa.int64()).to_numpy()
    step = np.cumsum(np.append(True, minute[1:] != minute[:-1])) - 1
    noise = np.random.default_rng([part_seed, 7]).normal(0, _LOUDNESS_SPREAD, step[-1] + 1)[step]
    loudness = (np.array(list(_LOUDNESS.values()))[code] + noise).round(2).astype(np.float32)
    return table.add_column(8, "loudness", pa.array(loudness))
