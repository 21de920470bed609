"""What every handle of the client needs: checked arguments, closing, futures."""
