import numpy as np
import pytest
from edfio import EdfAnnotation

from datasets import edf_writer
from labeltide_bench.datasets.edf import open_edf

SIGNALS = [("Slow", "DegC", (34, 40), (-2048, 2047), 2), ("Fast", "uV", (200, -200), (-100, 100), 6)]


@pytest.fixture
def digital():
    generator = np.random.default_rng(0)
    return [generator.integers(-2048, 2048, (5, 2)), generator.integers(-100, 101, (5, 6))]


def test_signals_come_back_in_physical_units_record_after_record(tmp_path, digital):
    edf = open_edf(edf_writer.write_signals(tmp_path / "a.edf", SIGNALS, digital, 2))
    assert (edf.seconds, edf.rate("Slow"), edf.rate("Fast")) == (10, 1, 3)
    assert [edf.signal(label).physical_dimension for label in ("Slow", "Fast")] == ["DegC", "uV"]
    assert edf.start == "24.04.89 16.13.00"
    slow = [34 + (d + 2048) / 4095 * 6 for record in digital[0] for d in record]
    fast = [200 + (d + 100) / 200 * -400 for record in digital[1] for d in record]  # a range may be upside down
    np.testing.assert_allclose(edf.read("Slow"), slow, rtol=1e-12)
    np.testing.assert_allclose(edf.read("Fast"), fast, atol=1e-9)
    np.testing.assert_array_equal(edf.read("Fast", every=4), edf.read("Fast")[::4])


def test_an_unknown_number_of_records_is_counted_from_the_length(tmp_path, digital):
    body = np.concatenate(digital, axis=1).astype("<i2").tobytes()
    path = tmp_path / "a.edf"
    path.write_bytes(edf_writer.header(SIGNALS, -1, 2) + body)
    assert open_edf(path).n_records == 5


def test_annotations_keep_onset_duration_and_every_text(tmp_path):
    # Two records; time-keeping lists without text; two texts at one moment; unordered; other signals between.
    records = [
        edf_writer.tal(0, None, "") + edf_writer.tal(90, 30.5, "Später", "Zwei"),
        edf_writer.tal(1, None, "") + edf_writer.tal(-1, None, "Before"),
    ]
    signals = [SIGNALS[0], ("EDF Annotations", "", (-1, 1), (-32768, 32767), 30)]
    notes = np.frombuffer(b"".join(record.ljust(60, b"\0") for record in records), "<i2").reshape(2, 30)
    path = edf_writer.write_signals(tmp_path / "a.edf", signals, [np.zeros((2, 2)), notes], 1, kind="EDF+C")
    assert open_edf(path).annotations() == [
        EdfAnnotation(-1, None, "Before"),
        EdfAnnotation(90, 30.5, "Später"),
        EdfAnnotation(90, 30.5, "Zwei"),
    ]


@pytest.mark.parametrize("length", [0, 100, 300, 256 * 3, -1])
def test_a_file_cut_off_anywhere_is_refused(tmp_path, digital, length):
    path = edf_writer.write_signals(tmp_path / "a.edf", SIGNALS, digital, 2)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"a\.edf must"):
        open_edf(path)


@pytest.mark.parametrize("duration", [b"inf", b"nan", b"0", b"-1", b"1e400"])
def test_records_need_a_duration(tmp_path, digital, duration):
    path = edf_writer.write_signals(tmp_path / "a.edf", SIGNALS, digital, 2)
    content = bytearray(path.read_bytes())
    content[244:252] = duration.ljust(8)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.edf must"):
        open_edf(path)


def test_what_the_reader_cannot_read_it_refuses(tmp_path, digital):
    path = edf_writer.write_signals(tmp_path / "a.edf", SIGNALS, digital, 2, kind="EDF+D")
    with pytest.raises(ValueError, match="must be continuous"):
        open_edf(path)
    path = edf_writer.write_signals(tmp_path / "b.edf", SIGNALS, digital, 2)
    with pytest.raises(ValueError, match=r"must have a signal 'EEG'. It has: Slow, Fast"):
        open_edf(path).read("EEG")
    flat = [("Flat", "uV", (-1, 1), (0, 0), 2)]
    with pytest.raises(ValueError, match="digital range"):
        open_edf(edf_writer.write_signals(tmp_path / "c.edf", flat, digital[:1], 2))
    signals = [("EDF Annotations", "", (-1, 1), (-32768, 32767), 2)]
    path = edf_writer.write_signals(tmp_path / "d.edf", signals, [np.full((1, 2), 0x4141)], 1)
    with pytest.raises(ValueError, match="onset, duration and texts"):
        open_edf(path).annotations()


@pytest.mark.parametrize(
    ("index", "field"),
    [
        (slice(252, 256), b"9999"),  # signals, for which there are no headers
        (slice(252, 256), b"-1  "),
        (slice(252, 256), b"many"),
        (slice(244, 252), b"nan     "),  # seconds in a record
        (slice(244, 252), b"-1      "),
        (slice(244, 252), b"0       "),
        (slice(236, 244), b"99999999"),  # records
        (slice(236, 244), b"?       "),
        (slice(184, 192), b"-768    "),  # bytes of the header
    ],
)
def test_a_header_that_lies_is_refused_with_a_sentence(tmp_path, digital, index, field):
    path = edf_writer.write_signals(tmp_path / "a.edf", SIGNALS, digital, 2)
    content = bytearray(path.read_bytes())
    content[index] = field
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.edf must"):
        open_edf(path)


def test_bytes_behind_the_last_record_are_ignored(tmp_path, digital):
    path = edf_writer.write_signals(tmp_path / "a.edf", SIGNALS, digital, 2)
    whole = open_edf(path).read("Fast")
    path.write_bytes(path.read_bytes() + b"\0" * 40)
    longer = open_edf(path)
    assert longer.seconds == 10
    np.testing.assert_array_equal(longer.read("Fast"), whole)
