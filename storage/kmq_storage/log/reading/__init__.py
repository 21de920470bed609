"""Reading records at their places: proven, cut to offsets and columns."""
