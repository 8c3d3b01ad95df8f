"""bandsync: the delivery history of many GitHub repositories in a SQL database, collected under GitHub's quota."""
