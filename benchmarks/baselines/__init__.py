"""Figures that later changes are compared with, stored in files, and the programs that measure and write them.

`python -m benchmarks.baselines` says what moved. `rooms.tsv` maps each file of the package to the room where it will
live, so that coverage and doors are counted for the planned rooms while the files still lie in today's folders.
"""
