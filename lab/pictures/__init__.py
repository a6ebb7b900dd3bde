"""`python -m lab.pictures`: the pictures of page, boards and terminal in docs/images."""
