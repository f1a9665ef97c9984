import hashlib

import numpy as np
import pandas as pd
import pytest
from edfio import EdfAnnotation

from datasets import edf_writer
from labeltide_bench.datasets import sleep_edf, sleep_nights
from labeltide_bench.datasets.edf import open_edf
from labeltide_bench.datasets.sleep_nights import Night


def test_a_minute_holds_the_first_sample_of_every_channel_and_the_stage_at_that_moment(tmp_path):
    night = Night(*edf_writer.write_night(tmp_path))
    table = sleep_edf.convert_night(night)["channels_1min.parquet"].to_pandas()
    assert list(table)[:3] + list(table)[-2:] == ["night", "subject", "minute", "stage", "stage_rk"]
    # Minute 3 is movement; minute 4 begins in REM although its second half is not scored.
    assert table["minute"].tolist() == [0, 1, 2, 4]
    assert table["stage"].tolist() == [0, 1, 3, 4]
    assert table["stage_rk"].tolist() == [0, 1, 3, 5]
    recording = open_edf(night.recording)
    for column, label in sleep_edf.CHANNELS.items():
        values = recording.read(label)
        expected = [values[round(minute * 60 * recording.rate(label))] for minute in table["minute"]]
        np.testing.assert_array_equal(table[column], np.float32(expected))


def test_an_epoch_holds_features_of_its_own_30_seconds(tmp_path):
    night = Night(*edf_writer.write_night(tmp_path, "SC4122", "H"))
    table = sleep_edf.convert_night(night)["sleep_edf_sc_30s.parquet"].to_pandas()
    assert table["epoch"].tolist() == [0, 1, 2, 3, 4, 5, 8]
    assert table["stage_rk"].tolist() == [0, 0, 1, 2, 3, 4, 5]
    assert table["stage"].tolist() == [0, 0, 1, 2, 3, 3, 4]
    assert set(table["night"]) == {"SC4122"}
    assert set(table["subject"]) == {12}
    signal = open_edf(night.recording).read("EEG Pz-Oz")
    for row in table.itertuples():
        own = signal[3000 * row.epoch : 3000 * (row.epoch + 1)]
        assert row.pzoz_logvar == pytest.approx(np.log10(own.var()), rel=1e-5)
        assert row.pzoz_mobility == pytest.approx((np.diff(own).var() / own.var()) ** 0.5, rel=1e-5)


def test_records_of_60_seconds_give_the_same_rows(tmp_path):  # SC4362F0 is such a file
    for seconds in (30, 60):
        (tmp_path / str(seconds)).mkdir()
        files = edf_writer.write_night(tmp_path / str(seconds), n_records=300 // seconds, record_seconds=seconds)
        tables = sleep_edf.convert_night(Night(*files))
        assert tables["channels_1min.parquet"]["minute"].to_pylist() == [0, 1, 2, 4]
        assert tables["sleep_edf_sc_30s.parquet"]["epoch"].to_pylist() == [0, 1, 2, 3, 4, 5, 8]


def test_stages_equal_a_slow_search():
    generator = np.random.default_rng(0)
    texts = [*sleep_edf.STAGES_RK, *sleep_edf.UNSCORED]
    notes, onset = [], 30.0  # nothing is scored at first
    for _ in range(40):
        duration = 30.0 * generator.integers(1, 6)
        notes.append(EdfAnnotation(onset, duration, str(generator.choice(texts))))
        onset += duration + 30 * generator.integers(0, 2)  # gaps
    for step in (30, 60):
        stages = sleep_edf.stages_at(notes, step, 2000)
        assert len(stages) == len(range(0, 2000, step))
        for stage, time in zip(stages, range(0, 2000, step), strict=True):
            scored = [n.text for n in notes if n.onset <= time < n.onset + n.duration]
            assert stage == (sleep_edf.STAGES_RK.get(scored[0], -1) if scored else -1)


def test_nights_follow_each_other_in_the_files(tmp_path):
    for name, letter in (("SC4012", "J"), ("SC4001", "C")):
        edf_writer.write_night(tmp_path, name, letter)
    sleep_edf.convert(sleep_nights.given_nights([tmp_path]), tmp_path)
    for file, n_rows in (("channels_1min.parquet", 4), ("sleep_edf_sc_30s.parquet", 7)):
        table = pd.read_parquet(tmp_path / file)
        assert table["night"].tolist() == ["SC4001"] * n_rows + ["SC4012"] * n_rows
        assert table["subject"].tolist() == [0] * n_rows + [1] * n_rows


def test_what_does_not_fit_together_is_refused(tmp_path):
    recording, hypnogram = edf_writer.write_night(tmp_path)
    other = edf_writer.write_hypnogram(tmp_path / "b.edf", [(0, 30, "Sleep stage W")], ("25.04.89", "16.13.00"))
    with pytest.raises(ValueError, match=r"must start together.*24\.04\.89.*25\.04\.89"):
        sleep_edf.convert_night(Night(recording, other))
    for notes, message in (([(0, 30, "Apnea")], "Got Apnea"), ([], "Got none")):
        other = edf_writer.write_hypnogram(tmp_path / "b.edf", notes)
        with pytest.raises(ValueError, match=message):
            sleep_edf.convert_night(Night(recording, other))
    recording.write_bytes(recording.read_bytes().replace(b"uV      ", b"mV      ", 1))
    with pytest.raises(ValueError, match="Fpz-Cz must be in uV"):
        sleep_edf.convert_night(Night(recording, hypnogram))
    recording.write_bytes(recording.read_bytes()[:-2])
    with pytest.raises(ValueError, match="cut off"):
        sleep_edf.convert_night(Night(recording, hypnogram))


# Which files belong together


def test_checksums_are_read_for_the_cassette_files_alone(tmp_path):
    path = tmp_path / "SHA256SUMS.txt"
    path.write_text(
        "aa sleep-cassette/SC4001E0-PSG.edf\nbb  ./sleep-cassette/SC4001EC-Hypnogram.edf\n\n"
        "cc sleep-telemetry/ST7011J0-PSG.edf\ndd SC-subjects.xls\nee *sleep-cassette/SC4002E0-PSG.edf\n"
    )
    assert sleep_nights.read_sums(path) == {
        "SC4001E0-PSG.edf": "aa",
        "SC4001EC-Hypnogram.edf": "bb",
        "SC4002E0-PSG.edf": "ee",
    }


def test_a_night_needs_both_files():
    names = ["SC4011EH-Hypnogram.edf", "SC4001E0-PSG.edf", "SC4001EC-Hypnogram.edf", "SC4011E0-PSG.edf"]
    assert sleep_nights.pair_names(names) == [
        ("SC4001E0-PSG.edf", "SC4001EC-Hypnogram.edf"),
        ("SC4011E0-PSG.edf", "SC4011EH-Hypnogram.edf"),
    ]
    with pytest.raises(ValueError, match="SC4011E has only one"):
        sleep_nights.pair_names(names[1:])


def test_nights_given_by_hand_are_checked_where_the_sums_are_given_too(tmp_path):
    files = edf_writer.write_night(tmp_path)
    assert sleep_nights.given_nights(files) == [Night(*files)]
    sums = [f"{hashlib.sha256(f.read_bytes()).hexdigest()} sleep-cassette/{f.name}\n" for f in files]
    (tmp_path / "SHA256SUMS.txt").write_text("".join(sums))
    assert sleep_nights.given_nights([tmp_path]) == [Night(*files)]
    files[0].write_bytes(files[0].read_bytes() + b"x")
    with pytest.raises(ValueError, match=r"SC4001E0-PSG\.edf must have the SHA-256"):
        sleep_nights.given_nights([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="at least one night"):
        sleep_nights.given_nights([tmp_path / "empty"])
