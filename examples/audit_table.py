"""Audit the labels of a table: find label errors and how the error rate varies over time, as a folder and a page."""

import labeltide as lt
from labeltide.data.studies import simulate_study

table = simulate_study(people=8, days=2)  # or the path of your own .parquet or .csv file
result = lt.audit(
    table,
    sequence="person",
    time="time",
    label="label",
    annotator="annotator",
    features="movement,posture,heart_rate",
    clock="hour_of_day",
    out="audit",
)
print(result)  # in a notebook, `result` alone shows a drawing too
print(result.issues.select(["sequence", "time", "recorded", "suggested", "probability_right"]).slice(0, 3).to_pylist())
print("the whole page:", result.page)
