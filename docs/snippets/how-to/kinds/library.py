import sqlite3
from contextlib import closing

import prompty
from prompty.tools import Function, KindTool, register_tool_kind

SCHEMA = {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]}


class Sqlite:
    async def describe(self, tool, agent):
        async def query(arguments, context):
            with closing(sqlite3.connect(f"file:{tool.options['path']}?mode=ro", uri=True)) as database:
                database.set_progress_handler(lambda: context.cancel.cancelled, 10_000)
                return database.execute(arguments["sql"]).fetchmany(100)

        description = f"Query the database {tool.name} with a SELECT statement of SQLite."
        function = Function(name=f"query_{tool.name}", description=description, parameters=SCHEMA)
        return [KindTool(function=function, call=query)]


register_tool_kind("sqlite", Sqlite())

with closing(sqlite3.connect("books.db")) as database, database:
    database.execute("CREATE TABLE books AS SELECT 'Middlemarch' AS title")
print(prompty.turn("library.prompty"))
