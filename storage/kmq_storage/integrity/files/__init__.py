"""One file, or a part of it: are its bytes right? Frames, batches, runs, whole files."""
