"""Entry points of the control plane's functions, and nothing else."""

import gc

# Set here, because this is imported before all else. By default the collector looks for cycles after 700 new
# objects, and through everything there is again and again while a heap grows. What is imported, a client's
# models and a page of a thousand described instances, 200,000 objects, are no garbage: to look in vain took
# four tenths of the tick that reads ten such pages. Instead some tens of megabytes of garbage, at most, wait
# a little longer.
gc.set_threshold(300_000)
