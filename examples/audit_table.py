"""From a table to a page that says which labels are likely wrong, when, and what to do."""

import labeltide as lt
from labeltide.auditing import simulate_study

table = simulate_study(people=8, days=2)  # or the path of your own .parquet or .csv file
found = lt.audit(
    table,
    sequence="person",
    time="time",
    label="label",
    annotator="annotator",
    features="movement,posture,heart_rate",
    clock="hour_of_day",
    out="audit",
)
print(found)  # in a notebook, `found` alone shows a drawing too
print(found.issues.select(["sequence", "time", "recorded", "suggested", "probability_right"]).slice(0, 3).to_pylist())
print("the whole page:", found.page)
