"""`python -m lab.pictures`: the pictures of page, board and terminal in docs/images."""
