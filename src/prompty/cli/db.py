"""`prompty db`: the tables of durable runs."""

from typing import Annotated

from typer import Option, Typer

from prompty.cli.console import out
from prompty.cli.durable import DatabaseUrl, get_database_url
from prompty.durable.dbos_engine import DbosEngine
from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible

db: Typer = Typer(name="db", help="Create and update the tables of durable runs.", no_args_is_help=True)


@db.callback()
def describe_db() -> None:
    """Create and update the tables of durable runs."""


@db.command("migrate")
def migrate_tables(
    database: DatabaseUrl = None,
    role: Annotated[str | None, Option(metavar="ROLE", help="Grant this PostgreSQL role access to the tables.")] = None,
) -> None:
    """Create or update the tables. Workers do this themselves if their role has the permission."""
    url = get_database_url(database)
    engine = DbosEngine(url)
    try:
        engine.migrate(role)
    finally:
        engine.close()
    out.print(visible(f"the tables of {mask_secrets(url)} are up to date"))
