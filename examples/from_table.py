"""Estimate the label error rate by hour of day from a long table (Continuous method, Nagaraj and others 2025)."""

import numpy as np
import pandas as pd

import labeltide as lt

# A made-up diary: 40 people, 4 days of 24 hours, asleep or awake, and self-reports that are worst at night.
rng = np.random.default_rng(0)
table = pd.DataFrame([(p, h) for p in range(40) for h in range(96)], columns=["person", "hour"])
table["hour_of_day"] = table["hour"] % 24
asleep = (table["hour_of_day"] < 7) ^ (rng.random(len(table)) < 0.1)
table["movement"] = rng.normal(np.where(asleep, 0.0, 2.5))
table["heart_rate"] = rng.normal(np.where(asleep, 55.0, 75.0), 6.0)
wrong = rng.random(len(table)) < 0.05 + 0.35 * np.exp(-(((table["hour_of_day"] - 3) / 3) ** 2))
table["report"] = np.where(asleep ^ wrong, "asleep", "awake")

study = lt.Sequences.from_table(
    table,
    sequence="person",
    time="hour",
    label="report",
    features=["movement", "heart_rate"],
    clock="hour_of_day",
    zscore="person",
)
labels = study.decode(study.labels[..., 0])
clf = lt.METHODS["continuous"](random_state=0, epochs=60).fit(study.features, labels, clock=study.clock)

chances = clf.predict_proba(study.features)  # of being asleep or awake: (people, hours, classes)
for hour in (3, 9, 15, 21):
    now = chances[study.clock == hour].mean(0)
    estimated = now @ (1 - np.diagonal(clf.noise_at(hour)))
    true = wrong[table["hour_of_day"] == hour].mean()
    print(f"at {hour:2d} h about {estimated:.0%} of the reports are wrong; truly {true:.0%}")
