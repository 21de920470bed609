"""The seam to disks: the only code of kmq that does I/O."""
