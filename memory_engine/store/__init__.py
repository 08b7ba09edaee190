"""The seam to storage: what a back end keeps, and how logs, snapshots and passages are read."""
