"""What verify looks at, a kind of file each, and whether files, rows and offsets fit together."""
