# There is nothing to activate: see ../../../conda.
