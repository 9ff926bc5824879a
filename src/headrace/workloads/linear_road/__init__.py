"""Linear Road: variable tolls on L expressways, as a workload and as a measure.

- `traffic.py` makes traffic by a seed, `input_files.py` keeps it in files, `source.py` feeds it at
  its own pace.
- `road.py`, `roads.py`, `accounts.py` and `pipeline.py` answer it.
- `validator.py` derives all answers again from the rules, in plain Python, and shares no code with
  the pipeline.
- `measuring.py` joins them: it runs, times, validates, and finds the largest L.

The rules, and what they leave open, are in docs/guides/linear-road.md.
"""
