"""One module for each revision. A revision that was released never changes: write a new one."""
