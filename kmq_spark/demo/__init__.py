"""The main job, `kmq demo`: real flights through a log, Spark and back, with a kill in the middle.

Read `run.py` first: it tells the story from top to bottom. `flights` is the data, `messages` its
form in a topic, `produce` the process that gets killed, `delays` the streaming query and `totals`
its arithmetic, `archive` the third step, `without_spark` the same path in plain Python; `progress`,
`report` and `plot` are what a person sees.
"""
