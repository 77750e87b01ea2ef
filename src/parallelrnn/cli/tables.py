"""Files of series: read, understood and written, with a word on what was guessed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from parallelrnn.cli.dates import is_iso, is_text, possible_forms
from parallelrnn.errors import TableError
from parallelrnn.io import write_bytes

_SEPARATORS = (",", ";", "\t", "|")
_NOWHERE = "\x00"  # a separator that no line has
_TIMES = ("ds", "date", "datetime", "time", "timestamp", "day", "month", "year")
_NO_PYARROW = "{} {} needs pyarrow, which is not installed: pip install pyarrow"
_IDS = ("unique_id", "id", "series", "item_id", "series_id")


def read_table(path: Path, ids: str | None = None) -> pd.DataFrame:
    """A CSV or Parquet file; `ids` is the column that tells series apart, if that is known."""
    if not path.is_file():
        raise TableError(f"there is no file {path}")
    kind = path.suffix.lower()
    try:
        if kind in (".parquet", ".pq"):
            return _read_parquet(path)
        if kind in (".csv", ".txt", ".gz", ".tsv"):
            return _read_csv(path, _IDS if ids is None else (ids,))
    except ImportError as error:
        raise TableError(_NO_PYARROW.format("reading", path.name)) from error
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not written in UTF-8 ({error.reason}); save it as UTF-8") from error
    except Exception as error:  # of pandas, of pyarrow, or of what unpacks: all of them are about the file
        raise TableError(f"{path} cannot be read: {str(error) or type(error).__name__}") from error
    raise TableError(f"{path} is neither CSV nor Parquet by its name; expected .csv, .tsv, .csv.gz or .parquet")


def _read_parquet(path: Path) -> pd.DataFrame:
    """A table whose texts are texts: they are decoded when they are used, and that is too late to say which file."""
    pyarrow = import_module("pyarrow")
    frame = pd.read_parquet(path)
    for name in frame.columns:
        if pd.api.types.is_string_dtype(frame[name]):
            pyarrow.array(frame[name]).validate(full=True)
    return frame


def _read_csv(path: Path, ids: Sequence[str]) -> pd.DataFrame:
    """A table in which ids such as 007 and NA stay so; columns are apart by what its first line has most of."""
    head = "".join(map(str, pd.read_csv(path, sep=_NOWHERE, nrows=0, engine="python").columns))
    separator = max(_SEPARATORS, key=head.count)
    frame = pd.read_csv(path, sep=separator)
    if separator != ",":
        frame = _with_decimal_commas(frame)
    named = [name for name in ids if name in frame.columns]
    if named:
        texts = pd.read_csv(path, sep=separator, usecols=named, dtype="string", keep_default_na=False, na_values=[""])
        for name in named:
            is_number = pd.api.types.is_numeric_dtype(frame[name])
            words = (frame[name].isna() & texts[name].notna()).any()  # NA may be Namibia
            if words or (is_number and texts[name].str.match(r"0\d").any()):
                frame[name] = texts[name]
    return frame


def _with_decimal_commas(frame: pd.DataFrame) -> pd.DataFrame:
    """Texts that are all numbers such as 99,81 as numbers."""
    for name in frame.columns:
        if is_text(frame[name]):
            there = frame[name].dropna().astype(str)
            if len(there) and there.str.fullmatch(r"\s*[+-]?\d*,?\d+\s*").all():
                frame[name] = pd.to_numeric(frame[name].astype("string").str.replace(",", "."))
    return frame


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """A CSV or Parquet file, whole or not at all."""
    if path.suffix.lower() in (".parquet", ".pq"):
        try:
            data = frame.to_parquet(index=False)
        except ImportError as error:
            raise TableError(_NO_PYARROW.format("writing", path.name)) from error
    elif path.suffix.lower() in (".csv", ".txt"):
        data = frame.to_csv(index=False).encode("utf-8")
    else:
        raise TableError(f"{path} is neither CSV nor Parquet by its name; expected .csv or .parquet")
    write_bytes(path, data)


@dataclass(frozen=True)
class Layout:
    """Which column is what, and what of that was guessed."""

    id: str | None
    time: str
    targets: tuple[str, ...]
    guesses: tuple[str, ...]

    def arguments(self) -> dict[str, Any]:
        """As `Forecaster.fit` takes them."""
        ids = {} if self.id is None else {"id_col": self.id}
        return {**ids, "time_col": self.time, "target_col": self.targets[0] if len(self.targets) == 1 else self.targets}


def understand(
    frame: pd.DataFrame, id: str | None, time: str | None, targets: Sequence[str], covariates: Sequence[str]
) -> Layout:
    """What was said, and for the rest a guess."""
    guesses = []
    if time is None:
        time = _guess_time(frame)
        if possible_forms(pd.Series([time])) or is_iso(pd.Series([time])):
            raise TableError(
                f"the first line has values in the place of names ({time!r} is a time); put a line of names above it, "
                "or name the columns by --time and --target if they are really called so"
            )
        guesses.append(f"time column {time!r}")
    if id is None:
        taken = (time, *targets, *covariates)
        named = [name for name in _IDS if name in frame.columns and name not in taken]
        id = next((name for name in named if not pd.api.types.is_float_dtype(frame[name])), None)
        if id is not None:
            guesses.append(f"id column {id!r}")
    if not targets:
        targets = _guess_targets(frame, (id, time, *covariates))
        guesses.append(f"target{'s' if len(targets) > 1 else ''} {', '.join(map(repr, targets))}")
    roles = [("--time", time), *([] if id is None else [("--id", id)]), *(("--target", name) for name in targets)]
    for index, (option, name) in enumerate(roles):
        other = next((one for one, taken in roles[:index] if taken == name), None)
        if other is not None:
            raise TableError(f"the column {name!r} is given by {other} and by {option}; each needs a column of its own")
    return Layout(id, time, tuple(targets), tuple(guesses))


def _guess_time(frame: pd.DataFrame) -> str:
    by_name = [name for name in frame.columns if str(name).lower() in _TIMES]
    others = [name for name in frame.columns if is_text(frame[name])]
    others += [name for name in frame.columns if "datetime" in str(frame[name].dtype)]
    for name in [*by_name, *others]:
        column = frame[name]
        if pd.api.types.is_integer_dtype(column) or "datetime" in str(column.dtype):
            return str(name)
        some = column.head(100)
        if is_iso(some) or possible_forms(some):
            return str(name)
    raise TableError(
        f"none of the columns {', '.join(map(repr, frame.columns))} looks like time stamps; name it by "
        "--time, and say how it is written by --time-format"
    )


def _guess_targets(frame: pd.DataFrame, taken: Sequence[str | None]) -> list[str]:
    if "y" in frame.columns and "y" not in taken:
        return ["y"]
    found = [name for name in frame.columns if name not in taken and pd.api.types.is_numeric_dtype(frame[name])]
    if not found:
        raise TableError("the table has no column of numbers to forecast; name one by --target")
    return found
