"""The index of records: from offsets and times to rows that say where records are."""
