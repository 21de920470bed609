"""The commit log on a disk, which several processes append to."""
