"""Which instance types suit a model, in which order, and why not the others. Pure: nobody is asked anything.

`memory`: what a model needs, worked out in the open. `fitting`: which types can hold it, and why others
can't. `ranking`: in which order, by price where one is known. `reasons`: all of it in words. `comparing`: one
on-demand instance beside a group of Spot instances. `interruptions`: AWS's own figures on how often Spot is
taken back.
"""
