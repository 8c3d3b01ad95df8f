"""A GitHub to run against: a real HTTP server over a seeded world that knows its own truth."""
