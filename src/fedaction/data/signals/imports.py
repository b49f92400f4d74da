"""Bring your own wearables: from CSVs and arrays as they lie on a disk to a signal store, with every fault counted.

Files are read a block of rows at a time, and recordings written as soon as they end: memory holds one of them.
A recording ends where the label or the person changes, and where time jumps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.dataset import Issue, Kind
from fedaction.data.files import fingerprint, open_npy
from fedaction.data.imports import list_issues
from fedaction.data.labelled import LabelledFile
from fedaction.data.signals import times as clock
from fedaction.data.signals.sources import ARRAYS, find_usual, list_signals
from fedaction.data.signals.store import SignalWriter
from fedaction.data.signals.stretches import MOST_READINGS, Cutter, Stretch, keep_labelled
from fedaction.data.signals.summary import SignalSummary, inspect_signals
from fedaction.data.signals.tables import Floats, TableForm, find_form, read_blocks, to_numbers
from fedaction.data.signals.units import UnitGuess

_FAR = 50  # times a rate; a file whose own is further off would become far more or fewer readings than it has


@dataclass(frozen=True)
class SignalOptions:
    """How files are to be read; empty values are found out."""

    label: str = ""  # column
    time: str = ""  # column
    subject_column: str = ""
    columns: tuple[str, ...] = ()  # channels
    time_unit: clock.Unit | None = None
    rate_hz: float | None = None
    window_s: float = 0.0
    hop_s: float = 0.0
    ignore: tuple[str, ...] = ()  # labels of what is no activity


def import_signals(
    source: str | Path,
    out: str | Path,
    *,
    options: SignalOptions | None = None,
    labels: str | Path | None = None,
    label_pattern: str | None = None,
    subject: str | None = None,
    device: str = "",
    strict: bool = False,
    overwrite: bool = False,
) -> SignalSummary:
    """Imports recordings of a worn sensor into a signal store.

    Args:
        source: text tables with a label column (one file, or a folder of them at any depth); or a folder with a
            folder for each class, of text tables or `.npy` files (T, C), each one recording; or a folder of such
            files whose labels are in a table.
        out: store to write.
        options: columns, rate and windows.
        labels: a table with the columns file and label, and perhaps subject.
        label_pattern: regular expression for the class of a file, searched as `subject` is.
        subject: regular expression searched in file names, else in paths below the source; its first group (or whole
            match) names the person.
        device: what recorded them, such as "watch": what its clients' group is called.
        strict: make any issue an error, and write nothing.
        overwrite: replace a signal store at `out`.
    """
    source, options = Path(source), options or SignalOptions()
    _check(options)
    listing = list_signals(
        source,
        labels=Path(labels) if labels else None,
        label_pattern=label_pattern,
        label=options.label,
        subject=subject,
    )
    with SignalWriter(out, overwrite=overwrite) as writer:
        work = _Import(options, writer)
        for name, why in listing.missing:
            work.fault("unreadable", name, why)
        for file in listing.files:
            work.read(file)
        notes = tuple(dict.fromkeys((*listing.notes, *work.notes)))
        if not len(writer) or (strict and work.issues):
            found = "\n".join([*list_issues(work.issues), *(f"  note: {note}" for note in notes)])
            raise ValueError(f"nothing was imported from {source}:\n{found}")
        assert work.guess is not None
        window, hop = work.spans
        writer.finish(
            channels=work.channels,
            rate_hz=work.rate_hz,
            device=device,
            units=str(work.guess),
            window=window,
            hop=hop,
            issues=work.issues,
            notes=notes,
            provenance={
                "source": source.name,
                "files": len(listing.files),
                "fingerprint": fingerprint(source, [file.path for file in listing.files]),
                "subject": subject or "",
            },
        )
    return replace(inspect_signals(out), source=str(source))


def read_recordings(path: Path, channels: tuple[str, ...], rate_hz: float | None) -> list[npt.NDArray[np.float32]]:
    """The unbroken stretches of one file without regard to labels, (T, C) each, as an import would have made them.

    Args:
        path: a text table or an `.npy` file.
        channels: names of the columns wanted, in order; a table without a header has as many columns of numbers.
        rate_hz: what readings are brought to; None: as they are.
    """
    named = path.suffix.lower() not in ARRAYS and find_form(path).header
    work = _Import(SignalOptions(columns=channels if named else (), rate_hz=rate_hz), None)
    made = [values for values, _ in work.stretches(LabelledFile(path, path.name, label="recording"))]
    if made and made[0].shape[1] != len(channels):
        raise ValueError(f"{path} has {made[0].shape[1]} channels, where {', '.join(channels)} are wanted")
    return made


def _check(options: SignalOptions) -> None:
    if options.window_s < 0 or options.hop_s < 0 or (options.rate_hz is not None and options.rate_hz <= 0):
        raise ValueError("window, hop and rate must be positive numbers")
    if options.hop_s and not options.window_s:
        raise ValueError("a hop needs a window: give both in seconds")
    if options.hop_s > options.window_s:
        raise ValueError(f"a hop of {options.hop_s:g} s leaves gaps between windows of {options.window_s:g} s")


class _Import:
    """What is known while files are read one after the other: the first decides on channels, time and rate."""

    def __init__(self, options: SignalOptions, writer: SignalWriter | None) -> None:
        self.options, self.writer = options, writer
        self.issues: list[Issue] = []
        self.notes: list[str] = []
        self.channels: tuple[str, ...] = ()
        self.rate_hz: float | None = None
        self.guess: UnitGuess | None = None
        self._unit: clock.Unit | None = options.time_unit
        self._begun = False
        self._has_time: bool | None = None
        self._has_people: bool | None = None

    @property
    def spans(self) -> tuple[int, int]:
        """Window and hop in readings."""
        options = self.options
        if not options.window_s or self.rate_hz is None:
            return 0, 0
        window = max(round(options.window_s * self.rate_hz), 2)
        hop = round((options.hop_s or options.window_s / 2) * self.rate_hz)
        return window, min(max(hop, 1), window)

    def fault(self, kind: Kind, where: str, detail: str, count: int = 1) -> None:
        """Notes an issue, if there is anything to note."""
        if count:
            self.issues.append(Issue(kind=kind, where=where, count=count, detail=detail))

    def read(self, file: LabelledFile) -> None:
        """Writes a file's recordings; one that cannot be read is noted, and others go on. A full disk ends it."""
        short = one = nameless = number = 0
        stretches = self.stretches(file)
        while True:
            try:
                item = next(stretches, None)
            except (ValueError, OSError, EOFError) as error:
                self.fault("unreadable", file.where, str(error))
                break
            if item is None:
                break
            values, stretch = item
            number += 1
            window, _ = self.spans
            if self._has_people and not stretch.subject:
                nameless += 1
            elif len(values) < 2:
                one += 1
            elif len(values) < window:
                short += 1
            elif not np.isfinite(values).all():
                self.fault("unreadable", file.where, "a value is too large for single precision")
            else:
                assert self.guess is not None and self.writer is not None
                self.guess.add(values, self.rate_hz)
                name = file.where if number == 1 else f"{file.where}[{number}]"
                self.writer.add(values, label=stretch.label, name=name, subject=stretch.subject)
        self.fault("label", file.where, f"{nameless} stretches name no person, left out", nameless)
        self.fault("one_frame", file.where, f"{one} stretches of one reading, left out", one)
        self.fault(
            "short", file.where, f"{short} stretches shorter than {self.options.window_s:g} s, left out", short
        )

    def stretches(self, file: LabelledFile) -> Iterator[tuple[npt.NDArray[np.float32], Stretch]]:
        """A file's unbroken stretches, each at the import's rate and as it was read."""
        for stretch in self._array(file) if file.path.suffix.lower() in ARRAYS else self._table(file):
            rate = self.rate_hz
            even = stretch.values if rate is None else clock.even_out(stretch.times, stretch.values, rate)
            yield even.astype(np.float32), stretch

    def _array(self, file: LabelledFile) -> Iterator[Stretch]:
        array = open_npy(file.path)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or array.dtype.kind not in "fiu" or not array.size:
            raise ValueError(f"{array.dtype} {array.shape} is not numbers (readings, channels)")
        names = self.options.columns or tuple(f"c{i}" for i in range(1, array.shape[1] + 1))
        if len(names) != array.shape[1]:
            raise ValueError(f"it has {array.shape[1]} channels; {len(names)} are named")
        self._begin(names, bool(self.options.columns))
        self._has_people = file.subject is not None
        cutter = Cutter(clock.longest_step(self.rate_hz or 1.0))
        for first in range(0, len(array), MOST_READINGS):
            values = array[first : first + MOST_READINGS].astype(np.float64)
            at = np.arange(first, first + len(values)) / (self.rate_hz or 1.0)
            count = len(values)
            yield from cutter.add(at, values, [file.label or ""] * count, [file.subject or ""] * count)
        yield from cutter.end()
        self._close(cutter, file.where, 0)

    def _table(self, file: LabelledFile) -> Iterator[Stretch]:
        form = find_form(file.path)
        label, time, subject, channels = self._columns(form, file)
        ignored, ragged, start = {*self.options.ignore, ""}, 0, 0
        base: float | None = None
        cutter: Cutter | None = None
        for rows, odd in read_blocks(file.path, form):
            ragged += odd
            if not rows:
                continue
            values = np.stack([to_numbers(rows, column, form.comma) for column in channels], axis=1)
            at = None if time is None else self._times(rows, time, form)
            if cutter is None:
                names = tuple(form.names[c] if form.header else f"c{i}" for i, c in enumerate(channels, 1))
                self._begin(names, form.header, at, dated=time is not None and not form.numeric[time])
                own_rate = self.rate_hz or 1.0
                if at is not None:
                    own_rate = 1 / (clock.typical_step(at) * self._seconds(form, time))
                    if self.rate_hz is not None and not 1 / _FAR <= own_rate / self.rate_hz <= _FAR:
                        raise ValueError(
                            f"it has {own_rate:.3g} readings a second, too far from {self.rate_hz:g}: its time is in "
                            "another unit than that of the files before it, or --time-unit or --rate is wrong"
                        )
                cutter = Cutter(clock.longest_step(own_rate))
            if at is None:
                at = np.arange(start, start + len(rows)) / (self.rate_hz or 1.0)
            else:
                known = at[np.isfinite(at)]
                base = float(known[0]) if base is None and len(known) else base
                at = (at - (base or 0.0)) * self._seconds(form, time)
            start += len(rows)
            whats = [file.label or ""] * len(rows) if label is None else [row[label].strip() for row in rows]
            whose = [file.subject or ""] * len(rows) if subject is None else [row[subject].strip() for row in rows]
            yield from keep_labelled(cutter.add(at, values, whats, whose), ignored)
        if cutter is None:
            raise ValueError("it has no row of numbers")
        yield from keep_labelled(cutter.end(), ignored)
        self._close(cutter, file.where, ragged)

    def _close(self, cutter: Cutter, where: str, ragged: int) -> None:
        self.fault("nan_frames", where, f"{cutter.bad} of {cutter.rows} rows have a missing value", cutter.bad)
        self.fault("gap", where, f"time jumps {cutter.gaps} times", cutter.gaps)
        self.fault("duplicate", where, f"{cutter.twice} rows have the time of the row before", cutter.twice)
        self.fault("unreadable", where, f"{ragged} rows have another number of cells, and were left out", ragged)

    def _columns(self, form: TableForm, file: LabelledFile) -> tuple[int | None, int | None, int | None, list[int]]:
        """Where label, time, person and channels are in a file; what was found by its name is said once."""
        options, where = self.options, file.where
        places: dict[str, int | None] = {}
        for what, given, known in (
            ("label", options.label, file.label is not None),
            ("time", options.time, False),
            ("subject", options.subject_column, file.subject is not None),
        ):
            name = given or (find_usual(form.names, what) if form.header and not known else "")
            places[what] = form.find(name, what, where) if name else None
            if name and not given and not self._begun:
                self.notes.append(f"column {name!r} was taken for the {what}; --{_OPTIONS[what]} names another")
        if places["label"] is None and file.label is None:
            raise ValueError(f"it has no label column; name it with --label. It has {form.listing}")
        for what, before in (("time", self._has_time), ("subject", self._has_people)):
            has = places[what] is not None or (what == "subject" and file.subject is not None)
            if before is not None and before != has:
                raise ValueError(f"it has {'a' if has else 'no'} {what} column, unlike the files before it")
        taken = {place for place in places.values() if place is not None}
        if options.columns:
            channels = [form.find(name, "channel", where) for name in options.columns]
        elif self.channels and form.header:
            channels = [form.find(name, "channel", where) for name in self.channels]
        else:
            counts = [form.names[i] for i, flag in enumerate(form.counts) if flag and i not in taken]
            if counts and form.header and not self._begun:
                self.notes.append(f"column {counts[0]!r} counts rows, and was left out; --columns names channels")
            left_out = set(counts) if form.header else set[str]()
            channels = [
                i for i, flag in enumerate(form.numeric) if flag and i not in taken and form.names[i] not in left_out
            ]
        if not channels:
            raise ValueError(f"it has no column of numbers for a channel; it has {form.listing}")
        self._has_time = places["time"] is not None
        self._has_people = places["subject"] is not None or file.subject is not None
        return places["label"], places["time"], places["subject"], channels

    def _times(self, rows: list[list[str]], column: int, form: TableForm) -> Floats:
        if form.numeric[column]:
            return to_numbers(rows, column, form.comma)
        return clock.parse_dates([row[column] for row in rows])

    def _seconds(self, form: TableForm, column: int | None) -> float:
        """Seconds in a unit of the time column."""
        dated = column is not None and not form.numeric[column]
        return 1.0 if dated or self._unit is None else clock.UNITS[self._unit]

    def _begin(
        self, channels: tuple[str, ...], named: bool, times: Floats | None = None, *, dated: bool = False
    ) -> None:
        """Takes channels, unit and rate from the first file; others must have as many channels."""
        if self._begun:
            if len(channels) != len(self.channels):
                raise ValueError(f"it has {len(channels)} channels, where the first file has {len(self.channels)}")
            return
        rate = self.options.rate_hz
        if times is None:
            if self.options.window_s and rate is None:
                raise ValueError("a window in seconds needs --rate, since there is no time column (--time)")
        else:
            step = clock.typical_step(times)
            if not dated and self._unit is None:
                self._unit = clock.find_unit(times, rate)
            size = 1.0 if dated or self._unit is None else clock.UNITS[self._unit]
            measured = 1 / (step * size)
            words = "dates" if dated else clock.say_unit(self._unit or "s")
            resampled = rate is not None and abs(measured / rate - 1) > 0.02
            self.notes.append(
                f"time is in {words}: {measured:.4g} readings a second"
                + (f", brought to {rate:g}" if resampled else "")
            )
            rate = rate or clock.round_rate(measured)
        self.channels, self.rate_hz, self._begun = channels, rate, True
        self.guess = UnitGuess(channels, named)


_OPTIONS = {"label": "label", "time": "time", "subject": "subject-column"}
