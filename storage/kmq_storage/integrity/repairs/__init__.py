"""The steps of a repair: pages and checkpoints, a lost manifest, recreated topics, records."""
