"""Read the invoices of a folder, and print them as CSV: python main.py [FOLDER]."""

import csv
import os
import sys
from datetime import date
from pathlib import Path

from pydantic import BaseModel

from prompty import invoke
from prompty.errors import ResultError


class Invoice(BaseModel):
    """What the model has to find. Its JSON Schema is sent with the request."""

    sender: str
    number: str | None
    total: float
    currency: str
    due: date | None


def main(folder: Path) -> int:
    """Print one line for each letter. Return 1 if the model could not read one of them."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["file", *Invoice.model_fields])
    failed = 0
    for path in sorted(folder.glob("*.txt")):
        letter = path.read_text(encoding="utf-8")
        try:
            invoice = invoke("invoice.prompty", {"letter": letter}, output_type=Invoice, model=os.environ.get("MODEL"))
        except ResultError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            failed = 1
        else:
            table.writerow([path.name, *invoice.model_dump().values()])
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "letters")))
