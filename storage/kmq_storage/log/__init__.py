"""The commit log: what is written, in which order, who sees it, and what it adds up to."""
