"""The cases: each function prepares one and gives back what is measured round after round."""
