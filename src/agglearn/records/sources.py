"""Where records come from: files of several formats, frames and readers, all as Arrow batches.

A source knows its columns and can be read more than once, a batch at a time. CSV columns are read as
text, so that a code such as ``007`` stays what it is and no type depends on the first lines of a file.
"""

from __future__ import annotations

import codecs
import csv
import glob
import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from agglearn.errors import InputError
from agglearn.records.options import ReadOptions
from agglearn.records.rows import are_records, is_record, table_of_records
from agglearn.records.spread import SparkFiles, SparkFrame
from agglearn.runtime.speech import option
from agglearn.runtime.unfinished import unfinished
from agglearn.schema.columns import check_supported, plain_batch, plain_type
from agglearn.schema.places import marked, ragged_line
from agglearn.schema.schema import some
from agglearn.spark.inputs import SPARK_INPUT, is_spark_input, open_input, scanned_files, shared_path
from agglearn.spark.session import is_frame, open_session

BATCH_ROWS = 1 << 18
_CSV_BLOCK = 1 << 24
_HEAD = 1 << 18
_COMPRESSED = (".gz", ".zst", ".zstd", ".bz2")
_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_SEPARATORS = ",\t;|"


@runtime_checkable
class Source(Protocol):
    """Records that can be read again and again, a batch at a time."""

    @property
    def columns(self) -> list[str]: ...

    @property
    def rows(self) -> int | None:
        """How many records there are, where that is known beforehand."""

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches with these columns."""


def open_source(data: Any, options: ReadOptions | None = None) -> Source:
    """A source for paths (files, globs, folders), frames, Arrow tables, readers; a source is one already."""
    options = options or ReadOptions()
    if is_frame(data):
        return _scan(data) or SparkFrame(data)
    if is_spark_input(data):
        return _open_spark([data])
    if isinstance(data, list | tuple) and any(map(is_spark_input, data)):
        return _open_spark(data)
    if isinstance(data, str | os.PathLike):
        return FileSource(expand([os.fspath(data)]), options)
    if isinstance(data, list | tuple) and data and all(isinstance(d, str | os.PathLike) for d in data):
        return FileSource(expand([os.fspath(d) for d in data]), options)
    if isinstance(data, pa.RecordBatchReader):
        return SpooledSource(data)
    if isinstance(data, Source):
        return data
    return FrameSource(to_arrow(data))


def _open_spark(inputs: Sequence[str]) -> Source:
    """What ``spark:…`` names: files that every machine sees are read by the tasks, all else by Spark."""
    if len(inputs) > 1:
        raise InputError(f"{inputs[0]} and {inputs[1]}: what Spark reads is one table or one path, by itself")
    session = open_session()
    named = inputs[0].removeprefix(SPARK_INPUT)
    path = shared_path(session, named)
    if path is None:
        return SparkFrame(open_input(session, named))
    return SparkFiles(session, FileSource(expand([path]), ReadOptions()))


def _scan(frame: Any) -> SparkFiles | None:
    """The files of a frame that is nothing but these, if they all have the same columns."""
    paths = scanned_files(frame)
    if paths is None:
        return None
    schemas = [pq.read_schema(path) for path in paths]
    if not all(schema.equals(schemas[0]) for schema in schemas):
        return None  # Spark fills in what is missing in some
    return SparkFiles(frame.sparkSession, FileSource([Path(path) for path in paths], ReadOptions()))


def to_arrow(data: Any) -> Any:
    """An eager frame of any library, a dict of columns or an Arrow table, as an Arrow table."""
    import narwhals as nw

    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if is_record(data):
        data = table_of_records([data])
    elif are_records(data):
        data = table_of_records(data)
    elif isinstance(data, dict):
        data = _table_of_dict(data)
    if not isinstance(data, pa.Table):
        if hasattr(data, "columns"):  # narwhals would refuse it in many lines
            _unique([str(name) for name in data.columns], "the frame")
        try:
            frame = nw.from_native(data, eager_only=True)
        except TypeError:
            raise InputError(
                f"records of type {type(data).__name__} cannot be read: give a path, a pandas, polars "
                "or pyarrow frame, a dict of columns or a record-batch reader"
            ) from None
        _unique([str(name) for name in frame.columns], "the frame")
        data = _arrow_of_frame(frame)
    _unique(data.column_names, "the table")
    return data


def _table_of_dict(data: dict[str, Any]) -> Any:
    try:
        return pa.table(data)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InputError(f"the columns of the dict do not make a table: {one_line(error)}") from None


def _arrow_of_frame(frame: Any) -> Any:
    arrays = {}
    for name in frame.columns:
        try:
            column = frame.get_column(name).to_arrow()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(
                f"column {name!r} mixes types ({one_line(error)}): cast it to one type first"
            ) from None
        arrays[str(name)] = column
    return pa.table(arrays)


def _unique(names: Sequence[str], where: str) -> None:
    twice = [n for i, n in enumerate(names) if n in names[:i]]
    if twice:
        raise InputError(f"{where}: column {twice[0]!r} stands twice; rename one of them")


def one_line(error: BaseException) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split())[:200]


@dataclass(frozen=True)
class FrameSource:
    """Records of an Arrow table in memory."""

    table: Any

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    @property
    def rows(self) -> int | None:
        return int(self.table.num_rows)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        for name in columns:
            check_supported(name, self.table.schema.field(name).type)
        for batch in self.table.select(list(columns)).to_batches(max_chunksize=BATCH_ROWS):
            yield plain_batch(batch)


class SpooledSource:
    """Records of a reader that gives them once only: kept on disk, so that they can be read again."""

    def __init__(self, reader: Any) -> None:
        self._file = tempfile.NamedTemporaryFile(suffix=".arrow")  # noqa: SIM115 - lives as long as the source
        self._rows = 0
        _unique(reader.schema.names, "the reader")
        # Dictionaries may change from batch to batch, which a file cannot hold: spool plain values.
        fields = [
            pa.field(f.name, plain_type(f.type.value_type if pa.types.is_dictionary(f.type) else f.type))
            for f in reader.schema
        ]
        self._schema = pa.schema(fields)
        with pa.ipc.new_file(self._file.name, self._schema) as writer:
            for batch in reader:
                writer.write_batch(_cast(plain_batch(batch), self._schema))
                self._rows += batch.num_rows

    @property
    def columns(self) -> list[str]:
        return list(self._schema.names)

    @property
    def rows(self) -> int | None:
        return self._rows

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        for name in columns:
            check_supported(name, self._schema.field(name).type)
        with pa.ipc.open_file(self._file.name) as reader:
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i).select(list(columns))


def _cast(batch: Any, schema: Any) -> Any:
    return pa.RecordBatch.from_arrays(
        [c.cast(f.type) if c.type != f.type else c for c, f in zip(batch.columns, schema, strict=True)],
        schema=schema,
    )


def expand(patterns: Iterable[str]) -> list[Path]:
    """Files that paths, globs and folders stand for, in a fixed order."""
    files: list[Path] = []
    for pattern in patterns:
        path = Path(pattern)
        if not pattern:
            raise InputError("the path of an input is empty")
        if os.path.isfile(path / "manifest.json"):
            raise InputError(f"{pattern} holds tables or a model of ours: records are needed here")
        if os.path.isdir(path):
            found = sorted(p for p in path.rglob("*") if p.is_file() and _format(p))
            found = [p for p in found if not _hidden(p.relative_to(path)) and not _ours(p, path)]
            if not found:
                raise InputError(f"folder {pattern} holds no CSV, Parquet or Arrow file")
        elif os.path.exists(path):
            found = [path]
        else:
            found = [Path(p) for p in sorted(glob.glob(pattern, recursive=True)) if os.path.isfile(p)]
            if not found:
                raise InputError(f"{pattern} does not exist")
        files += found
    return files


def _ours(path: Path, top: Path) -> bool:
    """Whether a file is part of tables or a model that were written below the folder of records."""
    return any((above / "manifest.json").is_file() for above in path.parents if above.is_relative_to(top))


def _hidden(path: Path) -> bool:
    """Whether a file is some tool's own, such as ``_temporary/0.parquet`` or ``.part.csv``."""
    return any(part[0] in "._" for part in path.parts)


def _format(path: Path) -> str | None:
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return _FORMATS.get(suffixes[-1]) if suffixes else None


@dataclass(frozen=True)
class FileSource:
    """Records of one or more files with the same columns."""

    paths: list[Path]
    options: ReadOptions
    columns: list[str] = field(init=False)
    rows: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        columns: list[str] | None = None
        rows: int | None = 0
        for path in self.paths:
            names, count = _look(path, self.options)
            _unique(names, str(path))
            if columns is not None and set(names) != set(columns):
                odd = sorted(set(names) ^ set(columns))
                raise InputError(
                    f"{path} and {self.paths[0]} have different columns: only one has {some(odd)}"
                )
            columns = columns or names
            rows = None if rows is None or count is None else rows + count
        object.__setattr__(self, "columns", columns or [])
        object.__setattr__(self, "rows", rows)

    def pieces(self) -> list[ParquetPiece]:
        """All records, in pieces that follow one another."""
        found = []
        first = 0
        for path in self.paths:
            if _format(path) != "parquet":
                raise InputError(f"{path} is no Parquet file: text and Arrow files are read on one machine")
            with _explained(path):
                groups = pq.ParquetFile(path).metadata
                begun = 0
                for i in range(groups.num_row_groups):
                    rows = groups.row_group(i).num_rows
                    found.append(ParquetPiece(path, i, first, begun, rows))
                    first, begun = first + rows, begun + rows
        return found

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        for path in self.paths:
            kind = _format(path) or "csv"
            text = (_separator(path, self.options), self.options.encoding) if kind == "csv" else ("", "")
            first = 0
            with _explained(path, *text):
                for batch in _READERS[kind](path, list(columns), self.options):
                    yield marked(batch, str(path), first, *text)
                    first += batch.num_rows


@dataclass(frozen=True)
class ParquetPiece:
    """A row group of a Parquet file.

    Attributes
    ----------
    path, group
        The file, and which row group of it.
    first, begun
        The number of its first record among all records, and among those of the file.
    rows
        How many it has.
    """

    path: Path
    group: int
    first: int
    begun: int
    rows: int

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches with these columns."""
        at = self.begun
        with _explained(self.path):
            for batch in _read_parquet(self.path, list(columns), groups=[self.group]):
                yield marked(batch, str(self.path), at)
                at += batch.num_rows


@contextmanager
def _explained(path: Path, separator: str = "", encoding: str = "") -> Iterator[None]:
    """Turn what a reader raises into a line that names the file."""
    try:
        yield
    except UnicodeError:
        raise _not_utf8(path) from None
    except pa.ArrowException as error:
        text = one_line(error)
        if "UTF8" in text or "codec" in text:
            raise _not_utf8(path) from None
        ragged = ragged_line(str(path), separator, encoding) if separator and "columns" in text else None
        raise InputError(f"{path}: {ragged or text}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or one_line(error)})") from None
    except (LookupError, EOFError, csv.Error) as error:
        raise InputError(f"{path}: {one_line(error)}") from None


def _not_utf8(path: Path) -> InputError:
    such = option("encoding", "latin-1")
    return InputError(f"{path} is not text in the encoding expected: say which, such as {such}")


def _look(path: Path, options: ReadOptions) -> tuple[list[str], int | None]:
    """Column names of a file, and its number of records where that is written down."""
    kind = _format(path)
    try:
        str(path).encode()
    except UnicodeError:  # Arrow opens no such file
        raise InputError(
            f"{path} has a name that is not text in UTF-8, as files of records must have: rename it, or link "
            "to it by another name"
        ) from None
    with _explained(path):
        if kind is None:
            raise InputError(
                f"{path}: its ending does not tell what it is; csv, tsv, parquet and arrow are read "
                "(text also with .gz or .zst)"
            )
        if kind == "parquet":
            metadata = pq.ParquetFile(path)
            return list(metadata.schema_arrow.names), int(metadata.metadata.num_rows)
        if kind == "arrow":
            with _open_arrow(path) as reader:
                return list(reader.schema.names), None
        return _csv_header(path, options), None


def check_encoding(name: str) -> None:
    """Refuse what is no encoding of text, though Python has it by a name as it has those."""
    try:
        text = codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError):
        text = False
    if not text or "\0" in name:
        raise InputError(f"{option('encoding', repr(name))} is no encoding of text: one is latin-1")


def _csv_header(path: Path, options: ReadOptions) -> list[str]:
    head = _head(path, options)
    if not head.strip():
        raise InputError(f"{path} is empty")
    rows = csv.reader(io.StringIO(head, newline=""), delimiter=_separator(path, options))
    return next(row for row in rows if row)  # blank lines may come first


def _head(path: Path, options: ReadOptions) -> str:
    """The beginning of a text file, long enough for its header."""
    with pa.input_stream(path, compression="detect") as stream:
        data: bytes = stream.read(_HEAD)
    check_encoding(options.encoding)
    # A decoder that bears a character cut in two at the end.
    return codecs.getincrementaldecoder(options.encoding)().decode(data).removeprefix("\ufeff")


def _separator(path: Path, options: ReadOptions) -> str:
    """The separator: as told, by the file's ending, or the commonest one in the header."""
    if options.separator:
        separator = "\t" if options.separator in ("\\t", "tab") else options.separator
        if len(separator.encode()) != 1:
            raise InputError(f"{option('separator', repr(separator))} is not a single character")
        return separator
    if ".tsv" in [s.lower() for s in path.suffixes]:
        return "\t"
    header = _head(path, options).lstrip().partition("\n")[0]
    return max(_SEPARATORS, key=lambda mark: (header.count(mark), -_SEPARATORS.index(mark)))


def _read_csv(path: Path, columns: list[str], options: ReadOptions) -> Iterator[Any]:
    read = pacsv.ReadOptions(block_size=_CSV_BLOCK)
    parse = pacsv.ParseOptions(delimiter=_separator(path, options), newlines_in_values=True)
    convert = pacsv.ConvertOptions(
        column_types=dict.fromkeys(columns, pa.string()),
        include_columns=columns,
        null_values=list(options.missing),
        strings_can_be_null=True,
    )
    with _in_utf8(path, options.encoding) as file:
        try:
            reader = pacsv.open_csv(file, read_options=read, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):  # a header and not even the end of its line
                return
            raise
        with reader:
            yield from reader


@contextmanager
def _in_utf8(path: Path, encoding: str) -> Iterator[str]:
    """The file itself, or a copy in UTF-8 of one that is not.

    Arrow could decode as it reads, but it calls Python's decoder from a thread of its own, and a program
    that ends before the file does then hangs or aborts.
    """
    if codecs.lookup(encoding).name == "utf-8":
        yield str(path)
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    with tempfile.NamedTemporaryFile(suffix=".csv") as copy, unfinished(Path(copy.name)):
        with pa.input_stream(path, compression="detect") as stream:
            while block := stream.read(_CSV_BLOCK):
                copy.write(decoder.decode(block).encode())
        copy.write(decoder.decode(b"", final=True).encode())
        copy.flush()
        yield copy.name


def _read_parquet(
    path: Path, columns: list[str], options: ReadOptions | None = None, groups: list[int] | None = None
) -> Iterator[Any]:
    schema = pq.ParquetFile(path).schema_arrow
    for name in columns:
        check_supported(name, schema.field(name).type)
    text = [n for n in columns if pa.types.is_string(schema.field(n).type)]
    # Text stays as the dictionary it is stored with: a lookup per distinct value, not per record.
    file = pq.ParquetFile(path, read_dictionary=text)
    for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=columns):
        yield plain_batch(batch)


def _open_arrow(path: Path) -> Any:
    try:
        return pa.ipc.open_file(path)
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(pa.OSFile(str(path)))


def _read_arrow(path: Path, columns: list[str], options: ReadOptions) -> Iterator[Any]:
    with _open_arrow(path) as reader:
        for name in columns:
            check_supported(name, reader.schema.field(name).type)
        if hasattr(reader, "num_record_batches"):
            whole: Iterable[Any] = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            whole = reader
        for batch in whole:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield plain_batch(batch.slice(start, BATCH_ROWS).select(columns))


_READERS = {"csv": _read_csv, "parquet": _read_parquet, "arrow": _read_arrow}
