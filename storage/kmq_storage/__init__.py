"""kmq's storage layer: one commit log per store, Arrow record batches in and out.

Read in this order: `model`, `format.frame`, `log.disk.local_log`, `log.files.journal`,
`objects.disk`.
"""
