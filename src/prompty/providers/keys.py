"""Keys that `prompty keys` stores: in the keyring of the system, or in a file that only its user can read.

A call looks here last, when neither the file nor the environment has the key that it needs, and imports this module
only then. Where a stored key may go is decided like for any other credential.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from json import dumps
from pathlib import Path
from typing import Any, NamedTuple

from prompty.clients import Clients
from prompty.concurrency import FileLock
from prompty.errors import RequestError
from prompty.providers.profiles import PROFILES
from prompty.safety.json import read_json
from prompty.safety.write_files import create_folder, replace_file

SERVICE = "prompty"  # in the keyring
_MAX_BYTES = 1_000_000
_MISS_SECONDS = 1.0  # for which a key that is not there is not looked for again
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def get_key_names() -> dict[str, str]:
    """Return the names under which keys are stored, with their variables: of providers and of endpoint profiles.

    Two names of one variable share a key.
    """
    names = {profile.name: profile.key for profile in PROFILES if profile.key}
    return {**names, "foundry": names["azure"]}


def get_stored_name(variable: str) -> str:
    """Return the name under which the key of a variable is stored."""
    return next((name for name, known in get_key_names().items() if known == variable), "")


class KeyFile(NamedTuple):
    """Keys in a JSON file of mode 600, in a folder of mode 700."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def read(self, name: str) -> str | None:
        return self.read_all().get(name)

    def write(self, name: str, key: str) -> None:
        with self._changing() as keys:
            keys[name] = key

    def remove(self, name: str) -> bool:
        if name not in self.read_all():
            return False
        with self._changing() as keys:
            keys.pop(name, None)
        return True

    def read_all(self) -> dict[str, str]:
        """Return all keys. Raise RequestError for a file that others can read."""
        try:
            file = os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise RequestError(f"{self.path} cannot be read: {error.strerror}", f"Make it yours: {self.fix}") from None
        try:
            if problem := find_exposure(os.fstat(file)):
                raise RequestError(f"{self.path} is not read, because {problem}", f"Run: {self.fix}")
            content = os.read(file, _MAX_BYTES + 1)
        finally:
            os.close(file)
        try:
            keys = read_json(content.decode()) if len(content) <= _MAX_BYTES else None
        except ValueError:  # its message would quote the file
            keys = None
        if not isinstance(keys, dict) or not all(isinstance(key, str) for key in keys.values()):
            fix = "Delete it, and store the keys again with `prompty keys set`."
            raise RequestError(f"{self.path} is not a file of keys", fix)
        return keys

    @property
    def fix(self) -> str:
        """The command that makes the file private."""
        return f"chmod 700 '{self.path.parent}' && chmod 600 '{self.path}'"

    @contextmanager
    def _changing(self) -> Iterator[dict[str, str]]:
        """Yield the keys, and write them back in one step."""
        folder = self.path.parent
        try:
            create_folder(folder, mode=0o700)
            folder.chmod(0o700)
            lock = FileLock(folder / "keys.lock", remove=True)
        except BlockingIOError:
            raise RequestError("another process is changing the keys", "Run the command again.") from None
        except OSError as error:
            raise RequestError(f"{self.path} cannot be written: {error.strerror}", "Set XDG_CONFIG_HOME.") from None
        try:
            keys = self.read_all()
            yield keys
            replace_file(self.path, f"{dumps(keys, indent=2)}\n".encode(), mode=0o600)
        except OSError as error:
            raise RequestError(f"{self.path} cannot be written: {error.strerror}", "Set XDG_CONFIG_HOME.") from None
        finally:
            lock.release()


def find_exposure(status: os.stat_result) -> str:
    """Return why the keys in a file are not private, or an empty text. Modes mean nothing on Windows."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if os.name != "posix":
        return ""
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    return "other users can read it" if status.st_mode & _OTHERS else ""


class Keyring(NamedTuple):
    """The keyring of the system, through the package `keyring`."""

    module: Any
    backend: str

    def __str__(self) -> str:
        return f"the keyring ({self.backend})"

    def read(self, name: str) -> str | None:
        with self._using():
            return self.module.get_password(SERVICE, name) or None

    def write(self, name: str, key: str) -> None:
        with self._using():
            self.module.set_password(SERVICE, name, key)

    def remove(self, name: str) -> bool:
        if self.read(name) is None:
            return False
        with self._using():
            self.module.delete_password(SERVICE, name)
        return True

    @contextmanager
    def _using(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # backends raise errors of their own libraries; their text may quote a value
            raise RequestError(
                f"the keyring cannot be used: {type(error).__name__}",
                "Unlock it, or set PYTHON_KEYRING_BACKEND=keyring.backends.null.Keyring to keep keys in "
                f"{find_key_file()}.",
            ) from None


def find_keyring() -> Keyring | None:
    """Return the keyring, or None without the package or a usable backend."""
    try:
        module = import_module("keyring")
        backend = module.get_keyring()
        usable = backend.priority > 0  # not so for the backends that fail or forget
    except Exception:  # not installed, or its configuration names a backend that cannot be loaded
        return None
    return Keyring(module, f"{type(backend).__module__}.{type(backend).__qualname__}") if usable else None


def find_key_file() -> KeyFile:
    """Return the file of keys, which need not exist."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or "")
    return KeyFile((base if base.is_absolute() else Path.home() / ".config").resolve() / "prompty" / "keys")


def find_stores() -> list[Keyring | KeyFile]:
    """Return the places of keys, in the order in which calls look there."""
    keyring = find_keyring()
    return [*([keyring] if keyring else []), find_key_file()]


def find_stored_key(variable: str, clients: Clients) -> str | None:
    """Return the key stored for a variable, or None. `clients` keep it for as long as calls ask for it.

    Raise RequestError if no place has it and one of them cannot be read.
    """
    name = get_stored_name(variable)
    return clients.get((StoredKey, name, str(find_key_file())), lambda _: StoredKey()).find(name) if name else None


class StoredKey:
    """One stored key, which is read when a call needs it, and not for each call."""

    is_busy = False

    def __init__(self) -> None:
        self._key: str | None = None
        self._missed = -_MISS_SECONDS

    def find(self, name: str) -> str | None:
        if self._key or time.monotonic() - self._missed < _MISS_SECONDS:
            return self._key
        problem: RequestError | None = None
        for store in find_stores():
            try:
                self._key = store.read(name)
            except RequestError as error:
                problem = problem or error
            if self._key:
                return self._key
        if problem:
            raise problem
        self._missed = time.monotonic()
        return None

    def close(self) -> None:
        self._key = None
