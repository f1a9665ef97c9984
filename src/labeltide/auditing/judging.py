"""Judge every row, chunk by chunk: a chunk is a task of its own, and its result a file that is written whole."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import torch
from pyarrow import ipc
from torch import Tensor

from labeltide import _validation
from labeltide._files import write_atomically
from labeltide._workers import current_workers
from labeltide.auditing.alignment import TableShifts
from labeltide.auditing.checks import kept_codes, leave_out
from labeltide.auditing.fitting import SequencePowers
from labeltide.auditing.reading import AuditInput
from labeltide.auditing.survey import mix
from labeltide.estimators import TideClassifier
from labeltide.estimators.cross_fit import TrainingRows
from labeltide.estimators.fleet import find_moments
from labeltide.estimators.tide import FoldNetworks
from labeltide.inference.audit import (
    BINS,
    KINDS,
    RUN,
    Judge,
    LabelAudit,
    LabelCodes,
    Scores,
    find_kinds,
    find_threshold,
    is_misaligned,
    run_lengths,
)
from labeltide.inference.conclusion import Support, explain, find_support
from labeltide.kernels.library import kernel_threads, torch_on_one_thread

SUPPORT = "support"  # the column of parts from which reasons are written once the flags are known
STEP = "step"  # the column of parts with the order of lines in time


@dataclass(frozen=True)
class JudgeJob:
    """All that judging a chunk needs; it can be sent to another process."""

    table: Any  # a `Layout` or, of one chunk, a `MemoryTable`
    scorer: Scorer
    folder: Path | None  # where judged parts are written; None keeps them in `held`
    class_shares: np.ndarray  # (classes,): the mean posterior, with which error rates are averaged
    shifts: TableShifts  # by which labels of the table are moved to their time
    may_name: np.ndarray  # bool (others and runs, recorded, suggested): else only labels at a wrong time are named
    held: dict[int, pa.Table] = field(default_factory=dict)

    def has_part(self, number: int) -> bool:
        """Whether a chunk has been judged."""
        return number in self.held if self.folder is None else _part_path(self.folder, number).exists()

    def keep_part(self, number: int, lines: pa.Table) -> None:
        """Keep the judged lines of a chunk."""
        if self.folder is None:
            self.held[number] = lines
        else:
            write_atomically(_part_path(self.folder, number), partial(_write_part, lines))

    def read_part(self, number: int, columns: list[str] | None = None) -> pa.Table:
        """The judged lines of a chunk, some columns or all."""
        if self.folder is None:
            return self.held[number] if columns is None else self.held[number].select(columns)
        with pa.memory_map(str(_part_path(self.folder, number))) as source:
            names = ipc.open_file(source).schema.names
            fields = None if columns is None else [names.index(name) for name in columns]
            return ipc.open_file(source, options=ipc.IpcReadOptions(included_fields=fields)).read_all()

    def read_parts(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The judged lines of all chunks in their order; threads read ahead."""
        return work_ahead(lambda number: self.read_part(number, columns), range(len(self.table.chunks)))


def judge_all(job: JudgeJob, on_rows: Callable[[int], None]) -> None:
    """Judge all chunks: on as many threads as torch has, or by the workers of the context.

    Workers read and judge chunks, and this process writes them: only the table need be within their reach.
    """
    engine, chunks = current_workers(), job.table.chunks
    left = [number for number in range(len(chunks)) if not job.has_part(number)]
    rows = np.array([chunk.last_row - chunk.first_row for chunk in chunks])
    done = int(rows.sum() - rows[left].sum())

    def judge(number: int) -> int:
        job.keep_part(number, _judge_chunk(job, number))
        return int(rows[number])

    if engine.count < 2 or len(chunks) < 2:
        for judged in work_ahead(judge, left):
            done += judged
            on_rows(done)
        return
    # A copy, because torch moves tensors that are sent to a process to shared memory, away from arrays on them.
    for index, lines in engine.run(_judge_chunk, copy.deepcopy(job), left):
        job.keep_part(left[index], lines)
        done += int(rows[left[index]])
        on_rows(done)


def _judge_chunk(job: JudgeJob, number: int) -> pa.Table:
    with torch_on_one_thread():
        return judge_lines(job, *job.table.read(job.table.chunks[number]))


def _part_path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06d}.arrow"


def judge_lines(job: JudgeJob, given: AuditInput, numbers: np.ndarray) -> pa.Table:
    """The lines of labels.parquet but for flags, in whose place stands what speaks for another label.

    `given` has labels of all classes, of which rare ones are kept as they are; `numbers` those of rows of the table.
    """
    rare = job.table.rare
    table = job.shifts.apply(leave_out(given, rare))
    scores = job.scorer.score(table)
    step, who = table.line_step, table.line_annotator
    recorded = given.from_steps(given.labels)[step, who]
    recorded[who < 0] = -1
    label = kept_codes(rare)[recorded]
    there = label >= 0
    code = np.where(there, label, 0).astype(np.int64)
    suggested = scores.posterior.argmax(1).astype(np.int8)
    sure = scores.posterior.max(1)
    quality = _where(there, scores.posterior[step, code])
    names, people = pa.array(given.class_names), pa.array(table.annotator_names or (), pa.string())
    suggested_class = np.flatnonzero(~rare).astype(np.int8)[suggested[step]]
    rows = pa.array(table.line_row)
    support, shift = _support(job, table, scores, suggested), np.zeros(len(who), dtype=np.int32)
    ahead = np.zeros(len(who), dtype=np.int64)
    if table.shift is not None and table.ahead is not None:
        unit = table.sequence_of_step[step][who >= 0], who[who >= 0]
        shift[who >= 0], ahead[who >= 0] = table.shift[unit], table.ahead[unit]
    of_steps, moved = table.from_steps(table.labels), None if table.moved is None else table.from_steps(table.moved)
    misaligned = is_misaligned(of_steps, moved, suggested)[step, who] & (ahead == 0)
    own = np.minimum(step + ahead, len(suggested) - 1)  # where the label belongs if all labels are early
    inside = (own == step + ahead) & (table.sequence_of_step[own] == table.sequence_of_step[step])
    fits_ahead = (ahead > 0) & (~inside | (suggested[own] == code))
    runs = run_lengths((of_steps >= 0) & (of_steps != suggested[:, None]), table.sequence_of_step)
    support |= np.minimum(runs, 15).astype(np.uint64)[step, who] << np.uint64(SHIFTS["run"])
    support |= misaligned.astype(np.uint64) << np.uint64(SHIFTS["moved"])
    support[(support & np.uint64(1)) == 0] = 0
    in_runs = (_kinds(support) == KINDS.index(RUN)).astype(np.int64)
    support[fits_ahead | ~(misaligned | job.may_name[in_runs, code, suggested[step]])] = 0
    titles = ["clock", *(f"clock_{number}" for number in range(2, 1 + len(table.clocks)))]
    columns = {
        "row": pa.array(numbers[table.line_row]),
        "sequence": table.ids.take(rows),
        "time": table.times.take(rows),
        "annotator": _coded(who if len(people) else np.full(len(who), -1), people),
        **{title: table.from_steps(clock)[step] for title, clock in zip(titles, table.each_clock, strict=True)},
        "recorded": _coded(recorded, names),
        "probability_right": quality,
        "probability_contested": _where(there, 1 - scores.another[step, code]),
        "suggested": _coded(suggested_class, names),
        "suggested_probability": sure[step],
        "shift": shift,
        SUPPORT: support,
        STEP: step.astype(np.int32),
    }
    return pa.table(columns)


def _write_part(table: pa.Table, path: Path) -> None:
    with ipc.new_file(str(path), table.schema, options=ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table.combine_chunks())


def _where(there: np.ndarray, values: np.ndarray) -> pa.Array:
    return pa.array(values.astype(np.float32, copy=False), mask=None if there.all() else ~there)


def _coded(codes: np.ndarray, names: pa.Array) -> pa.DictionaryArray:
    small = codes.astype(np.int8 if len(names) < 128 else np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(small, mask=codes < 0), names)


def _support(job: JudgeJob, table: AuditInput, scores: Scores, suggested: np.ndarray) -> np.ndarray:
    """What speaks for the suggested label, packed in one number: uint64 of shape (lines,), 0 where labels agree."""
    shape = table.index.shape
    best = np.full(shape[0] * shape[1], -1, dtype=np.int8)
    best[table.flat_index] = suggested
    best = best.reshape(shape)
    signal = np.zeros((shape[0] * shape[1], scores.signal.shape[1]), dtype=np.float32)
    signal[table.flat_index] = scores.signal
    differs = (table.fit_labels >= 0) & (table.fit_labels != best[..., None])
    rates = (job.scorer.judge.error_rates @ job.class_shares).astype(np.float32)  # (annotators or 1, points)
    flat = np.zeros((len(rates), best.size), dtype=np.float32)
    flat[:, table.flat_index] = rates[:, scores.point]
    wrong = np.broadcast_to(np.moveaxis(flat.reshape(len(rates), *shape), 0, -1), table.labels.shape)
    found = find_support(table.fit_labels, differs, best, signal.reshape(*shape, -1), wrong)
    packed = np.zeros(table.labels.shape, dtype=np.uint64)
    packed[differs] = pack_support(found)
    of_lines = packed.reshape(-1, table.labels.shape[2])[table.flat_index[table.line_step], table.line_annotator]
    of_lines[table.line_annotator < 0] = 0
    return of_lines


@dataclass
class Scorer:
    """The networks and the judge of a fitted estimator."""

    estimator: TideClassifier
    powers: SequencePowers
    networks: FoldNetworks | None  # None where every label was trusted, and nothing was cross-fitted
    sketches: np.ndarray | None  # of the windows that were learned from, among others, by which these are found
    # The features of the windows from which the scorer was made, and their signal: a table in memory is one chunk of
    # all windows, which networks need not read again.
    sample: tuple[np.ndarray, Tensor] | None = None
    judge: Judge = field(init=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without the sample, which other processes do not meet."""
        return {**vars(self), "sample": None}

    def score(self, table: AuditInput) -> Scores:
        """Judge every step that belongs to one of the windows of a table."""
        recorded = self.recorded(table)
        return self.judge.score(recorded, self.signal(table, recorded.mask), table.flat_index)

    def score_windows(self, table: AuditInput, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior and prediction from the features at every step of the windows: (n, steps, classes) each."""
        signal = self.signal(table, mask)
        return self.judge.posterior(self.recorded(table), signal).numpy(), signal.numpy()

    def recorded(self, table: AuditInput) -> LabelCodes:
        """The labels of a table as the judge takes them."""
        labels = table.labels if table.moved is None else table.moved
        mask = _validation.steps_mask(table.lengths, table.index.shape[1])
        return LabelCodes(labels, mask, find_moments(self.estimator, table.clock), table.trusted, gaps=table.gaps)

    def signal(self, table: AuditInput, mask: np.ndarray, in_threads: bool = False) -> Tensor:
        """Probabilities of the true labels from the features: (n, steps, classes); out of fold for training rows."""
        if self.sample is not None and self.sample[0] is table.features:
            return self.sample[1]
        features = self.powers.apply(table).features
        if self.networks is None or self.sketches is None:
            return torch.from_numpy(self.estimator.predict_proba(features, mask.sum(1))).float()
        folds = find_folds(self.estimator.training_rows_, self.sketches, features, mask)
        return self.networks.predict(features, mask, folds, work_ahead if in_threads else map)


def make_scorer(estimator: TideClassifier, sample: AuditInput, device: str, powers: SequencePowers) -> Scorer:
    """Fix all that judging needs from the windows that were learned from."""
    mask = _validation.steps_mask(sample.lengths, sample.index.shape[1])
    networks = sketches = None
    if estimator.fold_model_ is not None:
        networks = FoldNetworks(estimator.fold_model_, estimator.training_rows_, device)
        sketches = np.unique(sketch_rows(sample.features, mask))
    scorer = Scorer(estimator, powers, networks, sketches)
    signal = scorer.signal(sample, mask, in_threads=True)
    scorer.sample = sample.features, signal
    scorer.judge = Judge.fit(scorer.recorded(sample), signal, estimator.chain_, estimator.noise_)
    return scorer


def judge_sample(scorer: Scorer, sample: AuditInput, fdr: float, false_alarms: np.ndarray | None) -> LabelAudit:
    """The audit of the windows from which the scorer was made, but for reasons."""
    mask = _validation.steps_mask(sample.lengths, sample.index.shape[1])
    posterior, signal = scorer.score_windows(sample, mask)
    classes = np.array(sample.class_names)
    rates = np.zeros((*mask.shape, len(classes)), dtype=np.float32)
    more: dict[str, Any] = {"trusted": sample.fit_trusted, "false_alarms": false_alarms, "aligned": sample.moved}
    if sample.ahead is not None:
        more["ahead"] = sample.ahead[sample.groups][:, None]  # (windows, 1, annotators)
    clock = sample.each_clock[0]
    return LabelAudit(classes, sample.fit_labels, clock, mask, posterior, signal, rates, fdr, True, **more)


FIRST = 8  # steps of a row that are looked at


def find_folds(rows: TrainingRows, sketches: np.ndarray, features: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """As `TrainingRows.find_folds`, by digests of those rows alone that have one of the sketches."""
    maybe = np.flatnonzero(np.isin(sketch_rows(features, mask), sketches))
    folds = np.full(len(features), -1)
    folds[maybe] = rows.find_folds(features[maybe], mask[maybe])
    return folds


def sketch_rows(features: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """One number for the first features of every row, the same for equal rows: uint64 of shape (rows,).

    A digest of each row is computed in Python, one after another. Of an audit whose networks run on a GPU, digests of
    all rows were a third of the time in which other threads waited; rows of other sketches need none.
    It is a sum of their bits as whole numbers, weighted by fixed odd numbers (universal hashing, Dietzfelbinger 1996).
    """
    bits = np.ascontiguousarray(features[:, :FIRST], dtype=np.float32).view(np.uint32)
    bits = np.where(mask[:, :FIRST, None], bits, 0).reshape(len(features), -1).astype(np.uint64)
    weights = mix(np.zeros(1, dtype=np.uint64), np.arange(bits.shape[1])) | np.uint64(1)
    return bits @ weights


QUALITY = "probability_right"


@dataclass(frozen=True)
class Flags:
    """Which labels are flagged: those with a quality below the threshold for which another is likelier, or all such."""

    threshold: float  # with `counts`, as `find_threshold` gives it
    counts: np.ndarray
    spend_fdr: bool = False  # whether labels for which no other is likelier are flagged too

    @property
    def n_issues(self) -> int:
        return int(self.counts.sum())

    def of(self, part: pa.Table) -> np.ndarray:
        """The flags of the lines of a part: bool of shape (lines,)."""
        with np.errstate(invalid="ignore"):
            return may_flag(part, self.spend_fdr) & (part[QUALITY].to_numpy() < self.threshold)

    def buckets(self, size: int) -> np.ndarray:
        """Rising borders of quality, between which lie about `size` flagged labels each."""
        total = np.cumsum(self.counts)
        wanted = np.arange(size, self.n_issues, size)
        return (np.unique(np.searchsorted(total, wanted)) + 1) / BINS


def may_flag(part: pa.Table, spend_fdr: bool) -> np.ndarray:
    """The lines of a part for which another label is likelier; with `spend_fdr` all lines with a label."""
    return np.asarray(part[QUALITY].is_valid().to_numpy() if spend_fdr else part[SUPPORT].to_numpy() > 0)


def find_flags(parts: Iterable[pa.Table], fdr: float, spend_fdr: bool = False) -> Flags:
    """The flags of all parts."""
    qualities = (part[QUALITY].to_numpy()[may_flag(part, spend_fdr)] for part in parts)
    return Flags(*find_threshold(qualities, fdr), spend_fdr)


MAX_SENTENCES = 200_000  # sentences

# Bits of each part, the first of which marks a label from which the suggested one differs.
BITS = {
    "marked": 1,
    "recorded": 8,
    "suggested": 8,
    "agreeing": 10,
    "neighbours": 10,
    "same": 1,
    "signal_percent": 7,
    "others": 7,
    "wrong_percent": 7,
    "run": 4,  # steps in a row that differ from the likeliest label
    "moved": 1,  # whether the label fits another step
}
SHIFTS = dict(zip(BITS, accumulate(BITS.values(), initial=0), strict=False))  # bits before each part


def pack_support(support: Support) -> np.ndarray:
    """One number for every label: uint64 of shape (labels,); shares are whole percents, as they are shown."""
    parts = support._asdict() | {
        "marked": np.ones(len(support.recorded)),
        "same": support.signal == support.suggested,
        "signal_percent": np.rint(100 * support.signal_probability.astype(np.float64)),
        "wrong_percent": np.rint(100 * support.wrong.astype(np.float64)),
    }
    packed = np.zeros(len(support.recorded), dtype=np.uint64)
    for name in BITS.keys() & parts.keys():
        whole = np.minimum(parts[name].astype(np.int64), 2 ** BITS[name] - 1)
        packed |= whole.astype(np.uint64) << np.uint64(SHIFTS[name])
    return packed


def kinds_of(packed: np.ndarray, flagged: np.ndarray) -> pa.DictionaryArray:
    """The kind of each flagged label, null for the others."""
    return pa.DictionaryArray.from_arrays(pa.array(_kinds(packed).astype(np.int8), mask=~flagged), pa.array(KINDS))


def _kinds(packed: np.ndarray) -> np.ndarray:
    return find_kinds(*(_part(packed, name).astype(np.int64) for name in ("run", "others", "moved")))


def unpack_support(packed: np.ndarray) -> Support:
    """What `pack_support` packed; where the features speak for another label than the suggested one, it is -1."""
    parts = {name: _part(packed, name).astype(np.int64) for name in BITS}
    shares = parts["signal_percent"] / 100, parts["wrong_percent"] / 100
    signal = np.where(parts["same"] > 0, parts["suggested"], -1)
    known = {name: parts[name] for name in Support._fields if name in parts}
    return Support(**known, signal=signal, signal_probability=shares[0], wrong=shares[1])


@dataclass
class Reasons:
    """Writes sentences, for several threads; earlier ones are kept: Python writes a million of them in two seconds."""

    classes: Sequence[str]
    known: dict[int, str] = field(default_factory=dict)  # by what they are written from

    def write(self, packed: np.ndarray, flagged: np.ndarray) -> pa.DictionaryArray:
        """A sentence for every flagged label, null for the others; each distinct sentence is written once.

        Nothing is packed, and zero unpacks to equal labels, where no other label is likelier.
        """
        coded = pa.array(_shown(packed[flagged])).dictionary_encode()  # several times faster than np.unique
        known = self.known = self.known if len(self.known) < MAX_SENTENCES else {}
        numbers = coded.dictionary.to_pylist()
        if new := [number for number in numbers if number not in known]:
            support = unpack_support(np.array(new, dtype=np.uint64))
            known.update(zip(new, explain(support, self.classes), strict=True))
        # Parquet's writer leaves bytes of its memory in the file where a dictionary repeats a value.
        sentences = pa.array([known[number] for number in numbers], pa.string()).dictionary_encode()
        indices = np.full(len(packed), -1, dtype=np.int32)
        indices[flagged] = sentences.indices.to_numpy()[coded.indices.to_numpy()]
        return pa.DictionaryArray.from_arrays(pa.array(indices, mask=~flagged), sentences.dictionary)


def _shown(packed: np.ndarray) -> np.ndarray:
    """Without what a sentence does not say: neighbours where fewer than half agree, a signal for another label."""
    agreeing, neighbours = _part(packed, "agreeing"), _part(packed, "neighbours")
    silent = np.where(2 * agreeing > neighbours, np.uint64(0), _mask("agreeing") | _mask("neighbours"))
    silent |= np.where(_part(packed, "same") > 0, np.uint64(0), _mask("signal_percent"))
    silent |= _mask("run") | _mask("moved")
    return packed & ~silent


def _part(packed: np.ndarray, name: str) -> np.ndarray:
    return (packed >> np.uint64(SHIFTS[name])) & np.uint64(2 ** BITS[name] - 1)


def _mask(name: str) -> np.uint64:
    return np.uint64((2 ** BITS[name] - 1) << SHIFTS[name])


Item = TypeVar("Item")
Result = TypeVar("Result")


def work_ahead(function: Callable[[Item], Result], items: Iterable[Item], most: int | None = None) -> Iterator[Result]:
    """The results of a function in the order of the items, computed on as many threads as torch has, or at most so."""
    threads = min(kernel_threads(), most or kernel_threads())
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(copy_context().run, function, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
