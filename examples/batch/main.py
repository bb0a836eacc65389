"""Label the rows of a CSV file, several at once: python main.py [ROWS.csv]."""

import csv
import os
import sys
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

import prompty


class Label(BaseModel):
    """What the model says about a review."""

    sentiment: Literal["positive", "neutral", "negative"]
    reason: str


def main(path: Path) -> int:
    """Write the rows with their labels to standard output. Return 1 if a row failed."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    inputs = [{"review": row["review"]} for row in rows]
    results = prompty.batch("label.prompty", inputs, output_type=Label, model=os.environ.get("MODEL"))
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["id", "sentiment", "reason"])
    for row, result in zip(rows, results, strict=True):
        if result.error is None:
            table.writerow([row["id"], result.value.sentiment, result.value.reason])
        else:
            print(f"row {row['id']}: {result.error}", file=sys.stderr)
    return int(any(result.error for result in results))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "reviews.csv")))
