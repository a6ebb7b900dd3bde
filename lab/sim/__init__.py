"""The production controller in simulated time, under every fault that its ports can meet.

`run.run(seed)` is one run, `campaign` many. `ports` and `store` implement the ports. `faults` and `gate` make
calls fail, `scenario` and `misfortunes` make the world fail. `rules` says what must hold. `world` connects
them.
"""
