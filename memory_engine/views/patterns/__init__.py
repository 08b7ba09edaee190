"""Industry patterns: promoted lines that tenants share with others of their industry, redacted and reviewed."""
