"""The identity of a store: reading or creating `kmq.json`."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.errors import (
    CorruptionError,
    InvalidRequestError,
    KmqError,
    NotFoundError,
    UnavailableError,
)
from kmq_storage.format.identity import Identity, decode_identity, encode_identity
from kmq_storage.log.disk_errors import unavailable
from kmq_storage.objects.files import Files, FoundFile

#: In a bucket without conditional uploads, two processes that create a store at once agree on one
#: identity after this long (seconds).
_SETTLE = 1.0


def open_identity(
    files: Files,
    environment: Environment,
    *,
    create: bool,
    log_file_bytes: int = limits.LOG_FILE_BYTES,
) -> Identity:
    """The identity of the store in this place; if there is none and `create` is set, a new one.

    NotFoundError when there is no store, InvalidRequestError when a file is in the way or the
    folder has another use, FormatVersionError when a newer kmq wrote the store.
    """
    try:
        if is_missing(files):
            if not create or files.read_only:
                raise NotFoundError(f"Store[{files.url}] doesn't exist.", url=files.url)
            check_no_other_use(files)
            facts = files.bucket_facts()
            identity = Identity(environment.new_uuid(), log_file_bytes, facts)
            if files.publish(paths.STORE_FILE, [encode_identity(identity)], sync=True):
                _check_no_clone_began(files)
            if facts is not None and not facts.conditional:
                environment.sleep(_SETTLE)
        return decode_identity(files.read(paths.STORE_FILE), files.url)
    except (NotADirectoryError, FileExistsError) as error:
        raise no_folder(files) from error
    except PermissionError as error:
        way_out = (
            "its owner can allow others to read it"
            if files.read_only
            else "to only read, open it with read_only=True"
        )
        raise UnavailableError(
            f"store {files.url} can't be opened: no permission for {error.filename} "
            f"({error.strerror}); {way_out}",
            url=files.url,
        ) from error
    except OSError as error:
        check_possible(files, error)
        raise unavailable(error, files.url) from error


def is_missing(files: Files) -> bool:
    """Whether there is no store; an error when there is one without kmq.json: `_check_no_store`."""
    if files.exists(paths.STORE_FILE):
        return False
    try:
        _check_no_store(files)
    except KmqError:
        if not files.exists(paths.STORE_FILE):
            raise
        return False  # another process has made it just now
    return True


def no_folder(files: Files) -> InvalidRequestError:
    """The error for a store whose path is a file."""
    return InvalidRequestError(
        f"store {files.url} is a file, not a folder, or a link that leads nowhere", url=files.url
    )


def check_possible(files: Files, error: OSError) -> None:
    """InvalidRequestError for an error that comes again whenever this path is used."""
    if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
        raise InvalidRequestError(
            f"no store can be at {files.url}: {error.strerror}; name another folder", url=files.url
        ) from error


def check_no_other_use(files: Files, folders: Iterable[str] = ()) -> None:
    """InvalidRequestError when other files are where a new store would be created.

    A mistyped path should not put a log among a user's files. For a caller that will empty
    `folders` of the store, these must have no files either.
    """
    foreign = files.foreign_file()
    if foreign is None:
        found = (file.path for folder in folders for file in files.walk(folder))
        foreign = next(found, None)
    if foreign is not None:
        raise InvalidRequestError(
            f"there is no store in {files.url}, but other files are ({foreign}); name a folder of "
            f"its own for a new store, as {files.url}/store",
            url=files.url,
            file=foreign,
        )


def _check_no_clone_began(files: Files) -> None:
    """UnavailableError when a clone is being made at the same place; the new store gives way.

    A clone publishes its mark before it looks for a store the last time, so one of both notices.
    """
    if files.exists(paths.CLONING_FILE):
        files.remove(paths.STORE_FILE)
        raise UnavailableError(
            f"a clone is being made at {files.url}; open it when it is done", url=files.url
        )


def _check_no_store(files: Files) -> None:
    """Raise an error when there is a store without kmq.json, or an unfinished clone.

    Neither must be overwritten by a new store.
    """
    if files.exists(paths.CLONING_FILE):
        raise NotFoundError(
            f"Store[{files.url}] doesn't exist: a clone there was never finished; clone once more, "
            "or delete what is there.",
            url=files.url,
        )
    found = next((file.path for file in files.walk(paths.LOG_FOLDER) if _is_log(file)), None)
    if found is None and files.exists(paths.BEGUN):
        found = paths.BEGUN
    if found is not None:
        raise CorruptionError(
            f"kmq.json of store {files.url} is missing, but there was a log ({found}); put "
            "it back from a copy of the store",
            file=paths.STORE_FILE,
        )


def _is_log(file: FoundFile) -> bool:
    bare = file.path.rpartition("/")[2]
    return bool(paths.try_first_lsn(bare) or paths.try_commit_lsn(file.path))
