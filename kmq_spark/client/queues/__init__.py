"""Queues as receivers use them: deliveries, answers, dead letters."""
