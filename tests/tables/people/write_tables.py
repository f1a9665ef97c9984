"""Write the tables beside this file: small tables with the habits of people's own files. Run it to write them again."""

from datetime import datetime, timedelta
from pathlib import Path

HERE = Path(__file__).parent
STEPS = 30  # of each of two people
START = datetime(2024, 3, 30, 8, 0)


def rows():
    """Person, time, pulse and label of 60 rows: rest with a low pulse, walk with a high one."""
    for person in ("ann", "bo"):
        for step in range(STEPS):
            is_walk = step // 5 % 2
            yield person, START + timedelta(minutes=20 * step), 60 + 35 * is_walk + step % 4, ("rest", "walk")[is_walk]


def write(name, lines, separator=","):
    text = "\n".join(separator.join(map(str, line)) for line in [("person", "time", "pulse", "label"), *lines])
    (HERE / name).write_text(text + "\n", encoding="utf-8")


def spelled(index, label):
    others = {"rest": ("rest", "rest", "Rest ", " rest", "REST"), "walk": ("walk",)}[label]
    return f'"{others[index % len(others)]}"'


def half(moment):
    return f"{moment.month}/{moment.day}/{moment.year} {moment.hour % 12 or 12}:{moment:%M} {moment:%p}"


def main():
    known = list(rows())
    plain = [(person, f"{time:%Y-%m-%d %H:%M}", pulse, label) for person, time, pulse, label in known]
    write("spellings.csv", [(*row[:3], spelled(index, row[3])) for index, row in enumerate(plain)])
    write("decimal_commas.csv", [(*row[:2], f"{row[2]},{i % 10}", row[3]) for i, row in enumerate(plain)], ";")
    write("offsets.csv", [(p, f"{t:%Y-%m-%dT%H:%M}:00+01:00", v, y) for p, t, v, y in known])
    write("day_first.csv", [(p, f"{t:%d/%m/%Y %H:%M}", v, y) for p, t, v, y in known])
    write("am_pm.csv", [(p, half(t), v, y) for p, t, v, y in known])
    gone = set(range(4, 59, 5))  # 11 of 60
    write("missing_times.csv", [(p, "" if i in gone else t, v, y) for i, (p, t, v, y) in enumerate(plain)])
    write("duplicates.csv", [each for i, row in enumerate(plain) for each in [row] * (2 if i < 18 else 1)])
    night = datetime(2024, 10, 26, 22, 0)  # clocks go back at 3:00 on the 27th in Berlin
    wall = [
        (p, night + timedelta(minutes=20 * (i % STEPS) - (60 if i % STEPS >= 15 else 0)), v, y)
        for i, (p, _, v, y) in enumerate(known)
    ]
    write("daylight_saving.csv", [(p, f"{t:%Y-%m-%d %H:%M}", v, y) for p, t, v, y in wall])
    write("open_dates.csv", [(p, f"0{1 + i // 24}/04/2024 {i % 24}:00", v, y) for i, (p, _, v, y) in enumerate(known)])


if __name__ == "__main__":
    main()
