"""The files of a log on a disk: frames, locks, and the page in shared memory."""
