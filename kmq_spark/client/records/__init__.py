"""Records as their users see them, and their way from stored columns."""
