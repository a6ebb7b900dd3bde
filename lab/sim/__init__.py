"""The production controller in simulated time, under every fault that its ports can meet.

`run.run(seed)` is one run, `campaign` many. What the ports do is in `ports`, what goes wrong and when in
`faults` and `gate`, what befalls a service in `scenario` and `misfortunes`, what must hold in `rules` and
`settled`. `world` puts it all together.
"""
