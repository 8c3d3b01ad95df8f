"""The assets, one thin module each; `stage` is the step that the three stages share."""
