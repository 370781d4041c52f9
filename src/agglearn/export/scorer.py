"""Score records with a model that agglearn wrote as JSON. The standard library is all this file needs.

    scorer = Scorer(json.load(open("clicks.json")))
    scorer.probability({"colour": "red", "age": 41, "city": None})

A record is a mapping from the name of a feature to its raw value. A value is text, a number, True or False, a
date or time, or None where it is missing. On the command line,

    python scorer.py clicks.json < records.csv > scores.csv

adds a column with the probability; there "", NA, NaN, nan, null and NULL are missing.
"""

from __future__ import annotations

import bisect
import csv
import datetime
import decimal
import json
import math
import re
import sys
from typing import Any, TextIO

FORMAT, VERSION = "agglearn.scorer", 2  # the first version lists no cells
MISSING = ("", "NA", "NaN", "nan", "null", "NULL")
NUMBER = re.compile(
    r"(?P<whole>-?(?:0|[1-9][0-9]{0,400}|(?=\.[0-9])))(?:\.(?P<part>[0-9]{0,400}))?(?P<power>[eE][+-][0-9]{1,3})?"
)


class Scorer:
    """A model that was exported as JSON."""

    def __init__(self, document: dict[str, Any]) -> None:
        if document.get("format") != FORMAT or document.get("version") not in (1, VERSION):
            raise ValueError(f"this is not a document of format {FORMAT}, version 1 or {VERSION}")
        self.document = document
        self.features, self.tables = document["features"], document["tables"]
        self.intercept, self.label = document["intercept"], document["label"]

    def codes(self, record: dict[str, Any]) -> list[int]:
        """The code of each feature; a code that is no modality's is unknown."""
        return [code_of(feature["rule"], record[feature["name"]]) for feature in self.features]

    def log_odds(self, record: dict[str, Any]) -> float:
        """The log-odds of the positive label: the weights of the record's cells, one in each table."""
        codes, total = self.codes(record), float(self.intercept)
        for table in self.tables:
            cell = cell_of(table, [codes[f] for f in table["features"]], self.features)
            if cell is not None:
                total += table["weights"][cell]
        return total

    def probability(self, record: dict[str, Any]) -> float:
        """The probability of the positive label."""
        log_odds = self.log_odds(record)
        if log_odds >= 0:
            return 1 / (1 + math.exp(-log_odds))
        return math.exp(log_odds) / (1 + math.exp(log_odds))


def code_of(rule: dict[str, Any], value: Any) -> int:
    """What a raw value becomes: by cuts if it is a number, by its text otherwise."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return int(rule["missing"])
    if rule["kind"] == "cuts":
        number = number_of(value)
        if number is None:
            return int(rule["unknown"])
        if math.isnan(number):
            return int(rule["missing"])
        return sum(number > cut or (number == cut and not after) for cut, after in rule["cuts"])
    if rule["value_type"] == "boolean" and isinstance(value, str):
        value = value.lower()
    text = text_of(value)
    if text not in rule["codes"]:
        if "keys" not in rule:
            rule["keys"] = keys_of(rule["codes"])
        return int(rule["keys"].get(key_of(text), rule["default"]))
    return int(rule["codes"][text])


def key_of(text: str) -> str | None:
    """The one form of a number or an answer, however it is written; None for any other text."""
    text = text.strip()
    if text.lower() in ("true", "false"):
        return "1" if text.lower() == "true" else "0"
    found = NUMBER.fullmatch(text)
    if found is None:
        return None
    if found["power"] is None and not (found["part"] or "").strip("0"):
        return "0" if found["whole"] in ("", "-", "-0") else found["whole"]
    return None if math.isinf(float(text)) else float_text(float(text))


def keys_of(codes: dict[str, int]) -> dict[str | None, int]:
    """Codes by the keys of their texts; where texts share a key, nothing but the text tells."""
    found: dict[str | None, int] = {}
    shared: set[str | None] = {None}
    for text, code in codes.items():
        key = key_of(text)
        if key in found:
            shared.add(key)
        found[key] = code
    return {key: code for key, code in found.items() if key not in shared}


def number_of(value: Any) -> float | None:
    """A raw value as a number, or None where it is none."""
    if isinstance(value, (datetime.date, datetime.time)):
        return None
    if isinstance(value, datetime.timedelta):
        return float(value // datetime.timedelta(microseconds=1))
    if isinstance(value, str) and "_" in value:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def text_of(value: Any) -> str:
    """The one text of a value, whatever type carries it: 5 and 5.0 are 5, True is true."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, decimal.Decimal):
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, datetime.timedelta):
        return str(value // datetime.timedelta(microseconds=1))
    if isinstance(value, (datetime.datetime, datetime.time)):
        zone = "" if value.tzinfo is None else "Z"
        if zone and isinstance(value, datetime.datetime):
            value = value.astimezone(datetime.UTC)
        text = str(value.replace(tzinfo=None))
        return (text.rstrip("0").rstrip(".") if "." in text else text) + zone
    return str(value)


def float_text(value: float) -> str:
    """The shortest digits that give the number again; a fraction has an exponent below 1e-6 and from 1e10."""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == math.floor(value) and abs(value) < 1e22:
        return str(int(value))
    exact = decimal.Decimal(repr(value))
    if 1e-6 <= abs(value) < 1e10:
        return format(exact, "f")
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{'-' if value < 0 else ''}{mantissa}e{exact.adjusted():+d}"


def cell_of(table: dict[str, Any], codes: list[int], features: list[dict[str, Any]]) -> int | None:
    """The cell that counts a combination of codes, or None where one of them is unknown."""
    cards = [len(features[f]["modalities"]) for f in table["features"]]
    if any(code >= card for code, card in zip(codes, cards, strict=True)):
        return None
    cell = 0
    for code, card in zip(codes, cards, strict=True):
        if table["buckets"]:  # 64-bit arithmetic that wraps around
            cell = ((cell ^ (code + 1)) * 0x9E3779B97F4A7C15) % 2**64
            cell ^= cell >> 29
        else:
            cell = cell * card + code
    if "listed" in table:  # increasing; the last weight is that of every combination which is not listed
        rank, listed = cell, table["listed"]
        cell = bisect.bisect_left(listed, rank)
        return cell if cell < len(listed) and listed[cell] == rank else len(listed)
    return cell % table["buckets"] if table["buckets"] else cell


def main(document: dict[str, Any], source: TextIO, target: TextIO) -> None:
    """Copy records in CSV, with a column for the probability."""
    scorer = Scorer(document)
    reader = csv.DictReader(source)
    names = [feature["name"] for feature in scorer.features]
    absent = [name for name in names if name not in (reader.fieldnames or [])]
    if absent:
        sys.exit(f"column {absent[0]!r} is not in the records")
    writer = csv.DictWriter(target, [*(reader.fieldnames or []), "probability"])
    writer.writeheader()
    for record in reader:
        known = {name: None if record[name] in MISSING else record[name] for name in names}
        writer.writerow({**record, "probability": scorer.probability(known)})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scorer.py MODEL.json < records.csv > scores.csv")
    with open(sys.argv[1], encoding="utf-8") as file:
        main(json.load(file), sys.stdin, sys.stdout)
