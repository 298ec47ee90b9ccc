"""Reading a text file of limited size, writing one whole or not at all, and the folders of files that we write."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from bottleneck.errors import ResultFileError, UsageError

MAX_RESULT_BYTES = 64 * 1024 * 1024
GIVE_A_RESULT = "Give the file that `bottleneck diagnose TARGET --json FILE` wrote."


def cache_folder() -> Path:
    """Return the folder for files that can be recreated: `$XDG_CACHE_HOME` or `~/.cache`, with our name."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # According to the XDG base directory specification a relative path is invalid and ignored.
    base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    return base / "torch-bottleneck"


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 file of at most `MAX_RESULT_BYTES`.

    Raises:
        ResultFileError: The file does not exist, cannot be read, is too large or is not UTF-8.
    """
    source = os.fspath(path)
    if not source:
        raise ResultFileError("The name of a result is empty.", "Give the path of a saved result.")
    try:
        with open(path, "rb") as stream:
            return read_stream(stream, source)
    except FileNotFoundError:
        raise ResultFileError(
            f"There is no file {source}.", "Write one with `bottleneck diagnose TARGET --json FILE`."
        ) from None
    except (OSError, ValueError) as error:
        raise ResultFileError(f"Cannot read {source}: {reason(error)}.", "Give the path of a saved result.") from None


def read_stream(stream: IO[bytes], source: str) -> str:
    """Read UTF-8 text of at most `MAX_RESULT_BYTES` from a stream of bytes, because a pipe has no known size.

    Args:
        stream: The stream, which stays open.
        source: Name for messages.

    Raises:
        ResultFileError: The text is too large or not UTF-8.
        OSError: The stream cannot be read.
    """
    content = stream.read(MAX_RESULT_BYTES + 1)
    check_size(len(content), source)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ResultFileError(f"{source} is not a result: it is not UTF-8 text.", GIVE_A_RESULT) from None


def read_source(path: str) -> str:
    """Return the text of a source file with its line ends; raise OSError or ValueError if it is not UTF-8."""
    return Path(path).read_bytes().decode()


def check_size(size_bytes: int, source: str) -> None:
    """Refuse a document that is too large to be a result.

    Raises:
        ResultFileError: It has more than `MAX_RESULT_BYTES`.
    """
    if size_bytes > MAX_RESULT_BYTES:
        limit = f"{MAX_RESULT_BYTES / 2**20:,.0f} MiB"
        raise ResultFileError(f"{source} is larger than {limit}, more than any result needs.", GIVE_A_RESULT)


def write_file(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a file, text as UTF-8, so that a reader finds either the old content or the new, never a part.

    Links are followed. A target that is not a regular file (a pipe, /dev/null) is written to, never replaced.

    Raises:
        UsageError: The folder does not exist, or the path cannot be written.
    """
    try:
        content = content.encode("utf-8") if isinstance(content, str) else content
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            with open(target, "wb") as stream:
                stream.write(content)
        else:
            _replace(target, content)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"Cannot write {os.fspath(path)}: {reason(error)}.",
            "Choose a file in an existing folder that you may write to.",
        ) from None


def _replace(target: Path, content: bytes) -> None:
    # In the same folder, because a rename is atomic only within one file system.
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
        # Not tempfile, whose files only their owner can read, regardless of the umask.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            os.chmod(temporary, target.stat().st_mode & 0o7777)
        os.replace(temporary, target)
    except BaseException:  # also Ctrl-C: leave no temporary file behind
        with suppress(OSError):
            temporary.unlink()
        raise


def reason(error: Exception) -> str:
    """Return the cause of an error with a file, as the middle of a sentence."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]


def append_text(path: str | os.PathLike[str], text: str) -> None:
    """Append to a file that other programs append to as well.

    Raises:
        UsageError: The path cannot be written.
    """
    try:
        with open(path, "a", encoding="utf-8", newline="") as stream:
            stream.write(text)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"Cannot write {os.fspath(path)}: {reason(error)}.", "Choose a file that you may write to."
        ) from error


# --- profiles and traces ----------------------------------------------------------------------------------


def make_folder(folder: str | os.PathLike[str], contents: str = "flamegraphs") -> Path:
    """Make a folder for later files, so that a bad one is refused before anything is measured.

    Raises:
        UsageError: It is a file, its name is invalid, or there is no permission.
    """
    place = Path(folder)
    why = "" if os.fspath(folder).strip() else "the name is empty"
    try:
        place.mkdir(parents=True, exist_ok=True)
        # Permissions are not enough: a file system may be read-only.
        with tempfile.TemporaryFile(dir=place):
            pass
    except (OSError, ValueError) as error:
        why = "it is a file" if isinstance(error, FileExistsError) else reason(error)
    if why:
        raise UsageError(
            f"Cannot write the {contents} to {os.fspath(folder)!r}: {why}.",
            "Choose a folder that you may write to; it is created if it does not exist.",
        )
    return place


def write_files(
    files: Mapping[str, str | bytes], folder: str | os.PathLike[str], contents: str = "flamegraphs"
) -> tuple[Path, ...]:
    """Write files by their names into a folder, which is created if necessary; return their paths.

    Raises:
        UsageError: One of them cannot be written.
    """
    place = make_folder(folder, contents)
    for name, content in files.items():
        write_file(place / name, content)
    return tuple(place / name for name in files)
