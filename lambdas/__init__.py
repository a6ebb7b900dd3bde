"""Entry points of the control plane's functions, and nothing else."""

import gc

# Set here, because this is imported before all else. By default the collector looks for cycles after 700 new
# objects, and through everything there is again and again while a heap grows. What is imported, a client's
# models and ten thousand described instances are no garbage: to look in vain took a third of the tick that
# reads those. Instead some tens of megabytes of garbage, at most, wait a little longer.
gc.set_threshold(100_000)
