"""What a write checks before its tasks start, and the one commit of all that they wrote."""
