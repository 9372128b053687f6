"""How files are written: complete or not at all, by one run at a time, for their owner only.

A file is written as `.NAME.part` in the same folder and renamed when it is complete. The process
that writes it holds a lock on it, which the system releases if the process dies. So a second run is
refused, and files that a killed run has left are removed by the next one. Temporary folders work in
the same way.
"""

import contextlib
import errno
import logging
import os
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tabmt.errors import UserError

log = logging.getLogger(__name__)

OWNER_ONLY = 0o600
OWNER_ONLY_FOLDER = 0o700
PART = ".part"
LOCK = ".lock"
OWNER = ".owner"  # in a temporary folder, locked by the process to which it belongs
WAIT_STEP = 0.2  # seconds between attempts to get a lock
TEMPORARY = "tabmt-"  # how the names of temporary folders begin
README = "README.txt"
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class InUse(Exception):
    """Another process, or another thread, has the file."""


# --- locks ---------------------------------------------------------------------------------


def _open_locked(path: Path, wait: float = 0.0) -> int:
    """A descriptor of a file that only this one has locked; the file is made if it is not there.

    Raises `InUse` if another has it, and has not given it up after `wait` seconds.
    """
    until = time.monotonic() + wait
    while True:
        try:
            return _open_locked_now(path)
        except InUse:
            if time.monotonic() >= until:
                raise
            time.sleep(WAIT_STEP)


def _open_locked_now(path: Path) -> int:
    while True:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(path, flags, OWNER_ONLY)
        try:
            _lock(descriptor)
            # The file may have been renamed or removed between the two calls: then the lock is on
            # something that nobody else will find under this name.
            if _is_same_file(descriptor, path):
                os.fchmod(descriptor, OWNER_ONLY)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        log.warning("This system has no file locks: do not write one output from two processes.")
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InUse from error
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        log.warning("This file system has no locks: do not write one output from two processes.")


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def claimed(path: Path, what: str) -> Iterator[None]:
    """Keep other runs away from an output, a file or a folder, as long as this run needs it.

    `what` begins the sentence that the other run gets.
    """
    lock = path / LOCK if path.is_dir() else path.with_name(f".{path.name}{LOCK}")
    try:
        descriptor = _open_locked(lock)
    except InUse as error:
        raise UserError(
            f"{what} {str(path)!r} is in use by another run; wait until that has ended, or choose "
            "another output."
        ) from error
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.unlink(missing_ok=True)
        os.close(descriptor)


# --- files ---------------------------------------------------------------------------------


def cannot_write(path: Path | str, error: OSError) -> UserError:
    """What to say about no permission, no space, no such path."""
    reason = error.strerror or str(error).partition("\n")[0]
    return UserError(f"{str(path)!r} cannot be written: {reason}.")


@contextlib.contextmanager
def replacing(path: Path, wait: float = 0.0) -> Iterator[Path]:
    """A temporary path to write to, which replaces `path` only if all goes well.

    Of a symbolic link, the file that it points to is replaced. If another process writes it, that
    may take `wait` seconds more.
    """
    target = checked_target(path)
    temporary = target.with_name(f".{target.name}{PART}")
    descriptor = None
    try:
        descriptor = _open_locked(temporary, wait)
        os.ftruncate(descriptor, 0)  # a killed run may have left it
        yield temporary
        os.fsync(descriptor)  # a name is never put on content that may not have reached the disk
        os.replace(temporary, target)
    except InUse as error:
        raise UserError(
            f"{str(path)!r} is being written by another run; wait until that has ended, or choose "
            "another output."
        ) from error
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                if _is_same_file(descriptor, temporary):  # not renamed
                    temporary.unlink()
            os.close(descriptor)


def checked_target(path: Path) -> Path:
    """The file that would be written under a name; it need not be there, but its folder must."""
    try:
        target = path.resolve()
        mode = target.stat().st_mode if target.exists() else stat.S_IFREG
        has_folder = target.parent.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # too long, a loop of links, a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{str(path)!r} cannot be written: {reason}.") from error
    if not has_folder:
        raise UserError(f"There is no folder {str(path.parent)!r} to write {path.name!r} into.")
    if stat.S_ISDIR(mode):
        raise UserError(f"{str(path)!r} is a folder; give the name of a file to write.")
    if not stat.S_ISREG(mode):
        raise UserError(f"{str(path)!r} is a device or a pipe; give the name of a file to write.")
    return target


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, if they are not there."""
    try:
        folder.mkdir(mode=OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The folder {str(folder)!r} cannot be created: {error.strerror}."
        ) from error


def remove_abandoned(folder: Path) -> None:
    """Remove the unfinished files of killed runs in a folder."""
    for path in folder.glob(f".*{PART}"):
        with contextlib.suppress(OSError, InUse):
            descriptor = _open_locked(path)
            path.unlink()
            os.close(descriptor)


# --- temporary folders ---------------------------------------------------------------------


class TemporaryFolder:
    """A temporary folder that is removed together with the last object that refers to it.

    `holds` says what is in it, for people who find it. If the process is killed, the next run
    removes the folder.
    """

    def __init__(self, holds: str) -> None:
        remove_abandoned_folders()
        try:
            self.path = Path(tempfile.mkdtemp(prefix=TEMPORARY))
            (self.path / README).write_text(
                f"This folder contains {holds}.\nIt belongs to a running `tabmt` (process "
                f"{os.getpid()}), which removes it when it ends. If the process was killed, the "
                "next run removes it; you can delete it as well.\n",
                encoding="utf-8",
            )
            descriptor = _open_locked(self.path / OWNER)
        except OSError as error:
            raise UserError(
                f"No temporary folder can be made in {tempfile.gettempdir()!r}: {error.strerror}. "
                "Set TMPDIR to another folder."
            ) from error
        weakref.finalize(self, _remove_folder, self.path, descriptor, os.getpid())


def _remove_folder(path: Path, descriptor: int, owner: int) -> None:
    if os.getpid() != owner:  # a child process has inherited the object, not the folder
        return
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.close(descriptor)


def remove_abandoned_folders() -> None:
    """Remove the temporary folders of this user's killed runs."""
    with contextlib.suppress(OSError):
        for folder in _temporary_folders():
            with contextlib.suppress(OSError, InUse):
                descriptor = _open_locked(folder / OWNER)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(descriptor)


def _temporary_folders() -> Iterator[Path]:
    """Those of ours that have a lock file: one without it is just being made."""
    with os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if not entry.name.startswith(TEMPORARY) or not entry.is_dir(follow_symlinks=False):
                continue
            about: Any = entry.stat(follow_symlinks=False)
            is_own = not hasattr(os, "getuid") or about.st_uid == os.getuid()
            if is_own and (Path(entry.path) / OWNER).is_file():
                yield Path(entry.path)
