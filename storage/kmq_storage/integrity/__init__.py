"""Verify and repair: is every byte of a store right, and what to do when some are not.

`verify` and `repair` are the calls, `report` is what they return; a bucket's files are read for
them in `second_looks`. Below the calls, upper packages first:

    repairs   the steps of a repair: the manifest, the log, topics, records
    checks    what verify looks at, a kind of file each, and how files fit together
    remains   what is left of a store whose commits or manifest are lost, and what it tells
    files     one file, or a part of it: are its bytes right?
"""
