"""Stand-ins for batch systems that cannot be installed here: small queues that really run jobs, as processes.

`core.py` has the queue, `pbs.py`, `lsf.py` and `flux.py` its commands with the words of each system, `farm.py` starts
one for a test. Each names the manual or the recorded answers that it follows. A command refuses what the real one
refuses, with its exit code; options that a stand-in does not know are refused too.
"""
