"""`kmq serve`: a window on a store for people and for monitoring; the data never need it.

Read `answers` for what is asked for and answered; `page` and `metrics` say how it looks, `view`
comes to the store, and `listening` is the edge to the network. It only reads, and shows no
record's content.
"""
