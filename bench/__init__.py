"""The benchmarks: Penstock against what one would otherwise use, measured in turns in one run.

``python -m bench`` from the root of the repository. How to read the source:

* ``systems/``    one file for each thing that is measured, all with the interface of ``systems/interface.py``
* ``scenarios/``  what is done with them; each checks that what came out is what went in
* ``plan.py``     which scenarios there are, how large, and the targets
* ``results.py``  samples, medians, ratios within a round
* ``report.py``, ``plot.py``  tables, JSON, the picture
"""
