"""The functions that the model can call."""

from pathlib import Path


def get_balance() -> int:
    """Return the balance of the account in euros."""
    return 1200


def pay(to: str, amount: int) -> str:
    """Pay an amount of euros."""
    with Path("payments.txt").open("a", encoding="utf-8") as book:
        book.write(f"{amount} to {to}\n")
    return f"paid {amount} to {to}"
