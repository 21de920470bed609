"""The commit log in a bucket, where creating the next name is the commit."""
