"""`kmq serve`: shows a store to people and to monitoring; the data never need it.

Read `answers` for the addresses and what they answer; `page` and `metrics` say how it looks, `view`
reads the store, and `listening` is the edge to the network. It only reads, and shows no record's
content.
"""
