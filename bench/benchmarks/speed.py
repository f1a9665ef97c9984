"""Speed of training: fleets, the hidden Markov model and whole fits, as ratios on one machine.

    python bench/benchmarks/speed.py --out bench/results/speed            # this machine's CPU
    python bench/benchmarks/speed.py --out bench/results/speed --device cuda

Prints a table, writes one JSON line per measurement to speed-DEVICE.jsonl and draws the growth of the cost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import labeltide as lt
from labeltide._fleet import member_generators
from labeltide.chain import em
from labeltide.chain.passes import ChainData, Members, expect, plain_pass
from labeltide.estimators.fleet import FleetFit
from labeltide.kernels import library
from labeltide.kernels.library import torch_on_one_thread
from labeltide.models.gru import GRUModel
from labeltide.training import Fleet, FleetData, Schedule
from labeltide.training.objective import Objective
from labeltide.training.state import TrainingState, flatten_parameters
from labeltide.training.step import TrainingStep
from plain import PlainModel, fit_plain_continuous, plain_step
from speed_page import BASE, FLOOR, GROWTH, draw, summarise


def seconds(work: Callable[[], Any], device: str, repeats: int = 9, least: float = 0.1) -> tuple[float, float]:
    """The median time of a call and its spread (half the range of the middle half)."""

    def timed(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            work()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - started) / count

    timed(2)
    count = max(1, round(least / timed(1)))
    times = sorted(timed(count) for _ in range(repeats))
    return statistics.median(times), (times[repeats * 3 // 4] - times[repeats // 4]) / 2


def fleet_step(device: str, members: int, batch: int, steps: int, features: int, hidden: int) -> Callable[[], Any]:
    """One training step of a fleet that takes labels for true: sampling, forward, backward, clipping, Adam."""
    rows = 3 * batch
    study = lt.make_sequences(rows, steps, features, random_state=0)
    data = FleetData(
        features=torch.from_numpy(study.features),
        mask=torch.from_numpy(study.mask),
        labels=torch.from_numpy(study.labels).expand(members, -1, -1, -1).clone(),
        grid=torch.linspace(0, 1, steps, dtype=torch.float64),
        points=None,
        weights=torch.ones(members, rows),
        held_out=torch.zeros(members, rows, dtype=torch.bool),
    ).to(device)
    model = GRUModel(members, features, 2, hidden_size=hidden).initialise(member_generators(range(members))).to(device)
    fleet = Fleet(model)
    state = TrainingState.start(flatten_parameters(fleet, members), 0.01)
    step = TrainingStep(fleet, data, Objective(), Schedule(batch_size=batch), state)
    table = data.epoch_rows(range(members), 0, batch)[:1]

    def work() -> None:
        with torch_on_one_thread() if device == "cpu" else contextlib.nullcontext():  # as in training
            step.run_epoch(table, 0)

    return work


def one_plain_step(device: str) -> Callable[[], Any]:
    """The same step for one model with `nn.GRU` and torch's Adam."""
    model = PlainModel(BASE["features"], 2).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    features = torch.randn(BASE["batch"], BASE["steps"], BASE["features"], device=device)
    labels = torch.randint(0, 2, features.shape[:2], device=device)
    return lambda: plain_step(model, optimiser, features, labels)


def floor_of_step(device: str) -> dict[str, Any]:
    """The time that the arithmetic of one model's step takes at the rate of a large product on this machine."""
    size = 1024 if device == "cpu" else 8192
    matrix = torch.randn(size, size, device=device)
    rate = 2 * size**3 / seconds(lambda: matrix @ matrix, device)[0]
    inputs, hidden = BASE["features"], BASE["hidden"]
    products = 3 * hidden * (inputs + hidden) + 2 * hidden  # three gates, and a head of two classes
    operations = 3 * 2 * BASE["batch"] * BASE["steps"] * products  # backwards takes twice what forwards takes
    return {"name": FLOOR, "ms": 1e3 * operations / rate, "gflops": rate / 1e9}


def fits(device: str, method: str, members: int, apart: bool = False) -> Callable[[], Any]:
    """Fits on data of the size of `moving`'s training set, together or one after the other."""
    study = lt.make_sequences(137, 50, 9, stay=0.9, random_state=0)
    noise = lt.make_noise("mixed", n_steps=50)
    labels = [lt.corrupt(study.labels[..., 0], noise, seed) for seed in range(members)]

    def work() -> None:
        estimators = [lt.METHODS[method](random_state=seed, device=device) for seed in range(members)]
        groups = [slice(i, i + 1) for i in range(members)] if apart else [slice(members)]
        for group in groups:
            lt.fit_fleet(estimators[group], study.features, labels[group])

    return work


def plain_fit(device: str) -> Callable[[], Any]:
    """The plain loop doing what one `continuous` fit does."""
    study = lt.make_sequences(137, 50, 9, stay=0.9, random_state=0)
    noisy = lt.corrupt(study.labels[..., 0], lt.make_noise("mixed", n_steps=50), 0)
    features, labels = torch.from_numpy(study.features).to(device), torch.from_numpy(noisy.astype(np.int64)).to(device)
    return lambda: fit_plain_continuous(features, labels, 2)


def tide_stages(device: str) -> dict[str, float]:
    """Seconds of one `tide` fit and of its stages: training networks, each stage by its name, and fitting chains."""
    spent: dict[str, float] = {}

    def timed(work: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
        def call(*args: Any, **given: Any) -> Any:
            started = time.perf_counter()
            result = work(*args, **given)
            if device == "cuda":
                torch.cuda.synchronize()
            stage = name or f"networks, {given['stage']}"
            spent[stage] = spent.get(stage, 0.0) + time.perf_counter() - started
            return result

        return call

    with (
        patch.object(FleetFit, "train", timed(FleetFit.train)),
        patch.object(em, "fit_chains", timed(em.fit_chains, "chains")),
        patch.object(em, "fit_chains", timed(em.fit_chains, "families of Q")),
    ):
        timed(fits(device, "tide", 1), "all")()
    return spent


def measure_tide(device: str) -> list[dict[str, Any]]:
    """One `tide` fit and its stages beside one `continuous` fit, in turns: a busy machine slows both alike."""
    continuous = fits(device, "continuous", 1)
    tide_stages(device)  # the first calls of everything
    turns = [(tide_stages(device), seconds(continuous, device, 1, least=0.0)[0]) for _ in range(5)]
    ratio = statistics.median(stages["all"] / alone for stages, alone in turns)
    stages, _ = sorted(turns, key=lambda turn: turn[0]["all"])[2]
    records = []
    for name, value in stages.items():
        about: dict[str, Any] = {"share": value / stages["all"]}
        if name == "all":
            about["ratio_to_continuous"] = ratio
        label = "tide, one fit" if name == "all" else f"tide, one fit: {name}"
        records.append({"name": label, "ms": 1e3 * value, **about})
        print(f"{label:<52} {1e3 * value:10.2f} ms  {about['share']:5.0%} of the fit", flush=True)
    return records


def chain_pass(device: str, run: Callable[..., Any]) -> Callable[[], Any]:
    """One forward-backward pass of 100 chains over data of the size of `moving`."""
    study = lt.make_sequences(137, 50, 2, stay=0.9, random_state=0)
    labels, mask = torch.from_numpy(study.labels)[None].to(device), torch.from_numpy(study.mask).to(device)
    data = ChainData(labels.to(torch.int8), mask, None, 50, 2)
    same = torch.zeros(100, dtype=torch.int64, device=device)
    members = Members(same, same, torch.ones(100, 137, device=device))
    parameters = em.flat_chain(100, 1, data, 0.8)
    return lambda: run(data, members, parameters)


def measure_fits(device: str) -> list[dict[str, Any]]:
    """Whole fits of `continuous` in turns, so that a machine that slows down slows all of them alike."""
    works = {
        "continuous, one fit, plain loop": plain_fit(device),
        "continuous, one fit": fits(device, "continuous", 1),
        "continuous, ten fits as a fleet": fits(device, "continuous", 10),
    }
    for work in works.values():
        work()  # the first calls of everything
    turns = [{name: once(work, device) for name, work in works.items()} for _ in range(5)]
    plain, single, ten = ([turn[name] for turn in turns] for name in works)
    ratios = {
        "continuous, one fit": {
            "plain_loop_ratio": statistics.median(a / b for a, b in zip(plain, single, strict=True))
        },
        "continuous, ten fits as a fleet": {
            "ratio_to_one": statistics.median(a / b for a, b in zip(ten, single, strict=True))
        },
    }
    records = []
    for name, values in zip(works, (plain, single, ten), strict=True):
        median, spread = statistics.median(values), (sorted(values)[3] - sorted(values)[1]) / 2
        per = 1e3 * median / (10 if "ten" in name else 1)
        about = ratios.get(name, {})
        records.append({"name": name, "ms": 1e3 * median, "spread_ms": 1e3 * spread, "ms_per_model": per, **about})
        print(f"{name:<52} {1e3 * median:10.2f} ms ± {1e3 * spread:.2f}   {per:9.3f} ms per model", flush=True)
    return records


def once(work: Callable[[], Any], device: str) -> float:
    """The seconds of one call."""
    started = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def measure(device: str) -> list[dict[str, Any]]:
    """Every measurement as a record; long ones once or twice, short ones many times."""
    records = []

    def note(name: str, work: Callable[[], Any], per: int = 1, repeats: int = 9, **about: Any) -> float:
        median, spread = seconds(work, device, repeats, least=0.1 if repeats > 3 else 0.0)
        records.append(
            {"name": name, "ms": 1e3 * median, "spread_ms": 1e3 * spread, "ms_per_model": 1e3 * median / per, **about}
        )
        print(
            f"{name:<52} {1e3 * median:10.2f} ms ± {1e3 * spread:.2f}   {1e3 * median / per:9.3f} ms per model",
            flush=True,
        )
        return median

    note("step, one model, nn.GRU and a plain loop", one_plain_step(device))
    for members in (1, 10) if device == "cpu" else (1, 10, 60, 1000):
        note(f"step, fleet of {members}", fleet_step(device, **{**BASE, "members": members}), members, members=members)
    records.append(floor_of_step(device))
    print(f"{FLOOR:<52} {records[-1]['ms']:10.2f} ms   at {records[-1]['gflops']:.0f} GFLOP/s", flush=True)
    for name, values in GROWTH.items():
        for value in values:
            sizes = {**BASE, name: value}
            note(
                f"growth: {name} = {value}",
                fleet_step(device, **sizes),
                sizes["members"],
                repeats=5,
                growth=name,
                value=value,
            )
    note("chain, one pass in torch", chain_pass(device, plain_pass), 100)
    note("chain, one pass", chain_pass(device, expect), 100)
    records += measure_fits(device)
    note("continuous, ten fits one after another", fits(device, "continuous", 10, apart=True), 10, repeats=1)
    note("ignore, ten fits as a fleet", fits(device, "ignore", 10), 10, repeats=3)
    note("ignore, ten fits one after another", fits(device, "ignore", 10, apart=True), 10, repeats=1)
    return records + measure_tide(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench/results/speed"))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    records = measure(arguments.device)
    machine = torch.cuda.get_device_name() if arguments.device == "cuda" else f"{torch.get_num_threads()} cores"
    about = {
        "machine": machine,
        "date": time.strftime("%Y-%m-%d"),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "kernels": "torch" if (active := library.active()) is None else active.name,
    }
    print(*summarise(records), sep="\n")
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = f"speed-{arguments.device}"
    with open(arguments.out / f"{name}.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({**about, **record}) + "\n" for record in records)
    draw(records, arguments.out / f"{name}.png")


if __name__ == "__main__":
    main()
