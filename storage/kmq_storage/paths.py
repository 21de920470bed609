"""All file names in a store, built and parsed in one place.

kmq.json                    the identity of the store: its id and format version
begun                       exists once the first log file was created
log/<first LSN>.log         frames of the commit log, 20 digits
log/hint                    the hint page: a mapped page that speeds up and is never trusted
staged/<32 hex>.ipc         record batches that are too large for the log, as Arrow IPC files
segments/<topic id>/<partition>/<base offset>-<32 hex>.arrow   sealed records of a partition
checkpoints/<LSN>-<32 hex>.arrow   the state of the store at an LSN, with the manifest's root;
                            the hex digits are the digest of the bytes
pages/<32 hex>.arrow        leaf pages of the manifest
pins/<32 hex>.json          an LSN whose files a reader keeps for a while
slips/<32 hex>              notes of a queue's receiver on finished records, before they commit
clones/<store id>-<32 hex>.arrow   files that a clone in the same bucket needs; the hex digits are
                            the digest of the bytes
cloning.json                the source's kmq.json, while a clone is being made here
locks/append.lock           held while a frame is written
locks/sync.lock             held while files are synced
locks/maintain.lock         held by the process that maintains in the background
locks/collect.lock          held by the process that collects
locks/clone.lock            held by the process that makes a clone
locks/<32 hex>.member       held by a member of a consumer group, either an exclusive member or
                            one that shares the group

In a bucket, a commit is an object, and a lock is a folder with an object for each epoch:

log/<LSN // 4096>/<LSN>.kmq     one frame, 16 and 20 digits
collected/<LSN>                 marks commits up to this one as collected
locks/writer.lock               held by the only writer, in a bucket without atomic creation
clock/, probe/                  written and deleted, to learn the store's time and what it supports
"""

from __future__ import annotations

import re

STORE_FILE = "kmq.json"
BEGUN = "begun"
CLONING_FILE = "cloning.json"
LOG_FOLDER = "log"
STAGED_FOLDER = "staged"
SEGMENT_FOLDER = "segments"
CHECKPOINT_FOLDER = "checkpoints"
PAGE_FOLDER = "pages"
PIN_FOLDER = "pins"
CLONE_FOLDER = "clones"
SLIP_FOLDER = "slips"
COLLECTED_FOLDER = "collected"
CLOCK_FOLDER = "clock"
PROBE_FOLDER = "probe"
LOCK_FOLDER = "locks"
#: Folders of files with an own id in their name, by which other files refer to them: files with
#: records first, then files that refer to these. They are collected in this order.
ID_FOLDERS = (STAGED_FOLDER, SEGMENT_FOLDER, PAGE_FOLDER)
ID_PREFIXES = tuple(f"{folder}/" for folder in ID_FOLDERS)
#: All folders of a store on a disk; others there are not its own.
FOLDERS = frozenset(
    (*ID_FOLDERS, LOG_FOLDER, CHECKPOINT_FOLDER, PIN_FOLDER, CLONE_FOLDER, SLIP_FOLDER, LOCK_FOLDER)
)
HINT = "log/hint"
APPEND_LOCK = "locks/append.lock"
SYNC_LOCK = "locks/sync.lock"
MAINTAIN_LOCK = "locks/maintain.lock"
COLLECT_LOCK = "locks/collect.lock"
WRITER_LOCK = "locks/writer.lock"
CLONE_LOCK = "locks/clone.lock"

_COMMITS_PER_FOLDER = 4096
_COMMIT_OBJECT = re.compile(r"log/\d{16}/(\d{20})\.kmq\Z")
_COLLECTED = re.compile(r"collected/(\d{20})\Z")
_LOG_FILE = re.compile(r"(\d{20})\.log\Z")
#: A file whose name has an id; the whole path counts, as another store may be in a folder of this.
_FILE_ID = re.compile(
    r"(?:staged/([0-9a-f]{32})\.ipc|pages/([0-9a-f]{32})\.arrow"
    r"|segments/[0-9a-f]{32}/[0-9]+/[0-9]{20}-([0-9a-f]{32})\.arrow)\Z"
)
_LEFTOVER = re.compile(
    r"(?:log|staged|pages|checkpoints|pins|segments/[0-9a-f]{32}/[0-9]+)/[^/]+\.tmp\Z"
)
_CHECKPOINT = re.compile(r"(\d{20})-([0-9a-f]{32})\.arrow\Z")
_CLONE = re.compile(r"clones/([0-9a-f]{32})-([0-9a-f]{32})\.arrow\Z")
_PIN = re.compile(r"pins/[0-9a-f]{32}\.json\Z")
_SLIP = re.compile(r"slips/[0-9a-f]{32}\Z")
_LEASE = re.compile(r"/([0-9]{20})\.json\Z")
#: Temporary files beside kmq.json. The pattern is exact, as a user's file may end in `.tmp`, too.
_UNFINISHED = re.compile(r"(?:kmq\.json|tmp[a-z0-9_]{8})\.tmp\Z")
_NAMES = re.compile(
    r"(?:kmq\.json|begun|cloning\.json|log/(?:hint|\d{20}\.log|\d{16}/\d{20}\.kmq)"
    r"|checkpoints/\d{20}-[0-9a-f]{32}\.arrow|pins/[0-9a-f]{32}\.json|slips/[0-9a-f]{32}"
    r"|clones/[0-9a-f]{32}-[0-9a-f]{32}\.arrow|collected/\d{20}|(?:clock|probe|locks)/.+)\Z"
)


def is_named(file: str) -> bool:
    """Whether this is a valid name of a store's file, other than those in `ID_FOLDERS`."""
    return _NAMES.match(file) is not None


def is_unfinished(file: str) -> bool:
    """Whether this is a temporary file beside `kmq.json`, left by a process that died."""
    return _UNFINISHED.match(file) is not None


def log_file(first_lsn: int) -> str:
    """The log file whose first frame has this LSN."""
    return f"{LOG_FOLDER}/{first_lsn:020d}.log"


def try_first_lsn(file_name: str) -> int | None:
    """The first LSN of a log file's bare name, or None for any other file."""
    match = _LOG_FILE.match(file_name)
    return int(match.group(1)) if match else None


def commit_object(lsn: int) -> str:
    """The object of a commit in a bucket; a folder has few enough of them to list it."""
    return f"{LOG_FOLDER}/{lsn // _COMMITS_PER_FOLDER:016d}/{lsn:020d}.kmq"


def try_commit_lsn(name: str) -> int | None:
    """The LSN of a commit's object, or None for any other name."""
    match = _COMMIT_OBJECT.match(name)
    if match is None or commit_object(int(match.group(1))) != name:
        return None
    return int(match.group(1))


def in_bucket(path: str) -> str:
    """The name of a file in a bucket, where the log file of a commit is the commit's object."""
    lsn = try_first_lsn(path.removeprefix(f"{LOG_FOLDER}/"))
    return path if lsn is None else commit_object(lsn)


def collected_mark(lsn: int) -> str:
    """The mark that commits up to this LSN may be deleted from a bucket."""
    return f"{COLLECTED_FOLDER}/{lsn:020d}"


def try_collected_lsn(name: str) -> int | None:
    """The LSN of a mark of collected commits, or None for any other name."""
    match = _COLLECTED.match(name)
    return int(match.group(1)) if match else None


def staged_file(file_id: bytes) -> str:
    """The staged file with this id of 16 bytes."""
    return f"{STAGED_FOLDER}/{file_id.hex()}.ipc"


def segment_file(topic_id: bytes, partition: int, base_offset: int, file_id: bytes) -> str:
    """The segment with this id of 16 bytes, whose first offset is `base_offset`."""
    name = f"{base_offset:020d}-{file_id.hex()}.arrow"
    return f"{SEGMENT_FOLDER}/{topic_id.hex()}/{partition}/{name}"


def segment_id(file: str) -> bytes:
    """The id of a segment's file."""
    return bytes.fromhex(file[-len(".arrow") - 32 : -len(".arrow")])


def checkpoint_file(lsn: int, digest: bytes) -> str:
    """The checkpoint of the state at this LSN, whose bytes have this digest."""
    return f"{CHECKPOINT_FOLDER}/{lsn:020d}-{digest.hex()}.arrow"


def try_checkpoint(file_name: str) -> tuple[int, bytes] | None:
    """The LSN and digest of a checkpoint's bare name, or None for any other file."""
    match = _CHECKPOINT.match(file_name)
    return (int(match.group(1)), bytes.fromhex(match.group(2))) if match else None


def page_file(page_id: bytes) -> str:
    """The leaf page of the manifest with this id of 16 bytes."""
    return f"{PAGE_FOLDER}/{page_id.hex()}.arrow"


def pin_file(pin_id: bytes) -> str:
    """The pin with this id of 16 bytes."""
    return f"{PIN_FOLDER}/{pin_id.hex()}.json"


def slip_file(slip_id: bytes) -> str:
    """The slip with this id of 16 bytes."""
    return f"{SLIP_FOLDER}/{slip_id.hex()}"


def slip_id(file: str) -> bytes:
    """The id in the name of a slip."""
    return bytes.fromhex(file.rpartition("/")[2])


def clone_file(store_id: bytes, digest: bytes) -> str:
    """The record of files kept for the clone with this id; its bytes have this digest."""
    return f"{CLONE_FOLDER}/{store_id.hex()}-{digest.hex()}.arrow"


def is_pin(file: str) -> bool:
    """Whether this is the name of a pin."""
    return _PIN.match(file) is not None


def try_clone(file: str) -> tuple[bytes, bytes] | None:
    """The clone's id and the digest in the name of a clone's record, or None for another file."""
    match = _CLONE.match(file)
    return (bytes.fromhex(match.group(1)), bytes.fromhex(match.group(2))) if match else None


def try_file_id(file: str) -> bytes | None:
    """The id in the name of a staged file, segment or page; None for any other file."""
    match = _FILE_ID.match(file)
    return bytes.fromhex(match[match.lastindex or 0]) if match else None


def is_leftover(file: str) -> bool:
    """Whether this is a temporary file in one of the store's folders, left by a dead process."""
    return _LEFTOVER.match(file) is not None


def is_own(file: str) -> bool:
    """Whether kmq wrote this file into one of `ID_FOLDERS`; files of others there stay."""
    return try_file_id(file) is not None or is_leftover(file)


def is_slip(file: str) -> bool:
    """Whether this is the name of a slip."""
    return _SLIP.match(file) is not None


def member_lock(group: str) -> str:
    """The lock of a group's exclusive member; hashed, as groups may differ only in case."""
    import hashlib  # slow to import, and rarely needed

    digest = hashlib.blake2b(group.encode(), digest_size=16).hexdigest()
    return shared_member_lock(digest)


def shared_member_lock(member_id: str) -> str:
    """The lock of a member with this id, 32 hex digits."""
    return f"{LOCK_FOLDER}/{member_id}.member"


def lease(folder: str, epoch: int) -> str:
    """The object of a lock in a bucket, of this epoch."""
    return f"{folder}/{epoch:020d}.json"


def try_epoch(file: str) -> int | None:
    """The epoch of a lock's object, or None for any other name."""
    match = _LEASE.search(file)
    return int(match.group(1)) if match else None
