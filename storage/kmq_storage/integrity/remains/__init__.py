"""What is left of a store that lost its manifest or commits, and what that tells."""
