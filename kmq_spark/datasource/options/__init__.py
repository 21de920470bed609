"""The options of reads and writes: their names, their forms, and what they are parsed to."""
